#include "kernel/index_parse.hpp"

#include <fmt/format.h>

#include <cctype>

namespace kw::kernel {
namespace {

class IndexParser {
 public:
  IndexParser(TextReader& reader, const FindSymbol& find, SymbolRanges ranges)
      : reader_(reader), find_(find), ranges_(ranges) {}

  Index sum() {
    Index result = product();
    while (true) {
      if (next_is_plus()) {
        reader_.expect("+");
        result = result + product();
      } else if (next_is_minus()) {
        result = result - product();
      } else {
        return result;
      }
    }
  }

 private:
  // Not the arrow of a For or a relabel.
  bool next_is_minus() { return !reader_.next_is("->") && reader_.accept("-"); }

  // In tile programs %name is a value: it begins the next instruction, or is added to the index by whoever called.
  static bool is_value(TextReader ahead) {
    const size_t at = ahead.position();
    return ahead.accept("%") && ahead.position() == at + 1 && ahead.next_is_name();
  }

  bool next_is_plus() {
    TextReader ahead = reader_;
    return ahead.accept("+") && !is_value(ahead);
  }

  Index product() {
    Index result = factor();
    while (true) {
      if (reader_.accept("*")) result = result * factor();
      else if (reader_.accept("/")) result = floor_divide(result, divisor(), ranges_);
      else if (!is_value(reader_) && reader_.accept("%")) result = modulo(result, divisor(), ranges_);
      else return result;
    }
  }

  Index divisor() {
    const size_t at = reader_.position();
    const Index result = factor();
    if (const auto number = as_constant(result); number && *number < 1)
      reader_.fail_at(at, fmt::format("an index is divided by {}, but only by numbers from 1 on", *number));
    return result;
  }

  Index factor() {
    if (reader_.accept("(")) {
      Index result = sum();
      reader_.expect(")");
      return result;
    }
    if (reader_.accept("-")) return factor() * Index(-1);
    if (std::isdigit(static_cast<unsigned char>(reader_.peek()))) return Index(reader_.integer());
    const size_t at = reader_.position();
    if (!reader_.next_is_name()) reader_.fail("expected an index: a name, a number or '('");
    const std::string name = reader_.name();
    if (name == "min" && reader_.accept("(")) return smaller_of_two();
    const std::optional<Symbol> symbol = find_(name);
    if (!symbol) reader_.fail_at(at, fmt::format("nothing is called '{}' here", name));
    return symbol_index(*symbol);
  }

  Index smaller_of_two() {
    const Index left = sum();
    reader_.expect(",");
    const Index right = sum();
    reader_.expect(")");
    return minimum(left, right, ranges_);
  }

  TextReader& reader_;
  const FindSymbol& find_;
  SymbolRanges ranges_;
};

}  // namespace

Index parse_index(TextReader& reader, const FindSymbol& find, SymbolRanges ranges) {
  return IndexParser(reader, find, ranges).sum();
}

}  // namespace kw::kernel
