// Reads the text of an index: sums, products, quotients `/` and remainders `%` of names and numbers, with parentheses.
// A `%` with a name directly after it is no remainder but a value of a tile program, where the index ends.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "kernel/index.hpp"
#include "support/text_reader.hpp"

namespace kw::kernel {

// The symbol of a name, or nullopt where there is none.
using FindSymbol = std::function<std::optional<Symbol>(std::string_view)>;

// Reads one index from where the reader stands. Throws kUser with line and column.
Index parse_index(TextReader& reader, const FindSymbol& find, SymbolRanges ranges);

}  // namespace kw::kernel
