#include "llm/repetition.hpp"

#include <cstddef>

namespace kw::llm {

bool goes_in_circles(std::string_view text) {
  constexpr size_t kLongest = 400, kTimes = 16, kLeast = 600;
  for (size_t period = 1; period <= kLongest; ++period) {
    const size_t needed = period * kTimes > kLeast ? period * kTimes : kLeast;
    if (text.size() < needed) return false;
    size_t same = 0;
    while (same + period < needed && text[text.size() - 1 - same] == text[text.size() - 1 - same - period]) ++same;
    if (same + period >= needed) return true;
  }
  return false;
}

}  // namespace kw::llm
