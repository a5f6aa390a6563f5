#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "judge/contract.hpp"
#include "judge/json_number.hpp"
#include "measure/worker_answers.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

Json write_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

namespace {

Json error_json(const RelativeError& error) {
  return {{"norm", write_number(error.norm)}, {"max", write_number(error.max)}};
}

RelativeError error_from(const Json& json) { return {number_of(json.at("norm")), number_of(json.at("max"))}; }

RelativeError error_of(const Json& json, const char* name) {
  const Json& error = member(json, name);
  return {number_of(member(error, "norm")), number_of(member(error, "max"))};
}

}  // namespace

Json to_json(const OutputVerdict& output) {
  Json row = {{"draw", output.draw},
              {"draw_index", output.draw_index},
              {"output", output.output},
              {"ours", error_json(output.ours)},
              {"eager", error_json(output.eager)},
              {"bound", error_json(output.bound)},
              {"ok", output.fault.empty()}};
  if (output.conditioned) row["conditioned"] = true;
  if (!output.fault.empty()) row["fault"] = output.fault;
  return row;
}

Json to_json(const std::vector<JudgedOutput>& errors) {
  Json rows = Json::array();
  for (const JudgedOutput& output : errors) {
    rows.push_back(to_json(static_cast<const OutputVerdict&>(output)));
    rows.back()["of_bound"] = or_null(output.of_bound);
  }
  return rows;
}

std::optional<std::vector<JudgedOutput>> errors_from_json(const Json& rows) {
  if (!rows.is_array()) return std::nullopt;
  std::vector<JudgedOutput> errors;
  for (const Json& row : rows) {
    JudgedOutput& output = errors.emplace_back();
    output.draw = text_of(row, "draw");
    output.draw_index = static_cast<int>(count_of(row, "draw_index").value_or(0));
    output.output = text_of(row, "output");
    output.ours = error_of(row, "ours");
    output.eager = error_of(row, "eager");
    output.bound = error_of(row, "bound");
    output.conditioned = flag_of(row, "conditioned");
    output.fault = text_of(row, "fault");
    output.of_bound = figure_of(row, "of_bound");
  }
  return errors;
}

Json to_json(const Check& check) {
  Json row = {{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}};
  if (!check.unchecked.empty()) row["unchecked"] = check.unchecked;
  return row;
}

Json to_json(const VacuousOutput& output) { return {{"output", output.output}, {"trivial", output.trivial}}; }

Json to_json(const Gate& gate) { return {{"ok", gate.ok}, {"atol", gate.atol}, {"rtol", gate.rtol}}; }

Json to_json(const Verdict& verdict) {
  Json errors = Json::array(), checks = Json::array(), vacuous = Json::array();
  for (const OutputVerdict& output : verdict.errors) errors.push_back(to_json(output));
  for (const Check& check : verdict.checks) checks.push_back(to_json(check));
  for (const VacuousOutput& output : verdict.vacuous) vacuous.push_back(to_json(output));
  Json json = {{"verdict", verdict.pass ? "pass" : "fail"},
               {"code", verdict.code},
               {"reason", verdict.reason},
               {"policy", name_of(verdict.policy)},
               {"reference", verdict.reference},
               {"reference_note", verdict.reference_note},
               {"errors", std::move(errors)},
               {"checks", std::move(checks)},
               {"vacuous", std::move(vacuous)},
               {"skipped_draws", verdict.skipped}};
  if (verdict.kernelbench_gate) json["kernelbench_gate"] = to_json(*verdict.kernelbench_gate);
  if (!verdict.detail.empty()) json["detail"] = verdict.detail;
  return json;
}

Verdict verdict_from_json(const Json& json) {
  Verdict verdict;
  verdict.pass = json.at("verdict") == "pass";
  verdict.code = json.at("code").get<std::string>();
  verdict.reason = json.at("reason").get<std::string>();
  verdict.policy = policy_of(json.at("policy").get<std::string>());
  verdict.reference = json.value("reference", std::string());
  verdict.reference_note = json.value("reference_note", std::string());
  for (const Json& row : json.at("errors")) {
    OutputVerdict output;
    output.draw = row.at("draw").get<std::string>();
    output.draw_index = row.at("draw_index").get<int>();
    output.output = row.at("output").get<std::string>();
    output.ours = error_from(row.at("ours"));
    output.eager = error_from(row.at("eager"));
    output.bound = error_from(row.at("bound"));
    output.conditioned = row.value("conditioned", false);
    output.fault = row.value("fault", std::string());
    verdict.errors.push_back(std::move(output));
  }
  for (const Json& row : json.at("checks"))
    verdict.checks.push_back({row.at("name").get<std::string>(), row.at("ok").get<bool>(),
                              row.at("detail").get<std::string>(), row.value("unchecked", std::string())});
  for (const Json& row : json.at("vacuous"))
    verdict.vacuous.push_back({row.at("output").get<std::string>(), row.at("trivial").get<std::string>()});
  verdict.skipped = json.value("skipped_draws", std::vector<std::string>());
  if (json.contains("kernelbench_gate")) {
    const Json& gate = json.at("kernelbench_gate");
    verdict.kernelbench_gate = Gate{gate.at("ok").get<bool>(), gate.at("atol").get<double>(),
                                    gate.at("rtol").get<double>()};
  }
  verdict.detail = json.value("detail", std::string());
  return verdict;
}

}  // namespace kw
