// A report as JSON: every field of docs/json.md, in one order.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "run/report.hpp"
#include "run/report_version.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

Json to_json(const Advice& one) { return {{"command", one.command}, {"effect", one.effect}}; }

Json to_json(const CompiledKernel& kernel) {
  return {{"name", kernel.name},
          {"ok", kernel.ok},
          {"registers", or_null(kernel.registers)},
          {"shared_bytes", or_null(kernel.shared_bytes)},
          {"spills", or_null(kernel.spills)},
          {"seconds", kernel.seconds},
          {"error", kernel.error}};
}

Json to_json(const Tokens& tokens) {
  return {{"prompt", or_null(tokens.prompt)},
          {"completion", or_null(tokens.completion)},
          {"per_second", or_null(tokens.per_second)}};
}

Json to_json(const ProposerOutcome& one) {
  Json json = {
      {"proposer", one.proposer}, {"verdict", one.verdict}, {"ms", or_null(one.ms)}, {"seconds", or_null(one.seconds)}};
  put(json, "passed", one.passed);
  put(json, "judged", one.judged);
  if (one.tokens) json["tokens"] = to_json(*one.tokens);
  put(json, "cost", one.cost);
  if (one.pass_at_k) json["pass_at_k"] = by_number(*one.pass_at_k);
  put_text(json, "run", one.run);
  put(json, "answers", one.answers);
  put(json, "evaluated", one.evaluated);
  put(json, "speedup_over_scheduler", one.speedup_over_scheduler);
  put(json, "error", one.error);
  return json;
}

Json to_json(const EditAnswer& one) {
  return {{"answer", one.answer},          {"change", one.change},        {"code", one.code},
          {"evaluated", one.is_evaluated}, {"ratio", or_null(one.ratio)}, {"reason", or_null(one.reason)}};
}

Json to_json(const Sampling::Sample& one) {
  Json turns = Json::array();
  for (const AnswerRecord& turn : one.turns) turns.push_back(turn_json(turn));
  return {{"sample", one.number}, {"passed", one.passed}, {"turns", std::move(turns)}};
}

template <typename Part>
Json rows_json(const std::vector<Part>& parts) {
  Json rows = Json::array();
  for (const Part& part : parts) rows.push_back(to_json(part));
  return rows;
}

Json to_json(const MachineCode& code) {
  return {{"sm", code.sm}, {"kernels", code.kernels}, {"ok", code.good}, {"each", rows_json(code.each)}};
}

void write_subject(Json& json, const Report& report) {
  if (report.command.empty()) return;
  json["version"] = kReportVersion;
  json["command"] = report.command;
  json["problem"] = report.problem;
  json["name"] = report.name;
  put_text(json, "problem_hash", report.problem_hash);
  json["size"] = report.size.empty() ? Json() : Json(report.size);
  json["target"] = report.target;
}

Json sandbox_json(const std::vector<std::string>& missing) {
  const bool has_namespaces = std::ranges::none_of(
      missing, [](const std::string& what) { return what.find("namespaces") != std::string::npos; });
  return {{"kind", has_namespaces ? "namespaces" : "none"}, {"missing", missing}};
}

void write_findings(Json& json, const Report& report) {
  if (!report.verdict.empty()) {
    json["verdict"] = report.verdict;
    put_text(json, "code", report.code);
    json["reason"] = report.reason;
  }
  put_text(json, "policy", report.policy);
  if (report.errors) json["errors"] = to_json(*report.errors);
  if (report.findings) {
    const Findings& found = *report.findings;
    json["reference"] = found.reference;
    json["reference_note"] = found.reference_note;
    json["checks"] = rows_json(found.checks);
    json["vacuous"] = rows_json(found.vacuous);
    json["skipped_draws"] = found.skipped;
    if (found.kernelbench_gate) json["kernelbench_gate"] = to_json(*found.kernelbench_gate);
    put_text(json, "detail", found.detail);
  }
  if (report.failure) {
    json["where"] = report.failure->where;
    json["source"] = report.failure->source;
    json["hint"] = report.failure->hint;
  }
  put_text(json, "runs_original", report.runs_original);
  if (report.draws) {
    json["seed"] = or_null(report.draws->seed);
    json["draws"] = report.draws->count;
  }
  if (report.missing_protections) json["sandbox"] = sandbox_json(*report.missing_protections);
}

void write_worth(Json& json, const Worth& worth) {
  using BesideEager = Worth::BesideEager;
  if (worth.beside_eager == BesideEager::kNotTimed) json["slower_than_eager"] = nullptr;
  else if (worth.beside_eager != BesideEager::kNotAsked)
    json["slower_than_eager"] = worth.beside_eager == BesideEager::kSlower;
  if (worth.lost) json["lost"] = to_json(*worth.lost);
  if (!worth.written) return;
  json["min_speedup"] = worth.min_speedup;
  json["written"] = *worth.written;
  json["advice"] = rows_json(worth.advice);
}

void write_made(Json& json, const Report& report) {
  if (report.kernels) {
    json["kernels"] = report.kernels->names;
    json["library_calls"] = report.kernels->library_calls;
    json["library_ops"] = report.kernels->library_ops;
    put(json, "cuda_graph", report.kernels->cuda_graph);
    json["kept_weight_bytes"] = report.kernels->kept_weight_bytes;
    if (const std::string& schedule = report.kernels->schedule; !schedule.empty())
      json["schedule"] = Json::parse(schedule, nullptr, false);
  }
  if (report.compiled) json["compiled"] = to_json(*report.compiled);
  const Searches& searches = report.searches;
  if (searches.search) json["search"] = to_json(*searches.search);
  if (searches.relief) json["relief"] = to_json(*searches.relief);
  if (searches.proposed) json["proposed"] = to_json(*searches.proposed);
  if (searches.rescue) json["rescue"] = to_json(*searches.rescue);
  if (!report.proposers.empty()) json["proposers"] = rows_json(report.proposers);
  put_text(json, "winner", report.winner);
}

void write_sampling(Json& json, const Sampling& sampling) {
  json["judged"] = sampling.judged;
  json["passed"] = sampling.passed;
  json["passed_at_first"] = sampling.passed_at_first;
  json["ran"] = sampling.ran;
  if (sampling.pass_at_k) json["pass_at_k"] = by_number(*sampling.pass_at_k);
  if (sampling.pass_at_k_without_repair)
    json["pass_at_k_without_repair"] = by_number(*sampling.pass_at_k_without_repair);
  json["codes"] = by_name(sampling.codes);
  json["repairs_made"] = by_name(sampling.repairs);
  json["tokens"] = to_json(sampling.tokens);
  put(json, "cost", sampling.cost);
  json["overhead_ms"] = {{"median", sampling.overhead_ms}, {"largest", sampling.largest_overhead_ms}};
  json["samples"] = rows_json(sampling.samples);
  if (sampling.best_at_k) json["best_at_k"] = by_number(*sampling.best_at_k);
}

void write_model(Json& json, const Report& report) {
  if (const auto& repairs = report.repairs) json["repairs"] = *repairs;
  if (const auto& edits = report.edits)
    json["edits"] = {{"groups", edits->groups},
                     {"combinations", edits->combinations},
                     {"evaluations", edits->evaluations},
                     {"curve", edits->curve},
                     {"answers", rows_json(edits->answers)}};
  if (const auto& overlap = report.overlap)
    json["overlap"] = {{"wall_seconds", overlap->wall_seconds},
                       {"writing_seconds", overlap->writing_seconds},
                       {"judging_seconds", overlap->judging_seconds},
                       {"waiting_seconds", overlap->waiting_seconds},
                       {"slower_side", or_null(overlap->slower_side)}};
  if (!report.model) return;
  const ModelRun& model = *report.model;
  json["model"] = {{"asked", model.asked}, {"name", model.name}};
  json["template"] = {{"name", model.template_name}, {"hash", model.template_hash}};
  json["run"] = model.run;
  json["prompt_tokens"] = model.prompt_tokens;
  Json settings = {{"temperature", model.temperature}, {"top_p", model.top_p}};
  put(settings, "max_tokens", model.max_tokens);
  settings["seed"] = model.seed;
  put(settings, "shots", model.shots);
  put(settings, "repair", model.repair);
  put(settings, "improve", model.improve);
  json["sampling"] = std::move(settings);
  write_sampling(json, report.sampling);
}

void write_outcome(Json& json, const Report& report) {
  if (!report.command.empty()) json["candidate"] = report.candidate.empty() ? Json() : Json(report.candidate);
  put_text(json, "candidate_hash", report.candidate_hash);
  if (!report.notes.empty()) json["notes"] = report.notes;
  put(json, "archive_error", report.archive_error);
  put(json, "interrupted", report.interrupted);
  put(json, "lacked_memory", report.lacked_memory);
  put(json, "from_archive", report.from_archive);
  put_text(json, "created", report.created);
  if (!report.seconds.stages.empty() || report.seconds.total) {
    json["seconds"] = by_name(report.seconds.stages);
    put(json["seconds"], "total", report.seconds.total);
  }
}

}  // namespace

Json to_json(const Report& report) {
  Json json = Json::object();
  write_subject(json, report);
  put_text(json, "graphs", report.graphs);
  write_findings(json, report);
  write_timing(json, report.timing);
  write_worth(json, report.worth);
  write_made(json, report);
  write_model(json, report);  // its `samples` are answers, not the number of times
  write_outcome(json, report);
  return json;
}

Json to_json(const DeviceReport& report) {
  Json json = {{"version", kReportVersion}, {"command", "device"}, {"target", report.target}};
  json.update(to_json(report.ceilings));
  json["from_archive"] = report.from_archive;
  if (report.calibration) json["calibration"] = to_json(*report.calibration);
  return json;
}

}  // namespace kw
