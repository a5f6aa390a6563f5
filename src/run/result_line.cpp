#include "run/result_line.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

const Json& member(const Json& json, const char* name) {
  static const Json nothing;
  if (!json.is_object()) return nothing;
  const auto found = json.find(name);
  return found == json.end() ? nothing : *found;
}

std::string text(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<double> number(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<int64_t> count(const Json& json, const char* name) {
  const Json& value = member(json, name);
  return value.is_number() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<std::map<int, double>> by_count(const Json& json, const char* name) {
  const Json& shares = member(json, name);
  if (!shares.is_object()) return std::nullopt;
  std::map<int, double> read;
  for (const auto& [key, share] : shares.items()) {
    int k = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), k);
    if (error == std::errc() && end == key.data() + key.size() && share.is_number()) read[k] = share.get<double>();
  }
  return read;
}

ProposerLine proposer_from_json(const Json& json) {
  ProposerLine line;
  line.proposer = text(json, "proposer");
  line.seconds = number(json, "seconds").value_or(0);
  line.judged = count(json, "judged");
  line.passed = count(json, "passed");
  line.answers = count(json, "answers");
  line.evaluated = count(json, "evaluated");
  line.cost = number(json, "cost");
  line.tokens_read = count(member(json, "tokens"), "prompt");
  line.tokens_written = count(member(json, "tokens"), "completion");
  return line;
}

std::string reason_from_json(const Json& json) {
  const Json& error = member(json, "error");
  if (!error.is_object()) return text(json, "reason");
  const std::string where = text(error, "where");
  return text(error, "message") + (where.empty() ? "" : " (" + where + ")");
}

}  // namespace

ResultLine result_line_from_json(const Json& json) {
  ResultLine line;
  line.problem = text(json, "problem");
  line.name = text(json, "name");
  line.category = text(json, "category");
  line.verdict = text(json, "verdict");
  line.reason = reason_from_json(json);
  for (const auto& [baseline, figure] : member(json, "speedup").items())
    if (const auto value = number(figure, "value"))
      line.speedup[baseline] = {*value, number(figure, "low").value_or(*value),
                                number(figure, "high").value_or(*value)};
  line.pass_at_k = by_count(json, "pass_at_k");
  line.best_at_k = by_count(json, "best_at_k");
  line.judged = static_cast<int>(count(json, "judged").value_or(0));
  for (const Json& one : member(json, "proposers")) line.proposers.push_back(proposer_from_json(one));
  line.winner = text(json, "winner");
  const Json& compiled = member(json, "compiled");
  line.kernels = static_cast<int>(count(compiled, "kernels").value_or(0));
  line.kernels_compiled = static_cast<int>(count(compiled, "ok").value_or(0));
  for (const Json& kernel : member(compiled, "each"))
    line.compiled.push_back({text(kernel, "name"), count(kernel, "spills"), count(kernel, "registers")});
  const Json& noise = member(json, "noise");
  line.noisy = member(noise, "noisy") == true;
  for (const Json& reason : member(noise, "reasons"))
    if (reason.is_string()) line.noise.push_back(reason.get<std::string>());
  return line;
}

}  // namespace kw
