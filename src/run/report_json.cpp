#include <nlohmann/json.hpp>

#include "run/report.hpp"
#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

std::optional<Findings> findings_from_json(const Json& json) {
  if (!member(json, "checks").is_array()) return std::nullopt;
  Findings found{.reference = text_of(json, "reference"),
                 .reference_note = text_of(json, "reference_note"),
                 .checks = {},
                 .vacuous = {},
                 .skipped = texts_of(json, "skipped_draws"),
                 .kernelbench_gate = std::nullopt,
                 .detail = text_of(json, "detail")};
  for (const Json& row : rows_of(json, "checks"))
    found.checks.push_back(
        {text_of(row, "name"), flag_of(row, "ok"), text_of(row, "detail"), text_of(row, "unchecked")});
  for (const Json& row : rows_of(json, "vacuous"))
    found.vacuous.push_back({text_of(row, "output"), text_of(row, "trivial")});
  if (const Json& gate = member(json, "kernelbench_gate"); gate.is_object())
    found.kernelbench_gate = Gate{flag_of(gate, "ok"), figure_of(gate, "atol").value_or(1e-4),
                                  figure_of(gate, "rtol").value_or(1e-4)};
  return found;
}

std::optional<Draws> draws_from_json(const Json& json) {
  const auto count = count_of(json, "draws");
  if (!count) return std::nullopt;
  Draws draws{.seed = std::nullopt, .count = *count};
  if (const auto seed = count_of(json, "seed")) draws.seed = static_cast<uint64_t>(*seed);
  return draws;
}

std::optional<Failure> failure_from_json(const Json& json) {
  if (!member(json, "where").is_string()) return std::nullopt;
  return Failure{text_of(json, "where"), text_of(json, "source"), text_of(json, "hint")};
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
  worth.lost = speedup_from_json(member(json, "lost"));
  return worth;
}

std::optional<Kernels> kernels_from_json(const Json& json) {
  if (!member(json, "kernels").is_array()) return std::nullopt;
  return Kernels{.names = texts_of(json, "kernels"),
                 .library_calls = count_of(json, "library_calls").value_or(0),
                 .library_ops = texts_of(json, "library_ops"),
                 .cuda_graph = flag_where_told(json, "cuda_graph"),
                 .kept_weight_bytes = count_of(json, "kept_weight_bytes").value_or(0),
                 .schedule = member(json, "schedule").is_object() ? member(json, "schedule").dump() : ""};
}

Tokens tokens_from_json(const Json& json) {
  return {count_of(json, "prompt"), count_of(json, "completion"), figure_of(json, "per_second")};
}

ProposerOutcome proposer_from_json(const Json& json) {
  const Json& tokens = member(json, "tokens");
  return {.proposer = text_of(json, "proposer"),
          .verdict = text_of(json, "verdict"),
          .ms = figure_of(json, "ms"),
          .seconds = figure_of(json, "seconds"),
          .passed = count_of(json, "passed"),
          .judged = count_of(json, "judged"),
          .tokens = tokens.is_object() ? std::optional(tokens_from_json(tokens)) : std::nullopt,
          .cost = figure_of(json, "cost"),
          .pass_at_k = figures_by_number(json, "pass_at_k"),
          .run = text_of(json, "run"),
          .answers = count_of(json, "answers"),
          .evaluated = count_of(json, "evaluated"),
          .speedup_over_scheduler = figure_of(json, "speedup_over_scheduler"),
          .error = text_where_told(json, "error")};
}

Sampling sampling_from_json(const Json& json) {
  Sampling sampling{.judged = count_of(json, "judged").value_or(0),
                    .passed = count_of(json, "passed").value_or(0),
                    .passed_at_first = count_of(json, "passed_at_first").value_or(0),
                    .ran = count_of(json, "ran").value_or(0),
                    .pass_at_k = figures_by_number(json, "pass_at_k"),
                    .pass_at_k_without_repair = figures_by_number(json, "pass_at_k_without_repair"),
                    .best_at_k = figures_by_number(json, "best_at_k"),
                    .codes = counts_of(json, "codes"),
                    .repairs = counts_of(json, "repairs_made"),
                    .tokens = tokens_from_json(member(json, "tokens")),
                    .cost = figure_of(json, "cost"),
                    .overhead_ms = figure_of(member(json, "overhead_ms"), "median").value_or(0),
                    .largest_overhead_ms = figure_of(member(json, "overhead_ms"), "largest").value_or(0),
                    .samples = {}};
  for (const Json& row : rows_of(json, "samples")) {
    Sampling::Sample sample{
        .number = count_of(row, "sample").value_or(0), .passed = flag_of(row, "passed"), .turns = {}};
    for (const Json& turn : rows_of(row, "turns")) sample.turns.push_back(answer_record_from_json(turn));
    sampling.samples.push_back(std::move(sample));
  }
  return sampling;
}

std::optional<ModelRun> model_from_json(const Json& json) {
  const Json &model = member(json, "model"), &form = member(json, "template"), &settings = member(json, "sampling");
  if (!model.is_object()) return std::nullopt;
  return ModelRun{.asked = text_of(model, "asked"),
                  .name = text_of(model, "name"),
                  .template_name = text_of(form, "name"),
                  .template_hash = text_of(form, "hash"),
                  .run = text_of(json, "run"),
                  .temperature = figure_of(settings, "temperature").value_or(0),
                  .top_p = figure_of(settings, "top_p").value_or(0),
                  .seed = text_of(settings, "seed"),
                  .max_tokens = count_of(settings, "max_tokens"),
                  .shots = count_of(settings, "shots"),
                  .repair = count_of(settings, "repair"),
                  .improve = count_of(settings, "improve"),
                  .prompt_tokens = count_of(json, "prompt_tokens").value_or(0)};
}

std::optional<Overlap> overlap_from_json(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  return Overlap{.wall_seconds = figure_of(json, "wall_seconds").value_or(0),
                 .writing_seconds = figure_of(json, "writing_seconds").value_or(0),
                 .judging_seconds = figure_of(json, "judging_seconds").value_or(0),
                 .waiting_seconds = figure_of(json, "waiting_seconds").value_or(0),
                 .slower_side = figure_of(json, "slower_side")};
}

std::optional<Edits> edits_from_json(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  Edits edits{.groups = count_of(json, "groups").value_or(0),
              .evaluations = count_of(json, "evaluations").value_or(0),
              .combinations = figure_of(json, "combinations").value_or(0),
              .curve = {},
              .answers = {}};
  for (const Json& best : rows_of(json, "curve"))
    if (best.is_number()) edits.curve.push_back(best.get<double>());
  for (const Json& row : rows_of(json, "answers"))
    edits.answers.push_back({.answer = count_of(row, "answer").value_or(0),
                             .change = text_of(row, "change"),
                             .code = text_of(row, "code"),
                             .is_evaluated = flag_of(row, "evaluated"),
                             .ratio = figure_of(row, "ratio"),
                             .reason = text_where_told(row, "reason")});
  return edits;
}

MachineCode machine_code_from_json(const Json& json) {
  return {.sm = count_of(json, "sm").value_or(0),
          .kernels = count_of(json, "kernels").value_or(0),
          .good = count_of(json, "ok").value_or(0),
          .each = compiled_kernels_from_json(rows_of(json, "each"))};
}

StageSeconds seconds_from_json(const Json& json) {
  StageSeconds seconds{.stages = figures_by_name(json, "seconds"),
                       .total = figure_of(member(json, "seconds"), "total")};
  std::erase_if(seconds.stages, [](const auto& stage) { return stage.first == "total"; });
  return seconds;
}

}  // namespace

std::vector<CompiledKernel> compiled_kernels_from_json(const Json& rows) {
  std::vector<CompiledKernel> kernels;
  for (const Json& row : rows)
    kernels.push_back({.name = text_of(row, "name"),
                       .error = text_of(row, "error"),
                       .ok = flag_of(row, "ok"),
                       .spills = count_of(row, "spills"),
                       .registers = count_of(row, "registers"),
                       .shared_bytes = count_of(row, "shared_bytes"),
                       .seconds = figure_of(row, "seconds").value_or(0)});
  return kernels;
}

Report report_from_json(const Json& json) {
  Report report{.command = text_of(json, "command"),
                .problem = text_of(json, "problem"),
                .name = text_of(json, "name"),
                .problem_hash = text_of(json, "problem_hash"),
                .size = text_of(json, "size"),
                .target = text_of(json, "target"),
                .policy = text_of(json, "policy"),
                .graphs = text_of(json, "graphs"),
                .verdict = text_of(json, "verdict"),
                .code = text_of(json, "code"),
                .reason = text_of(json, "reason"),
                .errors = std::nullopt,
                .findings = findings_from_json(json),
                .draws = draws_from_json(json),
                .failure = failure_from_json(json),
                .missing_protections = std::nullopt,
                .runs_original = text_of(json, "runs_original"),
                .timing = timing_from_json(json),
                .worth = worth_from_json(json),
                .kernels = kernels_from_json(json),
                .compiled = std::nullopt,
                .searches = {.search = search_outcome_from_json(member(json, "search")),
                             .rescue = search_outcome_from_json(member(json, "rescue")),
                             .relief = search_outcome_from_json(member(json, "relief")),
                             .proposed = search_outcome_from_json(member(json, "proposed"))},
                .proposers = {},
                .winner = text_of(json, "winner"),
                .model = model_from_json(json),
                .sampling = sampling_from_json(json),
                .repairs = std::nullopt,
                .overlap = overlap_from_json(member(json, "overlap")),
                .edits = edits_from_json(member(json, "edits")),
                .candidate = text_of(json, "candidate"),
                .candidate_hash = text_of(json, "candidate_hash"),
                .notes = texts_of(json, "notes"),
                .archive_error = text_where_told(json, "archive_error"),
                .from_archive = flag_where_told(json, "from_archive"),
                .interrupted = flag_where_told(json, "interrupted"),
                .lacked_memory = flag_where_told(json, "lacked_memory"),
                .created = text_of(json, "created"),
                .seconds = seconds_from_json(json)};
  report.errors = errors_from_json(member(json, "errors"));
  if (const Json& sandbox = member(json, "sandbox"); sandbox.is_object())
    report.missing_protections = texts_of(sandbox, "missing");
  if (const Json& compiled = member(json, "compiled"); compiled.is_object())
    report.compiled = machine_code_from_json(compiled);
  if (member(json, "repairs").is_array()) report.repairs = texts_of(json, "repairs");
  for (const Json& one : rows_of(json, "proposers")) report.proposers.push_back(proposer_from_json(one));
  return report;
}

}  // namespace kw
