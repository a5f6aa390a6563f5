#include "run/report_parts.hpp"

#include "run/worth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/op_registry.hpp"
#include "measure/roofline.hpp"
#include "measure/statistics.hpp"
#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// Largest error over its bound: 1 is the bound itself. Null where the bound is zero or an error is no number.
Json share_of_bound(const OutputVerdict& output) {
  double share = 0;
  for (const auto& [error, bound] :
       {std::pair(output.ours.norm, output.bound.norm), std::pair(output.ours.max, output.bound.max)}) {
    if (error == 0) continue;
    if (!(bound > 0) || !(error < 1e300)) return nullptr;
    share = std::max(share, error / bound);
  }
  return share;
}

// The machine's figures as they came, with all reasons.
Json noise_json(const Json& machine, const std::vector<std::string>& reasons) {
  Json noise = machine;
  noise["reasons"] = reasons;
  noise["noisy"] = !reasons.empty();
  return noise;
}

// What cannot be avoided: each input that is read, read once; each output written once; the products.
Work work_of(const Graph& graph) {
  Work work;
  const auto users = graph.users();
  const std::vector<bool> returned = graph.is_output();
  for (const GraphInput& input : graph.inputs)
    if (!users[static_cast<size_t>(input.value)].empty() || returned[static_cast<size_t>(input.value)])
      work.read_bytes += static_cast<double>(graph.type(input.value).bytes());
  std::set<ValueId> written;
  for (const GraphOutput& output : graph.outputs)
    if (output.value != kNoValue && written.insert(output.value).second)
      work.write_bytes += static_cast<double>(graph.type(output.value).bytes());
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
      default: work.precision = "fp32"; break;
    }
  }
  return work;
}

void fail(Json& report, const std::string& code, const std::string& reason) {
  report["verdict"] = "fail";
  report["code"] = code;
  report["reason"] = reason;
}

// Why a file of the compiler's ran the original module on the problem's own inputs, where it did.
void note_original(Json& report, const std::optional<std::string>& why) {
  if (why) report["runs_original"] = *why;
}

}  // namespace

Json sandbox_json(const std::vector<std::string>& missing) {
  const bool has_namespaces = std::none_of(missing.begin(), missing.end(), [](const std::string& what) {
    return what.find("namespaces") != std::string::npos;
  });
  return {{"kind", has_namespaces ? "namespaces" : "none"}, {"missing", missing}};
}

void add_judgement(Json& report, const Judgement& judgement) {
  const Verdict& verdict = judgement.verdict;
  Json fields = to_json(verdict);
  for (size_t i = 0; i < verdict.errors.size(); ++i)
    fields["errors"][i]["of_bound"] = share_of_bound(verdict.errors[i]);
  report.update(fields);
  if (!judgement.figures) {
    report["where"] = judgement.where;
    report["source"] = judgement.source;
    report["hint"] = judgement.hint;
    return;
  }
  const Figures& figures = *judgement.figures;
  note_original(report, figures.runs_original);
  report["seed"] = figures.seed ? Json(*figures.seed) : Json();
  report["draws"] = figures.draws.size();
  if (figures.missing_protections) report["sandbox"] = sandbox_json(*figures.missing_protections);
  for (const VacuousOutput& output : verdict.vacuous)
    add_note(report,
             "vacuous: " + output.output + " could not be told from " + output.trivial + ", so passing says little");
  if (!verdict.reference_note.empty())
    add_note(report, "reference " + verdict.reference + ": " + verdict.reference_note);
}

void add_measurement(Json& report, const TimingReply& reply) {
  const Measurement made = measurement_of(reply);
  write_times(report, made);
  report["noise"] = noise_json(reply.machine, made.noise);
  if (reply.untold_ms > 0)
    add_note(
        report,
        fmt::format(
            "the candidate's clock kept {:.3g} ms of each call to itself; by the judge's clock they are in its time",
            reply.untold_ms));
  note_original(report, reply.runs_original);
  report["speedup"] = speedups_json(made);
  const auto& over_eager = made.speedup_over(Contender::kEager);
  report["slower_than_eager"] = over_eager ? Json(over_eager->ratio.high < kNotSlower) : Json();
  report["timer"] = reply.timer;
  report["samples"] = made.samples;
  report["share_in_our_kernels"] = reply.share_in_our_kernels;
  report["profile"] = reply.profile;
  report["peak_memory_bytes"] = reply.peak_memory_bytes;
  report["baseline_errors"] = reply.baseline_errors;
  if (reply.recheck_fault)
    fail(report, "recheck", "After timing, the results were no longer right: " + *reply.recheck_fault);
  report["time_with_new_weights_ms"] = reply.new_weights_ms;
  report["timed_outputs_judged"] = 0;
  if (!reply.timed) return;
  report["timed_outputs_judged"] = reply.timed->draws.size();
  const Verdict timed = judge(*reply.timed, policy_of(report.value("policy", "reference")));
  if (timed.pass || timed.code == "nothing-compared") return;  // memory did not allow keeping any
  fail(report, "timed-" + timed.code, "The result of a timed call was not right. " + timed.reason);
}

bool add_roofline(Json& report, const Graph& graph, const Json& ceilings_json, double cache_bytes) {
  report["roofline"] = nullptr;
  const Measurement made = measurement_from_json(report);
  const auto& ours = made.time_ms(Contender::kOurs);
  const auto& time = ours ? ours : made.time_ms(Contender::kEager);
  if (!time || !ceilings_json.is_object()) return true;
  const Work work = work_of(graph);
  const Ceilings ceilings = ceilings_from_json(ceilings_json);
  const Roofline line = roofline(work, ceilings, time->value);
  report["roofline"] = {{"fraction", line.share}, {"floor_ms", line.floor_ms},
                        {"bound", line.limit},    {"bytes", work.read_bytes + work.write_bytes},
                        {"flops", work.flops},    {"device", ceilings.name}};
  const auto doubt = ours ? too_fast_to_be_true(work, ceilings, cache_bytes, ours->value) : std::nullopt;
  if (doubt) fail(report, "too-fast", *doubt);
  return !doubt && line.share <= 1;
}

void add_kernels(Json& report, const Compiled& compiled) {
  report["kernels"] = compiled.kernels;
  report["library_calls"] = compiled.library_calls;
  report["library_ops"] = compiled.library_ops;
  if (compiled.schedule.target != "triton") return;
  report["cuda_graph"] = compiled.program.graphs;
  if (!compiled.why_no_graph.empty() && report.value("graphs", "") == "on")
    add_note(report, "no CUDA graph was made: " + compiled.why_no_graph);
}

MachineCode add_machine_code(Json& report, const Json& reply, int sm) {
  const Json& kernels = rows_of(reply, "kernels");
  const auto good = std::ranges::count_if(kernels, [](const Json& kernel) { return flag_of(kernel, "ok"); });
  report["compiled"] = {{"sm", sm}, {"kernels", kernels.size()}, {"ok", good}, {"each", kernels}};
  return machine_code_from_json(report["compiled"]);
}

bool passed(const Json& report) { return report.value("verdict", "") == "pass"; }

void add_note(Json& report, const std::string& note) {
  Json& notes = report["notes"];
  if (!notes.is_array()) notes = Json::array();
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

}  // namespace kw
