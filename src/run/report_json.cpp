#include <nlohmann/json.hpp>

#include "run/report.hpp"
#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

Accuracy accuracy_from_json(const Json& json) {
  Accuracy accuracy;
  accuracy.draws = count_of(json, "draws").value_or(0);
  for (const Json& row : rows_of(json, "errors"))
    accuracy.outputs.push_back({text_of(row, "draw"), text_of(row, "output"), figure_of(row, "of_bound")});
  if (const Json& gate = member(json, "kernelbench_gate"); gate.is_object())
    accuracy.kernelbench_gate = Gate{flag_of(gate, "ok"), figure_of(gate, "atol").value_or(1e-4),
                                     figure_of(gate, "rtol").value_or(1e-4)};
  return accuracy;
}

Worth::BesideEager beside_eager_from_json(const Json& json) {
  if (!json.contains("slower_than_eager")) return Worth::BesideEager::kNotAsked;
  if (!member(json, "slower_than_eager").is_boolean()) return Worth::BesideEager::kNotTimed;
  return flag_of(json, "slower_than_eager") ? Worth::BesideEager::kSlower : Worth::BesideEager::kNotSlower;
}

Worth worth_from_json(const Json& json) {
  Worth worth;
  worth.beside_eager = beside_eager_from_json(json);
  if (member(json, "written").is_boolean()) worth.written = flag_of(json, "written");
  worth.min_speedup = figure_of(json, "min_speedup").value_or(1.0);
  for (const Json& one : rows_of(json, "advice"))
    worth.advice.push_back({text_of(one, "command"), text_of(one, "effect")});
  if (const auto lost = speedup_from_json(member(json, "lost"))) worth.lost = lost->ratio;
  return worth;
}

std::optional<Kernels> kernels_from_json(const Json& json) {
  if (!member(json, "kernels").is_array()) return std::nullopt;
  return Kernels{.count = member(json, "kernels").size(),
                 .library_calls = count_of(json, "library_calls").value_or(0),
                 .library_ops = texts_of(json, "library_ops"),
                 .share = figure_of(json, "share_in_our_kernels"),
                 .cuda_graph = flag_of(json, "cuda_graph")};
}

std::optional<SearchOutcome> search_from_json(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  SearchOutcome search;
  search.speedup = figure_of(json, "speedup");
  search.tried = count_of(json, "tried").value_or(0);
  search.reused = count_of(json, "reused").value_or(0);
  search.exhausted = flag_of(json, "exhausted");
  search.budget_seconds = figure_of(json, "budget_seconds").value_or(0);
  for (const Json& one : rows_of(json, "trials")) {
    const bool measured = text_of(one, "state") == "measured";
    search.trials.push_back({text_of(one, "change"), measured ? figure_of(one, "ratio") : std::nullopt,
                             figure_of(one, "best").value_or(1)});
  }
  return search;
}

Tokens tokens_from_json(const Json& json) {
  return {count_of(json, "prompt"), count_of(json, "completion"), figure_of(json, "per_second")};
}

ProposerOutcome proposer_from_json(const Json& json) {
  return {.proposer = text_of(json, "proposer"),
          .verdict = text_of(json, "verdict"),
          .judged = count_of(json, "judged"),
          .passed = count_of(json, "passed"),
          .answers = count_of(json, "answers"),
          .evaluated = count_of(json, "evaluated"),
          .ms = figure_of(json, "ms"),
          .speedup_over_scheduler = figure_of(json, "speedup_over_scheduler"),
          .cost = figure_of(json, "cost"),
          .seconds = figure_of(json, "seconds"),
          .tokens = tokens_from_json(member(json, "tokens"))};
}

Sampling sampling_from_json(const Json& json) {
  return {.judged = count_of(json, "judged").value_or(0),
          .passed = count_of(json, "passed").value_or(0),
          .passed_at_first = count_of(json, "passed_at_first").value_or(0),
          .pass_at_k = figures_by_number(json, "pass_at_k"),
          .best_at_k = figures_by_number(json, "best_at_k"),
          .codes = counts_of(json, "codes"),
          .repairs = counts_of(json, "repairs_made"),
          .tokens = tokens_from_json(member(json, "tokens")),
          .cost = figure_of(json, "cost"),
          .overhead_ms = figure_of(member(json, "overhead_ms"), "median").value_or(0)};
}

}  // namespace

MachineCode machine_code_from_json(const Json& json) {
  MachineCode code;
  code.kernels = count_of(json, "kernels").value_or(0);
  code.good = count_of(json, "ok").value_or(0);
  for (const Json& kernel : rows_of(json, "each"))
    code.each.push_back({.name = text_of(kernel, "name"),
                         .error = text_of(kernel, "error"),
                         .ok = flag_of(kernel, "ok"),
                         .spills = count_of(kernel, "spills"),
                         .registers = count_of(kernel, "registers")});
  return code;
}

Report report_from_json(const Json& json) {
  Report report;
  report.verdict = text_of(json, "verdict");
  report.code = text_of(json, "code");
  report.reason = text_of(json, "reason");
  report.graphs = text_of(json, "graphs");
  report.accuracy = accuracy_from_json(json);
  report.failure = {text_of(json, "where"), text_of(json, "source"), text_of(json, "detail")};
  report.missing_protections = texts_of(member(json, "sandbox"), "missing");
  report.runs_original = text_of(json, "runs_original");
  report.timing = timing_from_json(json);
  report.worth = worth_from_json(json);
  report.kernels = kernels_from_json(json);
  report.compiled = machine_code_from_json(member(json, "compiled"));
  report.searches = {search_from_json(member(json, "search")), search_from_json(member(json, "rescue")),
                     search_from_json(member(json, "relief")), search_from_json(member(json, "proposed"))};
  for (const Json& one : rows_of(json, "proposers")) report.proposers.push_back(proposer_from_json(one));
  report.winner = text_of(json, "winner");
  report.sampling = sampling_from_json(json);
  const Json& edits = member(json, "edits");
  report.edits = {count_of(edits, "groups").value_or(0), count_of(edits, "evaluations").value_or(0),
                  figure_of(edits, "combinations").value_or(0)};
  report.notes = texts_of(json, "notes");
  if (member(json, "archive_error").is_string()) report.archive_error = text_of(json, "archive_error");
  report.candidate = text_of(json, "candidate");
  report.from_archive = flag_of(json, "from_archive");
  report.created = text_of(json, "created");
  report.seconds = figure_of(member(json, "seconds"), "total");
  return report;
}

DeviceReport device_report_from_json(const Json& json) {
  DeviceReport report;
  report.name = text_of(json, "name");
  report.copy_bytes_per_second = figure_of(json, "copy_bytes_per_second");
  report.read_bytes_per_second = figure_of(json, "read_bytes_per_second");
  report.launch_seconds = figure_of(json, "launch_seconds");
  if (const Json& flops = member(json, "flops"); flops.is_object())
    for (const auto& [dtype, rate] : flops.items())
      if (rate.is_number()) report.flops.emplace_back(dtype, rate.get<double>());
  const Json& calibration = member(json, "calibration");
  report.calibration = {
      figure_of(calibration, "strided_bytes_per_second"), figure_of(calibration, "gather_bytes_per_second"),
      figure_of(calibration, "cache_bytes_per_second"), figure_of(calibration, "shared_bytes_per_second"),
      figure_of(calibration, "synchronise_seconds")};
  report.from_archive = flag_of(json, "from_archive");
  return report;
}

}  // namespace kw
