#include "emit/triton/last_block_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "emit/python_text.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/runtime/triton/refused_indices.hpp"
#include "emit/triton/tile_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

namespace {

int64_t offset_of(const std::vector<int64_t>& offsets, size_t at) { return at < offsets.size() ? offsets[at] : 0; }

LastBlockReduction of_steps(const TileStep& step, const TileStep& last) {
  LastBlockReduction reduction{step.program, last.program, {}, ""};
  for (size_t at = 0; at < last.tensors.size(); ++at) {
    reduction.shared.push_back(-1);
    for (size_t other = 0; other < step.tensors.size(); ++other)
      if (step.tensors[other] == last.tensors[at] && offset_of(step.offsets, other) == offset_of(last.offsets, at))
        reduction.shared.back() = static_cast<int>(other);
  }
  return reduction;
}

// One of the two: what the function of both has to know of it.
struct Half {
  std::string name;
  std::vector<PointerParameter> pointers;
  std::vector<ConstantParameter> constants;
  bool looks_up = false;
  int64_t programs = 1;
};

Half half_of(const Program& program, int index) {
  const tile::Program& tiles = program.lowered[index]->program;
  const std::vector<int64_t> grid = grid_of(tiles);
  std::vector<ConstantParameter> constants;
  if (converts_float8(tiles)) constants.push_back({kHardwareFloat8Constant, 1});
  return {tiles.name, pointers_of(tiles), std::move(constants), !sizes_held_against(tiles).empty(),
          std::accumulate(grid.begin(), grid.end(), int64_t{1}, std::multiplies<>())};
}

// "sum_partial_kernel_2" → "sum_in_one_kernel_2"
std::string name_of(const Program& program, const LastBlockReduction& reduction) {
  std::string name = half_of(program, reduction.first).name;
  if (const size_t at = name.rfind("_partial_kernel"); at != std::string::npos)
    return name.replace(at, 15, "_in_one_kernel");
  return name + "_and_last";
}

}  // namespace

std::vector<PointerParameter> pointers_of(const tile::Program& tiles) {
  std::vector<PointerParameter> pointers;
  for (const tile::Buffer& buffer : tiles.buffers)
    pointers.push_back({buffer.name, buffer.dtype, buffer.alignment % 16 == 0});
  return pointers;
}

std::vector<LastBlockReduction> last_block_reductions(const Program& program) {
  std::vector<LastBlockReduction> all;
  std::set<std::string> taken;
  for (const tile::Program& tiles : program.tiles) taken.insert(tiles.name);
  const auto add = [&](LastBlockReduction reduction) {
    if (std::any_of(all.begin(), all.end(), [&](const LastBlockReduction& one) { return one.is_same(reduction); }))
      return;
    const std::string wanted = reduction.name = name_of(program, reduction);
    for (int count = 2; !taken.insert(reduction.name).second; ++count)
      reduction.name = wanted + "_" + std::to_string(count);
    all.push_back(std::move(reduction));
  };
  for (size_t index = 1; index < program.steps.size(); ++index) {
    if (!is_by_last(program.steps[index])) continue;
    const auto* before = std::get_if<TileStep>(&program.steps[index - 1]);
    KW_ASSERT(before, "a program that the last block of no launch runs");
    add(of_steps(*before, std::get<TileStep>(program.steps[index])));
  }
  return all;
}

const LastBlockReduction& last_block_reduction(const std::vector<LastBlockReduction>& all, const TileStep& step,
                                               const TileStep& last) {
  const LastBlockReduction wanted = of_steps(step, last);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const LastBlockReduction& one) { return one.is_same(wanted); });
  KW_ASSERT(found != all.end(), "two programs that are no last-block reduction");
  return *found;
}

std::vector<PointerParameter> pointers_of(const Program& program, const LastBlockReduction& reduction) {
  std::vector<PointerParameter> result = half_of(program, reduction.first).pointers;
  std::set<std::string> taken;
  for (const PointerParameter& pointer : result) taken.insert(pointer.name);
  const std::vector<PointerParameter> of_last = half_of(program, reduction.last).pointers;
  for (size_t at = 0; at < of_last.size(); ++at) {
    if (reduction.shared[at] >= 0) continue;
    result.push_back(of_last[at]);
    if (taken.contains(of_last[at].name)) result.back().name = "last_" + of_last[at].name;
  }
  return result;
}

std::vector<ConstantParameter> constants_of(const Program& program, const LastBlockReduction& reduction) {
  std::vector<ConstantParameter> result = half_of(program, reduction.first).constants;
  for (const ConstantParameter& constant : half_of(program, reduction.last).constants)
    result.push_back({"LAST_" + constant.name, constant.value});
  return result;
}

std::string last_block_function(const Program& program, const LastBlockReduction& reduction) {
  const Half first = half_of(program, reduction.first), last = half_of(program, reduction.last);
  std::vector<std::string> parameters, of_first, of_last;
  for (const PointerParameter& pointer : pointers_of(program, reduction)) parameters.push_back(pointer.name);
  for (size_t at = 0; at < first.pointers.size(); ++at) of_first.push_back(parameters[at]);
  size_t next = first.pointers.size();
  for (const int shared : reduction.shared) of_last.push_back(shared < 0 ? parameters[next++] : parameters[shared]);
  KW_ASSERT(!last.looks_up, "what combines parts looks nothing up");
  if (first.looks_up) {
    parameters.push_back(kRefusedPointer);
    of_first.push_back(kRefusedPointer);
  }
  parameters.push_back(kEndedPointer);
  for (const ConstantParameter& constant : constants_of(program, reduction))
    parameters.push_back(constant.name + ": tl.constexpr");
  for (const ConstantParameter& constant : first.constants) of_first.push_back(constant.name);
  for (const ConstantParameter& constant : last.constants) of_last.push_back("LAST_" + constant.name);
  std::string out = "@triton.jit\n" + python::wrapped_call(fmt::format("def {}(", reduction.name), parameters, "):") +
                    "\n";
  out += "    " +
         python::docstring(
             fmt::format("{}, and what its last program to end makes of them: {}.", first.name, last.name), 4,
             python::kLongestLine) +
         "\n";
  out += python::indent(python::wrapped_call(first.name + "(", of_first, ")"), 1);
  out += "    tl.debug_barrier()\n";
  out += fmt::format("    if tl.atomic_add({}, 1, sem=\"acq_rel\") == {}:\n", kEndedPointer, first.programs - 1);
  out += fmt::format("        tl.store({}, 0)\n", kEndedPointer);
  out += python::indent(python::wrapped_call(last.name + "(", of_last, ")"), 2);
  return out;
}

}  // namespace kw::triton
