#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "judge/figures.hpp"
#include "measure/worker_answers.hpp"
#include "support/error.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

RelativeError relative_error(const Json& json) { return {number_of(json.at("norm")), number_of(json.at("max"))}; }

std::optional<RelativeError> relative_error_if_any(const Json& row, const char* name) {
  return row.contains(name) ? std::optional(relative_error(row.at(name))) : std::nullopt;
}

OutputFacts facts(const Json& row) {
  return {.epsilon = number_of(row.at("epsilon")),
          .summands = row.value("summands", 1.0),
          .elements = row.value("compared", 0.0),
          .underflow = row.value("underflow", kFlushedBelow)};
}

OutputForm form(const Json& row, const std::string& prefix) {
  const std::vector<int64_t> none;
  return {.dtype = row.value(prefix + "dtype", std::string()),
          .shape = row.value(prefix + "shape", none),
          .strides = row.value(prefix + "strides", none)};
}

WorstElement worst_element(const Json& row) {
  return {.index = row.value("where", std::vector<int64_t>()),
          .ours = number_of(row.value("ours_value", Json())),
          .reference = number_of(row.value("reference_value", Json()))};
}

SizeError size_error(const Json& json) { return {number_of(json.at("rms")), number_of(json.at("max"))}; }

LeftOut left_out(const Json& json) {
  return {.count = json.at("count").get<int64_t>(),
          .values = json.at("values").get<int64_t>(),
          .size = number_of(json.at("size")),
          .eager = number_of(json.at("eager"))};
}

SizeBucket bucket(const Json& json) {
  return {.low = number_of(json.at("low")),
          .count = json.at("count").get<int64_t>(),
          .ours = size_error(json.at("ours")),
          .eager = size_error(json.at("eager")),
          .moved = size_error(json.at("moved")),
          .left_out = json.contains("left_out") ? std::optional(left_out(json.at("left_out"))) : std::nullopt};
}

OutputFigures output(const Json& row) {
  OutputFigures output;
  output.name = row.at("name").get<std::string>();
  output.form = form(row, "");
  output.expected = form(row, "expected_");
  output.dtype_ok = row.at("dtype_ok").get<bool>();
  output.shape_ok = row.at("shape_ok").get<bool>();
  output.strides_ok = row.at("strides_ok").get<bool>();
  output.device_ok = row.at("device_ok").get<bool>();
  output.exact = row.at("exact").get<bool>();
  output.mismatches = row.at("mismatches").get<int64_t>();
  output.eager_mismatches = row.value("eager_mismatches", int64_t{0});
  if (row.contains("unexplained")) output.unexplained = row.at("unexplained").get<int64_t>();
  output.nonfinite_ok = row.at("nonfinite_ok").get<bool>();
  output.nonfinite_mismatches = row.value("nonfinite_mismatches", int64_t{0});
  output.ours = relative_error(row.at("ours"));
  output.eager = relative_error(row.at("eager"));
  output.sensitivity = relative_error_if_any(row, "sensitivity");
  output.rounding = relative_error_if_any(row, "rounding");
  for (const Json& one : row.value("buckets", Json::array())) output.buckets.push_back(bucket(one));
  output.facts = facts(row);
  output.worst = worst_element(row);
  return output;
}

DrawFigures draw(const Json& json) {
  DrawFigures draw;
  draw.kind = json.at("kind").get<std::string>();
  if (json.contains("skipped")) draw.skipped = json.at("skipped").get<std::string>();
  for (const Json& row : json.at("outputs")) draw.outputs.push_back(output(row));
  return draw;
}

TrivialAnswer trivial_answer(const Json& row) {
  return {.output = row.at("output").get<std::string>(),
          .trivial = row.at("trivial").get<std::string>(),
          .error = relative_error(row),
          .eager = relative_error(row.at("eager")),
          .facts = facts(row)};
}

Figures figures(const Json& reply) {
  Figures figures;
  figures.reference = reply.value("reference", std::string());
  figures.reference_note = reply.value("reference_note", std::string());
  for (const Json& one : reply.at("draws")) figures.draws.push_back(draw(one));
  for (const Json& check : reply.at("checks"))
    figures.checks.push_back({check.at("name").get<std::string>(), check.at("ok").get<bool>(),
                              check.value("detail", std::string()), check.value("unchecked", std::string())});
  for (const Json& row : reply.value("vacuous", Json::array())) figures.trivial.push_back(trivial_answer(row));
  if (reply.contains("kernelbench_gate")) {
    const Json& gate = reply.at("kernelbench_gate");
    figures.kernelbench_gate = Gate{gate.at("ok").get<bool>(), number_of(gate.at("atol")), number_of(gate.at("rtol"))};
  }
  figures.runs_original = runs_original(reply);
  if (const Json seed = reply.value("seed", Json()); seed.is_number()) figures.seed = seed.get<uint64_t>();
  if (const Json missing = reply.value("missing_protections", Json()); missing.is_array())
    figures.missing_protections = missing.get<std::vector<std::string>>();
  figures.prepared_seconds = reply.value("prepared_seconds", 0.0);
  return figures;
}

}  // namespace

Figures figures_from_json(const Json& reply) {
  try {
    return figures(reply);
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kInternal, fmt::format("A worker's figures cannot be read: {}", error.what()));
  }
}

std::optional<std::string> runs_original(const Json& reply) {
  if (!reply.contains("runs_original") || !reply["runs_original"].is_string()) return std::nullopt;
  return reply["runs_original"].get<std::string>();
}

}  // namespace kw
