#include "emit/cpu/guard_scope.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cpu/cpp_text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

Bounds GuardScope::bounds_within(const std::vector<Guard>& guards, const std::vector<int>& loops, int depth,
                                 const Bounds& whole, const AxisNames& axes) {
  const int axis = loops[depth - 1];
  Bounds bounds;
  const std::string& variable = axes.variables[axis];
  for (const Guard& guard : guards) {
    if (depth_of(guard, loops) != depth) continue;
    const Bounds inside = range_within(kernel_, guard, axis, axes);
    if (inside.first.empty()) continue;
    if (bounds.first.empty()) bounds = whole;
    const std::string first = names_.fresh("first_" + variable + "_inside"),
                      end = names_.fresh("end_" + variable + "_inside");
    writer_.line(fmt::format("const int64_t {} = std::max<int64_t>({}, {});", first, bounds.first, inside.first));
    writer_.line(fmt::format("const int64_t {} = std::min<int64_t>({}, {});", end, bounds.end, inside.end));
    bounds = {first, end};
    implied_.push_back(guard);
  }
  return bounds;
}

void GuardScope::skip_outside(const std::vector<Guard>& guards, const std::vector<int>& loops, int depth,
                              const AxisNames& axes) {
  std::vector<Guard> here;
  for (const Guard& guard : guards)
    if (depth_of(guard, loops) == depth) here.push_back(guard);
  implied_.insert(implied_.end(), here.begin(), here.end());
  const std::string inside = guard_text(kernel_, here, axes);
  if (!inside.empty()) writer_.line("if (!(" + inside + ")) continue;");
}

std::string GuardScope::remaining(const std::vector<Guard>& guards, const AxisNames& axes) const {
  std::vector<Guard> rest;
  for (const Guard& guard : guards)
    if (std::find(implied_.begin(), implied_.end(), guard) == implied_.end()) rest.push_back(guard);
  return guard_text(kernel_, rest, axes);
}

}  // namespace kw::cpu
