// Python source fragments: literals, identifiers and renaming.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <set>
#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace kw::python {

std::string quoted(std::string_view text);                 // "it\"s"
std::string number(double value);                          // 1.0, float("inf")
std::string tuple(const Shape& sizes);                     // (3, 4), (3,), ()
std::string list(const IntList& values);                   // [1, 2]
std::string dtype(DType dtype);                            // torch.float32
std::string literal(const nlohmann::ordered_json& value);  // a constant of a captured call or result; throws kInternal
                                                           // when it has no literal
bool has_literal(const nlohmann::ordered_json& value);

bool is_identifier(std::string_view text);                   // and no keyword
const std::set<std::string, std::less<>>& reserved_names();  // keywords, and what Python itself calls something (sum,
                                                             // input, type …)
bool has_word(std::string_view text, std::string_view word);

// Renames an identifier wherever it stands on its own and not as an attribute.
std::string rename_word(std::string_view text, std::string_view from, std::string_view to);

// Names that a piece of Python defines at its top level, in lines that are not indented: def, class, assignments,
// imports ("*" where it imports all that another module has).
std::set<std::string> top_level_names(std::string_view source);

std::string indent(std::string_view text, int levels = 1);
std::string wrapped_call(const std::string& head, const std::vector<std::string>& arguments,
                         const std::string& tail);  // breaks long lines
// A call that stands behind `indent` and `before` other characters, with its arguments in lines of their own where it
// would be longer than so many columns.
std::string call_at(size_t indent, size_t before, const std::string& function,
                    const std::vector<std::string>& arguments, size_t columns);

// `if a or b:`, each condition in a line of its own where one would be too long.
std::string if_any(const std::vector<std::string>& conditions);

inline constexpr size_t kLongestLine = 140;  // of emitted code

// A statement that stands `indent` columns in, the lines behind its first one with all their indentation. Lines of
// more columns are broken between the terms of a sum, or the factors of a product, in parentheses where none are open,
// or between the arguments of a call that is all there is.
std::string with_short_lines(const std::string& statement, size_t indent, size_t columns);
// A docstring in lines of so many columns at the most.
std::string docstring(const std::string& text, size_t indent, size_t columns);

}  // namespace kw::python
