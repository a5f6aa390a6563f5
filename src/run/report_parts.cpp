#include "run/report_parts.hpp"

#include "run/worth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "ir/op_registry.hpp"
#include "measure/roofline.hpp"
#include "measure/statistics.hpp"
#include "plan/rounded_values.hpp"
#include "plan/traffic.hpp"
#include "support/json_fields.hpp"
#include "target/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// Largest error over its bound: 1 is the bound itself. None where the bound is zero or an error is no number.
std::optional<double> share_of_bound(const OutputVerdict& output) {
  double share = 0;
  for (const auto& [error, bound] :
       {std::pair(output.ours.norm, output.bound.norm), std::pair(output.ours.max, output.bound.max)}) {
    if (error == 0) continue;
    if (!(bound > 0) || !(error < 1e300)) return std::nullopt;
    share = std::max(share, error / bound);
  }
  return share;
}

bool is_product_in_tf32(const Graph& graph, const Node& node) {
  return class_of(node.op) == OpClass::kContraction && plan::rounds_operands(graph, node) &&
         graph.type(node.results.front()).device != "cpu";
}

// What cannot be avoided: what is read of inputs, read once; what is made of outputs, written once; the products. What
// is returned as it came, or as a view of that, is not moved at all.
Work work_of(const Graph& graph) {
  Work work;
  const plan::GraphFacts facts(graph, {});
  std::vector<NodeId> nodes(graph.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  std::set<ValueId> made;
  for (const GraphOutput& output : graph.outputs)
    if (output.value != kNoValue && graph.values[facts.roots[output.value]].producer != kNoNode)
      made.insert(output.value);
  const plan::MovedBytes moved = plan::moved_bytes(facts, nodes, {made.begin(), made.end()});
  work.read_bytes = moved.read;
  work.write_bytes = moved.written;
  double most = 0;
  for (const Node& node : graph.nodes) {
    const double amount = flops(graph, node);
    work.flops += amount;
    if (amount <= most || node.results.empty() || node.results.front() == kNoValue) continue;
    most = amount;
    switch (graph.type(node.results.front()).dtype) {
      case DType::f16: work.precision = "fp16"; break;
      case DType::bf16: work.precision = "bf16"; break;
      case DType::f64: work.precision = "fp64"; break;
      default: work.precision = is_product_in_tf32(graph, node) ? "tf32" : "fp32"; break;
    }
  }
  return work;
}

}  // namespace

void add_judgement(Report& report, const Judgement& judgement) {
  const Verdict& verdict = judgement.verdict;
  report.verdict = verdict.pass ? "pass" : "fail";
  report.code = verdict.code;
  report.reason = verdict.reason;
  report.policy = name_of(verdict.policy);
  report.errors.emplace();
  for (const OutputVerdict& output : verdict.errors) report.errors->push_back({output, share_of_bound(output)});
  report.findings = Findings{.reference = verdict.reference,
                             .reference_note = verdict.reference_note,
                             .checks = verdict.checks,
                             .vacuous = verdict.vacuous,
                             .skipped = verdict.skipped,
                             .kernelbench_gate = verdict.kernelbench_gate,
                             .detail = verdict.detail};
  if (!judgement.figures) {
    report.failure = Failure{judgement.where, judgement.source, judgement.hint};
    return;
  }
  const Figures& figures = *judgement.figures;
  report.failure.reset();
  if (figures.runs_original) report.runs_original = *figures.runs_original;
  report.draws = Draws{.seed = figures.seed, .count = static_cast<int64_t>(figures.draws.size())};
  if (figures.missing_protections) report.missing_protections = figures.missing_protections;
  for (const VacuousOutput& output : verdict.vacuous)
    report.add_note("vacuous: " + output.output + " could not be told from " + output.trivial +
                    ", so passing says little");
  if (!verdict.reference_note.empty())
    report.add_note("reference " + verdict.reference + ": " + verdict.reference_note);
}

void add_measurement(Report& report, const TimingReply& reply) {
  Timing& timing = report.timing;
  timing = {};
  static_cast<TimingFacts&>(timing) = reply;
  timing.is_taken = true;
  timing.measured = measurement_of(reply);
  if (reply.untold_ms > 0)
    report.add_note(fmt::format(
        "the candidate's clock kept {:.3g} ms of each call to itself; by the judge's clock they are in its time",
        reply.untold_ms));
  if (reply.runs_original) report.runs_original = *reply.runs_original;
  report.worth.beside_eager = beside_eager(timing.measured);
  if (reply.recheck_fault)
    report.fail("recheck", "After timing, the results were no longer right: " + *reply.recheck_fault);
  if (!reply.timed) return;
  timing.outputs_judged = static_cast<int64_t>(reply.timed->draws.size());
  const Verdict timed = judge(*reply.timed, report.policy.empty() ? Policy::kReference : policy_of(report.policy));
  if (timed.pass || timed.code == "nothing-compared") return;  // memory did not allow keeping any
  report.fail("timed-" + timed.code, "The result of a timed call was not right. " + timed.reason);
}

bool add_roofline(Report& report, const Graph& graph, const Ceilings& ceilings, double cache_bytes) {
  Timing& timing = report.timing;
  timing.is_held_to_roofline = true;
  timing.roofline.reset();
  const auto& ours = timing.measured.time_ms(Contender::kOurs);
  const auto& time = ours ? ours : timing.measured.time_ms(Contender::kEager);
  if (!time) return true;
  const Work work = work_of(graph);
  const Roofline line = roofline(work, ceilings, time->value);
  timing.roofline = RooflineShare{line, work.read_bytes + work.write_bytes, work.flops, ceilings.name};
  const auto doubt = ours ? too_fast_to_be_true(work, ceilings, cache_bytes, ours->value) : std::nullopt;
  if (doubt) report.fail("too-fast", *doubt);
  return !doubt && line.share <= 1;
}

void add_kernels(Report& report, const Compiled& compiled) {
  const bool has_graphs = target_of(compiled.device).has_cuda_graphs();
  report.kernels = Kernels{.names = compiled.kernels,
                           .library_calls = compiled.library_calls,
                           .library_ops = compiled.library_ops,
                           .cuda_graph = has_graphs ? std::optional(compiled.program.graphs) : std::nullopt,
                           .kept_weight_bytes = compiled.kept_weight_bytes,
                           .schedule = whole_schedule(compiled)};
  for (const std::string& why : compiled.left) report.add_note(why);
  if (has_graphs && !compiled.why_no_graph.empty() && report.graphs == "on")
    report.add_note("no CUDA graph was made: " + compiled.why_no_graph);
}

MachineCode machine_code_of(const Json& reply, int sm) {
  MachineCode code{.sm = sm, .kernels = 0, .good = 0, .each = compiled_kernels_from_json(rows_of(reply, "kernels"))};
  code.kernels = static_cast<int64_t>(code.each.size());
  code.good = std::ranges::count_if(code.each, [](const CompiledKernel& kernel) { return kernel.ok; });
  return code;
}

}  // namespace kw
