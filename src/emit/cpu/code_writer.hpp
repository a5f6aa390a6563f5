// Indented lines of C++.
#pragma once

#include <string>
#include <string_view>

namespace kw::cpu {

class CodeWriter {
 public:
  void indent() { ++level_; }
  void line(const std::string& text) { text_ += (text[0] == '#' ? "" : std::string(2 * level_, ' ')) + text + "\n"; }

  void open(const std::string& head) {
    line(head.empty() ? "{" : head + " {");
    ++level_;
    ++opened_;
  }

  void close() {
    --level_;
    --opened_;
    line("}");
  }

  void close_all() {
    while (opened_ > 0) close();
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int level_ = 0, opened_ = 0;
};

// Does `name` stand in the text as a whole word?
bool mentions(std::string_view text, std::string_view name);

}  // namespace kw::cpu
