#include "emit/cpu/parts.hpp"

#include <algorithm>

#include "emit/cpu/regions.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

std::vector<Part> parts_of(const Kernel& kernel) {
  const Simplified whole = simplify(kernel);
  std::vector<Part> parts;
  for (Region& region : regions_of(whole.kernel)) {
    const bool is_whole = region.place.empty();
    const size_t count = region.kernel.exprs.size();
    Simplified simplified{std::move(region.kernel), is_whole ? whole.extended_sum : std::vector<bool>(count, false),
                          whole.short_folds};
    LoopNest nest = plan_loops(simplified);
    parts.push_back({std::move(simplified), std::move(nest), std::move(region.place)});
  }
  return parts;
}

std::vector<ChoiceRange> choices_of(const Kernel& kernel) {
  constexpr int64_t kNever = int64_t{1} << 40;
  const std::vector<Part> parts = parts_of(kernel);
  const auto any = [&](auto&& holds) { return std::any_of(parts.begin(), parts.end(), holds); };
  int64_t elements = 1;
  for (const Axis& axis : kernel.axes) elements *= axis.extent;
  const bool in_order = scan_axis_of(kernel) >= 0 || scatters(kernel);
  std::vector<ChoiceRange> ranges;
  if (!in_order && any([](const Part& part) { return part.nest.possible_vector_axes > 1; }))
    ranges.push_back({&LoopChoices::along, {0, 1}});
  if (any([](const Part& part) { return part.nest.form == LoopForm::kColumns; }))
    ranges.push_back({&LoopChoices::columns, {16, 32, 64, 128, 256, 512, 1024}});
  if (any([](const Part& part) { return part.nest.tiled_axis >= 0; }))
    ranges.push_back({&LoopChoices::tile, {8, 16, 32, 64, 128}});
  if (any([](const Part& part) { return part.nest.form == LoopForm::kScanRows; })) {
    ranges.push_back({&LoopChoices::rows, {1, 2, 4, 8, 16}});
    if (!sorts(kernel)) ranges.push_back({&LoopChoices::piece, {128, 256, 512, 1024, 2048}});
  }
  if (any([](const Part& part) { return part.nest.last_phase > 0 && part.nest.form != LoopForm::kScanRows; }))
    ranges.push_back({&LoopChoices::keep, {1, 16 << 10, 64 << 10, 256 << 10}});
  if (elements < (int64_t{1} << 22)) ranges.push_back({&LoopChoices::share, {4096, 32768, 262144, kNever}});
  return ranges;
}

}  // namespace kw::cpu
