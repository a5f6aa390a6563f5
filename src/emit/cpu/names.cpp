#include "emit/cpu/names.hpp"

#include <cctype>

namespace kw::cpu {
namespace {

// Keywords of C++17 that are no keywords of Python, types and functions that printed kernels use unqualified, and macros of <cmath>.
constexpr const char* kReserved[] = {
    "alignas", "alignof", "auto", "bool", "case", "catch", "char", "char16_t", "char32_t", "concept", "const", "const_cast", "constexpr",
    "decltype", "default", "delete", "do", "double", "dynamic_cast", "enum", "explicit", "export", "extern", "false", "float", "friend",
    "goto", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "nullptr", "operator", "private", "protected", "public",
    "register", "reinterpret_cast", "requires", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch",
    "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual",
    "void", "volatile", "wchar_t", "and", "or", "not", "xor", "bitand", "bitor", "compl", "std", "NAN", "INFINITY", "INLINE", "linux", "unix",
    "maximum", "minimum", "larger_number", "smaller_number", "sign", "multiply_add", "truncating_quotient", "integer_modulo", "integer_fmod",
    "integer_floor_quotient", "floating_modulo", "floating_floor_quotient", "integer_power", "shift_left", "shift_right", "threads",
};

}  // namespace

Names::Names() : taken_(std::begin(kReserved), std::end(kReserved)) {}

std::string Names::fresh(const std::string& wanted) {
  if (taken_.insert(wanted).second) return wanted;
  std::string name = wanted + "_value";
  for (int suffix = 2; !taken_.insert(name).second; ++suffix) name = wanted + "_" + std::to_string(suffix);
  return name;
}

std::string constant_name(const std::string& axis, const std::string& what) {
  std::string name = "k";
  bool start = true;
  for (char c : axis) {
    if (c == '_') {
      start = true;
      continue;
    }
    name += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return name + what;
}

}  // namespace kw::cpu
