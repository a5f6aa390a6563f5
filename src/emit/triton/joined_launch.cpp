#include "emit/triton/joined_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "emit/python_text.hpp"
#include "emit/triton/helpers.hpp"
#include "emit/triton/refused_indices.hpp"
#include "emit/triton/tile_names.hpp"
#include "emit/triton/tile_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

namespace {

int64_t offset_of(const std::vector<int64_t>& offsets, size_t at) { return at < offsets.size() ? offsets[at] : 0; }

JoinedLaunch of_steps(const TileStep& step, const TileStep& last) {
  JoinedLaunch joined{step.program, last.program, {}, ""};
  for (size_t at = 0; at < last.tensors.size(); ++at) {
    joined.shared.push_back(-1);
    for (size_t other = 0; other < step.tensors.size(); ++other)
      if (step.tensors[other] == last.tensors[at] && offset_of(step.offsets, other) == offset_of(last.offsets, at))
        joined.shared.back() = static_cast<int>(other);
  }
  return joined;
}

// One of the two: what the joined function has to know of it.
struct Half {
  std::string name;
  std::vector<JoinedParameter> pointers;
  std::vector<JoinedConstant> constants;
  bool looks_up = false;
  int64_t programs = 1;
};

Half half_of(const Program& program, int index) {
  const tile::Program tiles = with_python_names(program.tiles[index]);
  const std::vector<int64_t> grid = grid_of(tiles);
  std::vector<JoinedConstant> constants;
  if (converts_float8(tiles)) constants.push_back({kHardwareFloat8Constant, 1});
  return {tiles.name, pointers_of(tiles), std::move(constants), !sizes_held_against(tiles).empty(),
          std::accumulate(grid.begin(), grid.end(), int64_t{1}, std::multiplies<>())};
}

// "sum_partial_kernel_2" → "sum_in_one_kernel_2"
std::string name_of(const Program& program, const JoinedLaunch& joined) {
  std::string name = half_of(program, joined.first).name;
  if (const size_t at = name.rfind("_partial_kernel"); at != std::string::npos)
    return name.replace(at, 15, "_in_one_kernel");
  return name + "_and_last";
}

}  // namespace

std::vector<JoinedParameter> pointers_of(const tile::Program& tiles) {
  std::vector<JoinedParameter> pointers;
  for (const tile::Buffer& buffer : tiles.buffers)
    pointers.push_back({buffer.name, buffer.dtype, buffer.alignment % 16 == 0});
  return pointers;
}

std::vector<JoinedLaunch> joined_launches(const Program& program) {
  std::vector<JoinedLaunch> all;
  std::set<std::string> taken;
  for (const tile::Program& tiles : program.tiles) taken.insert(tiles.name);
  const auto add = [&](JoinedLaunch joined) {
    if (std::any_of(all.begin(), all.end(), [&](const JoinedLaunch& one) { return one.joins(joined); })) return;
    const std::string wanted = joined.name = name_of(program, joined);
    for (int count = 2; !taken.insert(joined.name).second; ++count) joined.name = wanted + "_" + std::to_string(count);
    all.push_back(std::move(joined));
  };
  for (size_t index = 1; index < program.steps.size(); ++index) {
    if (!is_by_last(program.steps[index])) continue;
    const auto* before = std::get_if<TileStep>(&program.steps[index - 1]);
    KW_ASSERT(before, "a program that the last block of no launch runs");
    add(of_steps(*before, std::get<TileStep>(program.steps[index])));
  }
  return all;
}

const JoinedLaunch& joined_launch(const std::vector<JoinedLaunch>& all, const TileStep& step, const TileStep& last) {
  const JoinedLaunch wanted = of_steps(step, last);
  const auto found = std::find_if(all.begin(), all.end(), [&](const JoinedLaunch& one) { return one.joins(wanted); });
  KW_ASSERT(found != all.end(), "two programs that no launch joins");
  return *found;
}

std::vector<JoinedParameter> joined_pointers(const Program& program, const JoinedLaunch& joined) {
  std::vector<JoinedParameter> result = half_of(program, joined.first).pointers;
  std::set<std::string> taken;
  for (const JoinedParameter& pointer : result) taken.insert(pointer.name);
  const std::vector<JoinedParameter> of_last = half_of(program, joined.last).pointers;
  for (size_t at = 0; at < of_last.size(); ++at) {
    if (joined.shared[at] >= 0) continue;
    result.push_back(of_last[at]);
    if (taken.contains(of_last[at].name)) result.back().name = "last_" + of_last[at].name;
  }
  return result;
}

std::vector<JoinedConstant> joined_constants(const Program& program, const JoinedLaunch& joined) {
  std::vector<JoinedConstant> result = half_of(program, joined.first).constants;
  for (const JoinedConstant& constant : half_of(program, joined.last).constants)
    result.push_back({"LAST_" + constant.name, constant.value});
  return result;
}

std::string joined_function(const Program& program, const JoinedLaunch& joined) {
  const Half first = half_of(program, joined.first), last = half_of(program, joined.last);
  std::vector<std::string> parameters, of_first, of_last;
  for (const JoinedParameter& pointer : joined_pointers(program, joined)) parameters.push_back(pointer.name);
  for (size_t at = 0; at < first.pointers.size(); ++at) of_first.push_back(parameters[at]);
  size_t next = first.pointers.size();
  for (const int shared : joined.shared) of_last.push_back(shared < 0 ? parameters[next++] : parameters[shared]);
  KW_ASSERT(!last.looks_up, "what combines parts looks nothing up");
  if (first.looks_up) {
    parameters.push_back(kRefusedPointer);
    of_first.push_back(kRefusedPointer);
  }
  parameters.push_back(kEndedPointer);
  for (const JoinedConstant& constant : joined_constants(program, joined))
    parameters.push_back(constant.name + ": tl.constexpr");
  for (const JoinedConstant& constant : first.constants) of_first.push_back(constant.name);
  for (const JoinedConstant& constant : last.constants) of_last.push_back("LAST_" + constant.name);
  std::string out = "@triton.jit\n" + python::wrapped_call(fmt::format("def {}(", joined.name), parameters, "):") +
                    "\n";
  out += fmt::format("    \"\"\"{}, and what its last program to end makes of them: {}.\"\"\"\n", first.name,
                     last.name);
  out += python::indent(python::wrapped_call(first.name + "(", of_first, ")"), 1);
  out += "    tl.debug_barrier()\n";
  out += fmt::format("    if tl.atomic_add({}, 1, sem=\"acq_rel\") == {}:\n", kEndedPointer, first.programs - 1);
  out += fmt::format("        tl.store({}, 0)\n", kEndedPointer);
  out += python::indent(python::wrapped_call(last.name + "(", of_last, ")"), 2);
  return out;
}

}  // namespace kw::triton
