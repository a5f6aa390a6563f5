#include "emit/cpu/code_writer.hpp"

#include <cctype>

namespace kw::cpu {

bool mentions(std::string_view text, std::string_view name) {
  const auto part_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !part_of_word(text[at - 1])) && (end == text.size() || !part_of_word(text[end]))) return true;
  }
  return false;
}

}  // namespace kw::cpu
