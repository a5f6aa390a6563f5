// Kernels under construction together with their schedules, and numbers taken apart into digits.
#pragma once

#include <string>
#include <vector>

#include "plan/product_kernels.hpp"

namespace kw::plan {

// A kernel under construction with its schedule. What has one point only is no axis.
struct ScheduledDraft : KernelDraft {
  using KernelDraft::KernelDraft;

  kernel::Symbol mapped(const std::string& name, int64_t extent, const lower::AxisSchedule& how, bool ordered = false) {
    schedule.axes.push_back(how);
    return axis(name, extent, ordered);
  }
  kernel::Index grid(const std::string& name, int64_t extent) {
    return extent == 1 ? kernel::Index(0) : kernel::symbol_index(mapped(name, extent, {}));
  }

  lower::KernelSchedule schedule;
};

// Digits of a number written in a mixed base, the last the fastest.
class Digits {
 public:
  Digits(const KernelDraft& draft, kernel::Index number, const std::vector<int64_t>& bases) : digits_(bases.size()) {
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(draft.build.kernel());
    size_t first = 0;  // the rest of the number, however large
    while (first + 1 < bases.size() && bases[first] == 1) ++first;
    for (size_t place = bases.size(); place-- > first;) {
      digits_[place] = place == first ? number : kernel::modulo(number, bases[place], ranges);
      number = kernel::floor_divide(number, bases[place], ranges);
    }
  }
  const kernel::Index& operator[](size_t place) const { return digits_[place]; }

 private:
  std::vector<kernel::Index> digits_;
};

}  // namespace kw::plan
