// The names and words of a tile program's text (text.hpp) while it is read: what they stand for, and messages with line
// and column where they stand for nothing.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "support/text_reader.hpp"
#include "tile/program.hpp"

namespace kw::tile {

class ProgramNames {
 protected:
  explicit ProgramNames(std::string_view text) : reader_(text, "tile program") {}

  // --- Names: each is given once in a program; what it is given to is seen until its body ends ---

  struct Name {
    size_t position;
    std::string text;
  };

  Name new_name();
  Symbol add_symbol(SymbolInfo info);
  void show(Value value);
  void hide_from(size_t count);
  Value used_value();
  std::vector<Value> used_values();
  Symbol used_symbol(SymbolKind kind, std::string_view what);
  std::vector<Symbol> used_lanes();

  // --- Words, numbers and indices ---

  // The place of the next word among the words.
  template <typename Enum>
  Enum word(std::span<const std::string_view> words, std::string_view what) {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = std::find(words.begin(), words.end(), name);
    if (found == words.end())
      reader_.fail_at(at, fmt::format("there is no {} '{}', only {}", what, name, fmt::join(words, ", ")));
    return static_cast<Enum>(found - words.begin());
  }

  DType dtype();
  Index index();
  std::vector<Index> indices();
  int whole_number(int64_t least, int64_t most);

  TextReader reader_;
  Program program_;
  std::vector<kernel::SymbolRange> ranges_;
  std::set<std::string> names_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::unordered_map<std::string, Value> values_;
  std::vector<Value> shown_;  // in the order in which they were defined
};

}  // namespace kw::tile
