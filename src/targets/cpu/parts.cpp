#include "targets/cpu/parts.hpp"

#include <algorithm>

#include "targets/cpu/regions.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

Part planned(Simplified simplified) {
  LoopNest nest = plan_loops(simplified);
  return {std::move(simplified), std::move(nest)};
}

}  // namespace

std::vector<Part> parts_of(const GroupKernel& kernel, const LoopHints& hints) {
  std::vector<Part> parts;
  for (Simplified& region : regions_of(simplify(kernel, hints))) parts.push_back(planned(std::move(region)));
  return parts;
}

const std::vector<ChoiceLimits>& choice_limits() {
  constexpr int64_t kNever = int64_t{1} << 40;
  // `rows` pieces lie on a thread's stack.
  static const std::vector<ChoiceLimits> limits = {
      {&LoopChoices::along, 15, false, {0, 1}},
      {&LoopChoices::columns, 4096, true, {16, 32, 64, 128, 256, 512, 1024}},
      {&LoopChoices::tile, 512, true, {8, 16, 32, 64, 128}},
      {&LoopChoices::rows, 16, false, {1, 2, 4, 8, 16}},
      {&LoopChoices::piece, 4096, true, {128, 256, 512, 1024, 2048}},
      {&LoopChoices::share, kNever, false, {4096, 32768, 262144, kNever}},
  };
  return limits;
}

std::vector<int64_t LoopChoices::*> choices_of(const GroupKernel& kernel, const LoopHints& hints) {
  const std::vector<Part> parts = parts_of(kernel, hints);
  const auto any = [&](auto&& holds) { return std::any_of(parts.begin(), parts.end(), holds); };
  int64_t elements = 1;
  for (const kernel::SymbolInfo& axis : kernel.symbols) elements *= extent_of(axis);
  const bool in_order = scan_axis_of(kernel) >= 0 || scatters(kernel);
  std::vector<int64_t LoopChoices::*> choices;
  if (!in_order && any([](const Part& part) { return part.nest.possible_vector_axes > 1; }))
    choices.push_back(&LoopChoices::along);
  if (any([](const Part& part) { return part.nest.form == LoopForm::kColumns; }))
    choices.push_back(&LoopChoices::columns);
  if (any([](const Part& part) { return part.nest.tiled_axis >= 0; })) choices.push_back(&LoopChoices::tile);
  if (any([](const Part& part) { return part.nest.form == LoopForm::kScanRows; })) {
    choices.push_back(&LoopChoices::rows);
    if (!sorts(kernel)) choices.push_back(&LoopChoices::piece);
  }
  if (elements < (int64_t{1} << 22)) choices.push_back(&LoopChoices::share);
  return choices;
}

}  // namespace kw::cpu
