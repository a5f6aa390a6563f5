#include "emit/cpu/names.hpp"

#include <cctype>
#include <iterator>
#include <sstream>
#include <string_view>

#include "emit/runtime/cpu/embedded.hpp"
#include "support/text.hpp"

namespace kw::cpu {
namespace {

// Keywords of C++17 that are no keywords of Python, types, macros, and the functions that <cmath>, <cstdlib> and
// <cstring> declare outside std as well.
constexpr std::string_view kReserved =
    "alignas alignof auto bool case catch char char16_t char32_t concept const const_cast constexpr decltype default "
    "delete do double dynamic_cast enum "
    "explicit export extern false float friend goto inline int long mutable namespace new noexcept nullptr operator "
    "private protected public register "
    "reinterpret_cast requires short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true typedef typeid "
    "typename union unsigned using virtual void volatile wchar_t bitand bitor compl xor std threads refused "
    "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t NAN INFINITY NULL EOF INLINE linux unix "
    "errno "
    "abs labs llabs fabs fmod remainder remquo fma fmax fmin fdim nan exp exp2 expm1 exp10 log log10 log2 log1p pow "
    "sqrt cbrt hypot sin cos tan asin acos atan "
    "atan2 sincos sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma gamma ceil floor trunc round lround llround "
    "nearbyint rint lrint llrint roundeven "
    "frexp ldexp modf scalbn scalb scalbln significand drem ilogb logb nextafter nexttoward copysign fpclassify "
    "isfinite isinf isnan isnormal signbit finite "
    "isgreater isless j0 j1 jn y0 y1 yn div ldiv lldiv qsort bsearch rand srand random malloc calloc realloc free "
    "abort exit atexit system getenv atof atoi "
    "atol strtod strtof strtol select index rindex memcpy memmove memset memcmp memchr strlen strcmp strcpy strcat "
    "strchr strstr strtok strerror ffs swab";

bool is_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// What the helpers before the kernels are called: what stands before the first parenthesis of a line at the outermost
// level.
void add_defined(std::string_view source, std::set<std::string>& names) {
  for (const std::string& line : split_lines(source)) {
    const size_t end = line.find('(');
    if (end == std::string::npos || !std::isalpha(static_cast<unsigned char>(line[0]))) continue;
    size_t start = end;
    while (start > 0 && is_part(line[start - 1])) --start;
    names.insert(line.substr(start, end - start));
  }
}

const std::set<std::string>& reserved() {
  static const std::set<std::string> names = [] {
    std::istringstream words{std::string(kReserved)};
    std::set<std::string> all(std::istream_iterator<std::string>(words), {});
    for (const std::string_view source : {kVectorMathText, kScalarMathText, kSortRowsText, kTileMathText})
      add_defined(source, all);
    return all;
  }();
  return names;
}

}  // namespace

Names::Names() : taken_(reserved()) {}

std::string Names::fresh(const std::string& wanted, const std::string& suffix) {
  if (taken_.insert(wanted).second) return wanted;
  std::string name = wanted + suffix;
  for (int suffix = 2; !taken_.insert(name).second; ++suffix) name = wanted + "_" + std::to_string(suffix);
  return name;
}

}  // namespace kw::cpu
