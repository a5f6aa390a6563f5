#include "emit/python_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <cctype>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::python {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kLineWidth = 118;

const std::set<std::string, std::less<>> kKeywords = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

constexpr std::string_view kBuiltins =
    "abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex "
    "copyright credits delattr dict dir divmod enumerate eval exec exit "
    "filter float format frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter len "
    "license list locals map max memoryview min next object "
    "oct open ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum "
    "super tuple type vars zip self";

bool is_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// The next place at or after `from` where `word` stands on its own.
size_t find_word(std::string_view text, std::string_view word, size_t from) {
  for (size_t at = text.find(word, from); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return at;
  }
  return std::string_view::npos;
}

std::string leading_name(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_part(text[end])) ++end;
  return std::string(text.substr(0, end));
}

// Of what follows `import`: "a.b, c as d", "(c, d)", "*".
void add_imported(std::string_view imported, std::set<std::string>& names) {
  imported = imported.substr(0, imported.find('#'));
  std::string text(imported);
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ')'; }, ' ');
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream words(part);
    std::string name;
    for (std::string word; words >> word;) name = word;  // "c as d" binds d
    name = name.substr(0, name.find('.'));
    if (!name.empty()) names.insert(name);
  }
}

// Of "a = …", "a, b = …", "a = b = …", "a: int = …".
void add_assigned(std::string_view line, std::set<std::string>& names) {
  std::vector<std::string> targets;
  while (true) {
    const size_t open = line.find_first_not_of(targets.empty() ? "(" : "( ");
    if (open == std::string_view::npos) return;
    line.remove_prefix(open);
    const std::string name = leading_name(line);
    if (!is_identifier(name)) return;
    targets.push_back(name);
    line.remove_prefix(name.size());
    if (line.starts_with(':')) {
      names.insert(targets.begin(), targets.end());
      return;
    }
    line.remove_prefix(std::min(line.find_first_not_of(") "), line.size()));
    if (line.starts_with('=') && !line.starts_with("==")) {
      names.insert(targets.begin(), targets.end());
    } else if (!line.starts_with(',')) {
      return;
    }
    line.remove_prefix(1);
  }
}

}  // namespace

std::string quoted(std::string_view text) { return Json(std::string(text)).dump(); }

std::string number(double value) {
  if (std::isnan(value)) return "float(\"nan\")";
  if (std::isinf(value)) return value < 0 ? "float(\"-inf\")" : "float(\"inf\")";
  return format_double(value);
}

std::string tuple(const Shape& sizes) {
  std::vector<std::string> parts;
  for (int64_t size : sizes) parts.push_back(std::to_string(size));
  return "(" + join(parts, ", ") + (parts.size() == 1 ? ",)" : ")");
}

std::string list(const IntList& values) {
  std::vector<std::string> parts;
  for (int64_t value : values) parts.push_back(std::to_string(value));
  return "[" + join(parts, ", ") + "]";
}

std::string dtype(DType dtype) { return std::string(torch_name(dtype)); }

bool has_literal(const Json& value) {
  if (!value.is_object()) return !value.is_array();
  if (value.contains("list") || value.contains("tuple")) {
    const Json& items = value.contains("list") ? value["list"] : value["tuple"];
    return std::all_of(items.begin(), items.end(), has_literal);
  }
  return value.contains("f") || value.contains("dtype");
}

std::string literal(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) return number(value.get<double>());
  if (value.is_string()) return value.dump();
  if (value.is_object() && value.contains("f")) return fmt::format("float({})", value["f"].dump());
  if (value.is_object() && value.contains("dtype"))
    if (const auto found = parse_dtype(value["dtype"].get<std::string>())) return dtype(*found);
  if (value.is_object() && (value.contains("list") || value.contains("tuple"))) {
    const bool is_list = value.contains("list");
    std::vector<std::string> parts;
    for (const Json& item : is_list ? value["list"] : value["tuple"]) parts.push_back(literal(item));
    const std::string inner = join(parts, ", ");
    return is_list ? "[" + inner + "]" : "(" + inner + (parts.size() == 1 ? ",)" : ")");
  }
  throw Error(ErrorKind::kInternal, "a constant of the captured call has no Python literal: " + value.dump());
}

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) || kKeywords.contains(text)) return false;
  return std::all_of(text.begin(), text.end(), is_part);
}

const std::set<std::string, std::less<>>& reserved_names() {
  static const std::set<std::string, std::less<>> names = [] {
    std::istringstream words{std::string(kBuiltins)};
    std::set<std::string, std::less<>> all(std::istream_iterator<std::string>(words), {});
    all.insert(kKeywords.begin(), kKeywords.end());
    return all;
  }();
  return names;
}

bool has_word(std::string_view text, std::string_view word) {
  return find_word(text, word, 0) != std::string_view::npos;
}

std::string rename_word(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t copied = 0;
  for (size_t at = find_word(text, from, 0); at != std::string_view::npos;
       at = find_word(text, from, at + from.size())) {
    if (at > 0 && text[at - 1] == '.') continue;
    out += text.substr(copied, at - copied);
    out += to;
    copied = at + from.size();
  }
  out += text.substr(copied);
  return out;
}

std::set<std::string> top_level_names(std::string_view source) {
  std::set<std::string> names;
  const std::vector<std::string> lines = split_lines(source);
  for (size_t at = 0; at < lines.size(); ++at) {
    std::string text = lines[at];
    if (text.starts_with("def ")) {
      names.insert(leading_name(text.substr(4)));
    } else if (text.starts_with("class ")) {
      names.insert(leading_name(text.substr(6)));
    } else if (text.starts_with("import ") || text.starts_with("from ")) {
      while (text.find('(') != std::string::npos && text.find(')') == std::string::npos && at + 1 < lines.size())
        text += " " + lines[++at];
      add_imported(text.substr(text.starts_with("import ") ? 7 : std::min(text.find(" import ") + 8, text.size())),
                   names);
    } else {
      add_assigned(text, names);
    }
  }
  return names;
}

std::string indent(std::string_view text, int levels) {
  std::string out;
  for (const std::string& line : split_lines(text))
    out += line.empty() ? "\n" : std::string(4 * levels, ' ') + line + "\n";
  return out;
}

std::string call_at(size_t indent, size_t before, const std::string& function,
                    const std::vector<std::string>& arguments, size_t columns) {
  const std::string text = function + "(" + join(arguments, ", ") + ")";
  if (indent + before + text.size() <= columns) return text;
  const std::string break_line = "\n" + std::string(indent + 4, ' ');
  return function + "(" + break_line + join(arguments, "," + break_line) + ",\n" + std::string(indent, ' ') + ")";
}

namespace {

// The operands between such operators outside of brackets and quotes, each but the first behind its own; empty where
// brackets are open at the end, or closed before.
std::vector<std::string> operands_of(std::string_view text, std::span<const std::string_view> operators) {
  std::vector<std::string> operands(1);
  int depth = 0;
  char quote = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char one = text[at];
    if (quote) quote = one == quote ? 0 : quote;
    else if (one == '"' || one == '\'') quote = one;
    else if (one == '(' || one == '[' || one == '{') ++depth;
    else if ((one == ')' || one == ']' || one == '}') && --depth < 0) return {};
    const bool outside = !quote && depth == 0;
    if (outside && std::any_of(operators.begin(), operators.end(),
                               [&](std::string_view name) { return text.substr(at).starts_with(name); }))
      operands.emplace_back();
    else operands.back() += one;
  }
  if (depth != 0 || quote) operands.clear();
  return operands;
}

// Of a sum its terms, else the factors and divisors of a product.
std::vector<std::string> parts_of(std::string_view text) {
  static constexpr std::string_view kSums[] = {" + ", " - "}, kProducts[] = {" * ", " // ", " % "};
  std::vector<std::string> terms = operands_of(text, kSums);
  return terms.size() == 1 ? operands_of(text, kProducts) : terms;
}

std::string rows_of(const std::vector<std::string>& parts, size_t indent, size_t columns) {
  std::string out(indent, ' '), row = parts.front();
  for (size_t one = 1; one < parts.size(); ++one) {
    const std::string& more = parts[one];
    if (indent + row.size() + 1 + more.size() > columns) {
      out += row + "\n" + std::string(indent, ' ');
      row = more;
    } else {
      row += " " + more;
    }
  }
  return out + row;
}

}  // namespace

namespace {

// A list that is too long for a line of its own, in rows.
std::string list_in_rows(const std::string& list) {
  static constexpr std::string_view kCommas[] = {", "};
  std::string out = "[", row;
  for (std::string item : operands_of(std::string_view(list).substr(1, list.size() - 2), kCommas)) {
    if (item.starts_with(" ")) item.erase(0, 1);
    if (!row.empty() && row.size() + item.size() > kLineWidth - 12) {
      out += "\n        " + row;
      row.clear();
    }
    row += (row.empty() ? "" : " ") + item + ",";
  }
  return out + "\n        " + row + "\n    ]";
}

}  // namespace

std::string wrapped_call(const std::string& head, const std::vector<std::string>& arguments, const std::string& tail) {
  const std::string line = head + join(arguments, ", ") + tail;
  if (line.size() <= kLineWidth) return line;
  std::string out = head + "\n";
  std::string row;
  for (const std::string& given : arguments) {
    const bool is_long_list = given.size() > kLineWidth && given.starts_with("[") && given.ends_with("]");
    const std::string argument = is_long_list ? list_in_rows(given) : given;
    if (!row.empty() && row.size() + argument.size() > kLineWidth - 8) {
      out += "    " + row + "\n";
      row.clear();
    }
    row += (row.empty() ? "" : " ") + argument + ",";
  }
  if (!row.empty()) out += "    " + row + "\n";
  return out + tail;
}

std::string if_any(const std::vector<std::string>& conditions) {
  const std::string line = "if " + join(conditions, " or ") + ":";
  return line.size() <= kLineWidth ? line : "if (\n    " + join(conditions, "\n    or ") + "\n):";
}

// Of a value that is one call, each argument in a line of its own; empty where it is none.
std::string call_in_rows(std::string_view value, size_t indent) {
  static constexpr std::string_view kCommas[] = {", "};
  const size_t open = value.find('(');
  const bool is_call = open != std::string_view::npos && open > 0 && value.ends_with(")") &&
                       std::all_of(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(open),
                                   [](char one) { return is_part(one) || one == '.'; });
  if (!is_call) return "";
  std::string out(value.substr(0, open + 1));
  std::vector<std::string> arguments = operands_of(value.substr(open + 1, value.size() - open - 2), kCommas);
  if (arguments.size() < 2) return "";  // something follows the call, or there is nothing to break at
  for (std::string& argument : arguments) {
    if (argument.starts_with(" ")) argument.erase(0, 1);
    out += "\n" + std::string(indent + 4, ' ') + argument + ",";
  }
  return out + "\n" + std::string(indent, ' ') + ")";
}

std::string with_short_lines(const std::string& statement, size_t indent, size_t columns) {
  const std::vector<std::string> lines = split_lines(std::string(indent, ' ') + statement);
  std::string out;
  for (size_t number = 0; number < lines.size(); ++number) {
    const std::string& line = lines[number];
    const size_t start = std::min(line.find_first_not_of(' '), line.size());
    const size_t equals = number == 0 ? line.find(" = ") : std::string::npos;
    const bool is_whole = number == 0 && lines.size() == 1 && equals != std::string::npos;
    const size_t value = is_whole ? equals + 3 : start;
    const std::vector<std::string> parts = line.size() > columns && (is_whole || number > 0)
                                               ? parts_of(std::string_view(line).substr(value))
                                               : std::vector<std::string>();
    const std::string rows = parts.size() == 1 && is_whole ? call_in_rows(line.substr(value), start) : "";
    if (!rows.empty()) out += line.substr(0, value) + rows;
    else if (parts.size() < 2) out += line;
    else if (!is_whole) out += rows_of(parts, start, columns);
    else
      out += line.substr(0, value) + "(\n" + rows_of(parts, start + 4, columns) + "\n" + std::string(start, ' ') + ")";
    if (number + 1 < lines.size()) out += "\n";
  }
  return out.substr(indent);
}

std::string docstring(const std::string& text, size_t indent, size_t columns) {
  std::string out = "\"\"\"";
  size_t column = indent + out.size();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool first = at == 0;
    at = end + 1;
    if (!first && column + 1 + word.size() + 3 > columns) {
      out += "\n" + std::string(indent, ' ') + word;
      column = indent + word.size();
    } else {
      out += (first ? "" : " ") + word;
      column += word.size() + !first;
    }
  }
  return out + "\"\"\"";
}

}  // namespace kw::python
