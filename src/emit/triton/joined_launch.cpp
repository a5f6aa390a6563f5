#include "emit/triton/joined_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/python_text.hpp"
#include "emit/triton/kernel_printer.hpp"
#include "emit/triton/refused_indices.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using kernel_ir::Kernel;

namespace {

JoinedLaunch of_steps(const KernelStep& step, const KernelStep& last) {
  JoinedLaunch joined{step.kernel, last.kernel, {}, ""};
  const auto offset = [](const KernelStep& one, size_t at) { return at < one.offsets.size() ? one.offsets[at] : 0; };
  for (size_t at = 0; at < last.tensors.size(); ++at) {
    joined.shared.push_back(-1);
    for (size_t other = 0; other < step.tensors.size(); ++other)
      if (step.tensors[other] == last.tensors[at] && offset(step, other) == offset(last, at))
        joined.shared.back() = static_cast<int>(other);
  }
  return joined;
}

// "sum_partial_kernel_2" → "sum_in_one_kernel_2"
std::string name_of(const Program& program, const JoinedLaunch& joined) {
  std::string name = program.kernels[joined.first].name;
  if (const size_t at = name.rfind("_partial_kernel"); at != std::string::npos)
    return name.replace(at, 15, "_in_one_kernel");
  return name + "_and_last";
}

std::string last_name(const std::string& name) { return "last_" + name; }

}  // namespace

std::vector<JoinedLaunch> joined_launches(const Program& program) {
  std::vector<JoinedLaunch> all;
  std::set<std::string> taken;
  for (const Kernel& kernel : program.kernels) taken.insert(kernel.name);
  for (size_t index = 1; index < program.steps.size(); ++index) {
    const auto* last = std::get_if<KernelStep>(&program.steps[index]);
    if (!last || !last->by_last) continue;
    const auto* step = std::get_if<KernelStep>(&program.steps[index - 1]);
    KW_ASSERT(step, "a kernel that the last program of no launch runs");
    JoinedLaunch joined = of_steps(*step, *last);
    if (std::any_of(all.begin(), all.end(), [&](const JoinedLaunch& one) { return one.joins(joined); })) continue;
    const std::string wanted = joined.name = name_of(program, joined);
    for (int count = 2; !taken.insert(joined.name).second; ++count) joined.name = wanted + "_" + std::to_string(count);
    all.push_back(std::move(joined));
  }
  return all;
}

const JoinedLaunch& joined_launch(const std::vector<JoinedLaunch>& all, const KernelStep& step,
                                  const KernelStep& last) {
  const JoinedLaunch wanted = of_steps(step, last);
  const auto found = std::find_if(all.begin(), all.end(), [&](const JoinedLaunch& one) { return one.joins(wanted); });
  KW_ASSERT(found != all.end(), "two kernels that no launch joins");
  return *found;
}

std::vector<JoinedParameter> joined_pointers(const Program& program, const JoinedLaunch& joined) {
  std::vector<JoinedParameter> result;
  std::set<std::string> taken;
  for (const kernel_ir::Buffer& buffer : program.kernels[joined.first].buffers) {
    result.push_back({buffer.name, &buffer});
    taken.insert(buffer.name);
  }
  const auto& buffers = program.kernels[joined.last].buffers;
  for (size_t at = 0; at < buffers.size(); ++at)
    if (joined.shared[at] < 0)
      result.push_back(
          {taken.contains(buffers[at].name) ? last_name(buffers[at].name) : buffers[at].name, &buffers[at]});
  return result;
}

std::vector<JoinedConstant> joined_constants(const Program& program, const JoinedLaunch& joined) {
  std::vector<JoinedConstant> result;
  for (const BlockConstant& constant : block_constants(program.kernels[joined.first]))
    result.push_back({constant.name, constant.value});
  for (const BlockConstant& constant : block_constants(program.kernels[joined.last]))
    result.push_back({"LAST_" + constant.name, constant.value});
  return result;
}

std::string joined_function(const Program& program, const JoinedLaunch& joined) {
  const Kernel &first = program.kernels[joined.first], &last = program.kernels[joined.last];
  const std::vector<JoinedParameter> pointers = joined_pointers(program, joined);
  std::vector<std::string> parameters, of_first, of_last;
  for (const JoinedParameter& pointer : pointers) parameters.push_back(pointer.name + "_ptr");
  for (size_t at = 0; at < first.buffers.size(); ++at) of_first.push_back(parameters[at]);
  size_t next = first.buffers.size();
  for (const int shared : joined.shared) of_last.push_back(shared < 0 ? parameters[next++] : parameters[shared]);
  KW_ASSERT(sizes_held_against(last).empty(), "what combines parts looks nothing up");
  if (!sizes_held_against(first).empty()) {
    parameters.push_back(kRefusedPointer);
    of_first.push_back(kRefusedPointer);
  }
  parameters.push_back(kEndedPointer);
  for (const JoinedConstant& constant : joined_constants(program, joined))
    parameters.push_back(constant.name + ": tl.constexpr");
  for (const BlockConstant& constant : block_constants(first)) of_first.push_back(constant.name);
  for (const BlockConstant& constant : block_constants(last)) of_last.push_back("LAST_" + constant.name);
  std::string out = "@triton.jit\n" + python::wrapped_call(fmt::format("def {}(", joined.name), parameters, "):") +
                    "\n";
  out += fmt::format("    \"\"\"{}, and what its last program to end makes of them: {}.\"\"\"\n", first.name,
                     last.name);
  out += python::indent(python::wrapped_call(first.name + "(", of_first, ")"), 1);
  out += "    tl.debug_barrier()\n";
  out += fmt::format("    if tl.atomic_add({}, 1, sem=\"acq_rel\") == {}:\n", kEndedPointer, program_count(first) - 1);
  out += fmt::format("        tl.store({}, 0)\n", kEndedPointer);
  out += python::indent(python::wrapped_call(last.name + "(", of_last, ")"), 2);
  return out;
}

}  // namespace kw::triton
