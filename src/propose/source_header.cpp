#include "propose/source_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "emit/target_printer.hpp"
#include "plan/cost.hpp"
#include "plan/estimate.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw {
namespace {

constexpr size_t kMostGroups = 20;
constexpr size_t kColumns = 116;

// What one group's launches are.
struct GroupKernels {
  std::vector<std::string> functions;  // each once
  double seconds = 0;                  // expected, without the launches
  int halves = 0;                      // products of 16-bit numbers that make one of numbers in single precision
};

std::string counted(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// By how many products of 16-bit numbers the kernel makes one: 0 where it has none, or makes none of them so.
int narrow_products(const lower::Source& source) {
  for (const kernel::Expr& expr : source.kernel.exprs) {
    if (expr.kind != kernel::ExprKind::kDot) continue;
    if (source.schedule.scheme == lower::Scheme::kFp16x3) return 3;
    if (is_narrow_float(source.kernel.exprs[expr.operands[0]].dtype)) return 1;
  }
  return 0;
}

bool reads_narrow_floats(const Graph& graph, const GroupSchedule& group) {
  bool reads = false;
  for (const NodeId node : group.nodes)
    for_each_operand(graph.nodes[node], [&](ValueId value) { reads |= is_narrow_float(graph.type(value).dtype); });
  return reads;
}

// The schedule's groups that have kernels, in order.
std::vector<size_t> groups_with_kernels(const Program& program) {
  std::set<size_t> groups;
  for (const Step& step : program.steps)
    if (const auto* tiles = std::get_if<TileStep>(&step)) groups.insert(static_cast<size_t>(tiles->group));
  return {groups.begin(), groups.end()};
}

std::map<size_t, GroupKernels> kernels_of(const std::vector<size_t>& shown, const Compiled& compiled) {
  const std::unique_ptr<TargetPrinter> printer = target_of(compiled.device).printer();
  const Program& program = compiled.program;
  std::map<size_t, GroupKernels> groups;
  for (const size_t index : shown) groups[index];
  for (size_t index = 0; index < program.steps.size(); ++index) {
    const auto* step = std::get_if<TileStep>(&program.steps[index]);
    const auto place = step ? groups.find(static_cast<size_t>(step->group)) : groups.end();
    if (place == groups.end()) continue;
    GroupKernels& group = place->second;
    const double times = step->repetition ? static_cast<double>(step->repetition->count) : 1;
    group.seconds += times * seconds_of(program.tiles[step->program], compiled.device);
    if (const auto& source = program.sources[step->program]) {
      group.halves = std::max(group.halves, narrow_products(*source));
    }
    if (step->by_last) continue;
    const bool joins = index + 1 < program.steps.size() && is_by_last(program.steps[index + 1]);
    const auto* next = joins ? std::get_if<TileStep>(&program.steps[index + 1]) : nullptr;
    const std::string function = printer->function(program, *step, next);
    if (std::find(group.functions.begin(), group.functions.end(), function) == group.functions.end())
      group.functions.push_back(function);
  }
  return groups;
}

// The words in lines of at most kColumns, all but the first indented by four.
std::string wrapped(const std::vector<std::string>& words) {
  std::string text, line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = "   ";
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line + "\n";
}

std::string products_text(const Graph& graph, const GroupSchedule& schedule, int halves) {
  if (halves == 0 || reads_narrow_floats(graph, schedule)) return "";
  return halves == 3 ? "; products of f32 by three of halves" : "; products of f32 by one of halves, for TF32";
}

std::string group_lines(const Compiled& compiled, const GroupSchedule& schedule, const GroupKernels& group,
                        const Cost& cost) {
  std::vector<std::string> words;
  for (const std::string& function : group.functions)
    words.push_back((words.empty() ? "  " : "") + function + (function == group.functions.back() ? ":" : ","));
  words.push_back(schedule.scheduler);
  for (const auto& [name, value] : schedule.parameters) words.push_back(fmt::format("{}={}", name, value));
  std::string text = wrapped(words);
  DeviceDescription rates = compiled.device;
  if (group.halves > 0 && rates.half_flops > 0) rates.fp32_flops = rates.half_flops / group.halves;
  const double floor = roofline_seconds(cost, rates);
  if (group.seconds > 0)
    text += fmt::format("    {:.3g} ms expected, {:.0f} % of the roofline{}\n", group.seconds * 1e3,
                        100 * std::min(1.0, floor / group.seconds),
                        products_text(compiled.graph, schedule, group.halves));
  return text;
}

}  // namespace

std::string source_header(const Compiled& compiled, const CompileOptions& options) {
  const std::string from = options.problem_name.empty() ? "module " + compiled.graph.name : options.problem_name;
  std::string text = fmt::format("Made by Kernelwright {} from {}.\n", KW_VERSION, from);
  text += counted(compiled.kernels.size(), "kernel") + ", " +
          counted(static_cast<size_t>(compiled.library_calls), "library call");
  if (!compiled.library_ops.empty()) text += " (" + join(compiled.library_ops, ", ") + ")";
  text += ".\n";
  std::vector<size_t> shown = groups_with_kernels(compiled.program);
  if (shown.empty()) return text;
  const size_t others = shown.size() - std::min(shown.size(), kMostGroups);
  shown.resize(shown.size() - others);

  Schedule schedule{.target = compiled.schedule.target, .groups = {}, .graphs = false};
  for (const size_t group : shown) schedule.groups.push_back(compiled.schedule.groups[group]);
  const std::vector<Cost> costs = group_costs({compiled.graph, target_of(compiled.device).graph_forms()}, schedule);
  const std::map<size_t, GroupKernels> kernels = kernels_of(shown, compiled);
  text += fmt::format("Scheduled for {}:\n", compiled.device.name);
  for (size_t at = 0; at < shown.size(); ++at)
    text += group_lines(compiled, schedule.groups[at], kernels.at(shown[at]), costs[at]);
  if (others > 0) text += fmt::format("  and {}\n", counted(others, "more group"));
  return text;
}

}  // namespace kw
