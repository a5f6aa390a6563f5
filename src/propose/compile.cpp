#include "propose/compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/kept_weights.hpp"
#include "emit/module_writer.hpp"
#include "emit/target_printer.hpp"
#include "ir/op_registry.hpp"
#include "ir/spoken_name.hpp"
#include "plan/cuda_graph.hpp"
#include "plan/kernel_schedules.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "propose/source_header.hpp"
#include "support/error.hpp"
#include "support/progress.hpp"
#include "support/stamp.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw {

namespace {

// Every node that is in a group, each once, as a library call.
Schedule library_schedule(const Schedule& schedule) {
  Schedule out{.target = schedule.target, .groups = {}, .graphs = false};
  std::set<NodeId> nodes;
  for (const GroupSchedule& group : schedule.groups) nodes.insert(group.nodes.begin(), group.nodes.end());
  for (const NodeId node : nodes) out.groups.push_back({.nodes = {node}, .scheduler = "extern", .parameters = {}});
  return out;
}

void separate_groups(Graph& graph) {
  std::set<NodeId> nodes;
  for (const auto& group : graph.groups) nodes.insert(group.begin(), group.end());
  graph.groups.clear();
  for (const NodeId node : nodes) graph.groups.push_back({node});
}

// Writes the candidate's file.
void write_source(Compiled& compiled, const CompileOptions& options) {
  const std::unique_ptr<TargetPrinter> printer = target_of(compiled.device).printer();
  if (const auto kept = kept_weights(compiled.graph, compiled.program, *printer))
    compiled.kept_weight_bytes = kept->bytes;
  compiled.source = stamped(
      write_module(compiled.graph, compiled.program, *printer,
                   {.header = source_header(compiled, options), .problem_source = options.problem_source}));
}

void count_steps(Compiled& compiled) {
  for (const tile::Program& tiles : compiled.program.tiles) compiled.kernels.push_back(tiles.name);
  for (std::string& name : target_of(compiled.device).printer()->kernels_by_hand(compiled.program))
    compiled.kernels.push_back(std::move(name));
  for (const Step& step : compiled.program.steps)
    if (const auto* call = std::get_if<ExternStep>(&step); call && call->mask_vector == 0) {
      ++compiled.library_calls;
      std::string op = compiled.graph.nodes[static_cast<size_t>(call->node)].op;
      op = op.substr(0, op.rfind('.'));
      if (std::find(compiled.library_ops.begin(), compiled.library_ops.end(), op) == compiled.library_ops.end())
        compiled.library_ops.push_back(op);
    }
}

// By the default schedule, or, where lowering refuses what it proposes, without the groups that are refused.
void lower_default(Compiled& compiled) {
  try {
    compiled.program = make_program(compiled.graph, compiled.schedule, compiled.device);
    return;
  } catch (const Error& error) {
    std::vector<RefusedGroup> refused;
    compiled.schedule = without_refused(compiled.graph, std::move(compiled.schedule), compiled.device, refused);
    if (refused.empty()) throw;
    for (const RefusedGroup& group : refused) {
      const Node& first = compiled.graph.nodes[static_cast<size_t>(group.nodes.front())];
      compiled.left.push_back(fmt::format("the library computes {}{}: {}", spoken_name(base_name(first.op)),
                                          group.nodes.size() > 1 ? " and what was to be fused with it" : "",
                                          group.why));
    }
  }
  compiled.program = make_program(compiled.graph, compiled.schedule, compiled.device);
}

bool may_have_graphs(const CompileOptions& options) {
  return options.graphs != GraphUse::kOff && target_of(options.device).has_cuda_graphs();
}

void decide_graphs(Compiled& compiled, const CompileOptions& options) {
  if (!may_have_graphs(options) || options.caution >= Caution::kNoGraphs) return;
  compiled.why_no_graph = why_not_captured(compiled.graph, compiled.program);
  if (!compiled.why_no_graph.empty()) return;
  compiled.schedule.graphs = compiled.program.graphs = options.graphs == GraphUse::kOn ||
                                                       graph_pays(launch_costs(compiled.graph, compiled.program,
                                                                               compiled.device));
}

}  // namespace

GraphUse graph_use_of(const std::string& name) {
  if (name == "off") return GraphUse::kOff;
  if (name == "on") return GraphUse::kOn;
  if (name == "auto") return GraphUse::kAuto;
  throw Error(ErrorKind::kUser, "graphs cannot be \"" + name + "\".", "Use auto, on or off.");
}

std::string name_of(Caution caution) {
  switch (caution) {
    case Caution::kNone: return "fused";
    case Caution::kNoGraphs: return "no-graphs";
    case Caution::kExactProducts: return "exact-products";
    case Caution::kLibraryProducts: return "library-products";
    case Caution::kLibraryRandom: return "library-random";
    case Caution::kUnfused: return "unfused";
    case Caution::kLibrary: return "library";
  }
  return "";
}

Compiled with_schedule(const Compiled& base, Schedule schedule, const CompileOptions& options) {
  Compiled compiled;
  compiled.graph = base.graph;
  compiled.passes = base.passes;
  compiled.schedule = std::move(schedule);
  compiled.device = options.device;
  compiled.program = make_program(compiled.graph, compiled.schedule, compiled.device);
  count_steps(compiled);
  write_source(compiled, options);
  return compiled;
}

std::string whole_schedule(const Compiled& compiled) {
  return schedule_to_json(with_kernel_schedules(compiled.schedule, compiled.program));
}

std::vector<size_t> groups_at_work(const Compiled& compiled, const std::set<std::string>& functions) {
  const std::unique_ptr<TargetPrinter> printer = target_of(compiled.device).printer();
  std::set<size_t> groups;
  const auto& steps = compiled.program.steps;
  for (size_t index = 0; index < steps.size(); ++index) {
    if (is_by_last(steps[index])) continue;
    const Step* next = index + 1 < steps.size() && is_by_last(steps[index + 1]) ? &steps[index + 1] : nullptr;
    const auto* tiles = std::get_if<TileStep>(&steps[index]);
    if (!tiles || tile::stores_for_rare_inputs(compiled.program.tiles[static_cast<size_t>(tiles->program)])) continue;
    if (functions.contains(printer->function(compiled.program, *tiles, next ? std::get_if<TileStep>(next) : nullptr)))
      groups.insert(static_cast<size_t>(tiles->group));
  }
  return {groups.begin(), groups.end()};
}

Compiled compile(Graph graph, const CompileOptions& options, CompileStage last) {
  const Target& target = target_of(options.device);
  Compiled compiled;
  compiled.device = options.device;
  double began = seconds_now();
  const auto lap = [&](const char* stage) {
    compiled.seconds.emplace_back(stage, seconds_now() - began);
    began = seconds_now();
  };
  PassOptions passes = options.passes;
  if (options.caution >= Caution::kLibraryRandom) passes.disabled.emplace_back("random_masks");
  if (options.caution >= Caution::kExactProducts) graph.tf32_convolutions = graph.tf32_products = false;
  // A norm that nothing is fused with is one operator; and what the algebra makes of infinities may be what failed.
  if (options.caution >= Caution::kUnfused)
    passes.disabled.insert(passes.disabled.end(), {"statistics", "linear_sums", "convolution_sums", "position_means",
                                                   "patches", "product_chains", "self_differences"});
  // The library's attention may be slower with shared heads.
  if (options.caution == Caution::kLibrary) passes.disabled.emplace_back("shared_heads");
  compiled.passes = run_passes(graph, target.graph_forms(), passes);
  if (options.caution == Caution::kUnfused || options.caution == Caution::kLibrary) separate_groups(graph);
  compiled.graph = std::move(graph);
  lap("passes");
  if (last == CompileStage::kPasses) return compiled;

  compiled.schedule = default_schedule(compiled.graph, compiled.device);
  if (options.caution <= Caution::kLibraryRandom && options.caution != Caution::kLibraryProducts)
    target.join_groups(compiled.graph, compiled.schedule, compiled.device);
  if (options.caution == Caution::kLibrary) compiled.schedule = library_schedule(compiled.schedule);
  lap("schedule");
  if (last == CompileStage::kSchedule && !may_have_graphs(options)) return compiled;

  lower_default(compiled);
  decide_graphs(compiled, options);
  if (last == CompileStage::kSchedule) return compiled;
  count_steps(compiled);
  lap("lower");
  if (last == CompileStage::kKernels) return compiled;

  write_source(compiled, options);
  lap("emit");
  return compiled;
}

}  // namespace kw
