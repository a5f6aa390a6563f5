#include <nlohmann/json.hpp>

#include "judge/environment.hpp"
#include "run/bench_messages.hpp"
#include "support/json_fields.hpp"
#include "targets/targets.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// One table for both directions: `field(name, value)` for each that is told.
template <typename Request, typename Field>
void each_field(Request& request, const Field& field) {
  field("problem", request.problem.path);
  field("name", request.problem.name);
  field("category", request.problem.category);
  field("key", request.key);
  field("output", request.options.output);
  field("target", request.options.target);
  field("size", request.options.size);
  field("policy", request.options.policy);
  field("graphs", request.options.graphs);
  field("baselines", request.options.baselines);
  field("budget", request.options.budget_seconds);
  field("timeout", request.options.timeout_seconds);
  field("try_seconds", request.options.try_seconds);
  field("draws", request.options.draws);
  field("emit_only", request.options.emit_only);
  field("force", request.options.force);
  field("after_compiler", request.after_compiler);
}

std::string text_of_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

ResultLine line_of(const BenchRequest& request) {
  ResultLine line;
  line.problem = request.problem.path;
  line.name = request.problem.name;
  line.category = request.problem.category;
  line.key = request.key;
  return line;
}

std::string to_text(const BenchRequest& request) {
  Json json;
  each_field(request, [&](const char* name, const auto& value) { json[name] = value; });
  if (request.proposer) {
    json["proposer"] = to_json(*request.proposer);
    json["fresh"] = request.proposer->fresh;
  }
  return text_of_json(json);
}

BenchRequest bench_request_from_text(std::string_view text) {
  const Json json = Json::parse(text);
  BenchRequest request;
  each_field(request, [&](const char* name, auto& value) {
    if (json.contains(name)) json.at(name).get_to(value);
  });
  request.options.problem = request.problem.path;
  if (json.contains("proposer")) {
    request.proposer = generate_options_from(json.at("proposer"));
    request.proposer->fresh = flag_of(json, "fresh");
  }
  return request;
}

std::string to_text(const BenchWait& wait) { return text_of_json({{"waiting", wait.whom}, {"seconds", wait.seconds}}); }

std::optional<BenchReply> bench_reply_from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  if (json.contains("waiting")) return BenchWait{text_of(json, "waiting"), figure_of(json, "seconds").value_or(0)};
  return result_line_from_json(json);
}

std::string bench_key(const std::string& source_hash, const BenchOptions& options) {
  Json key = {{"source", source_hash},          {"kw", emitter_version()},
              {"target", options.target},       {"policy", options.policy},
              {"emit_only", options.emit_only}, {"device", target_named(options.target).tensors()}};
  if (target_named(options.target).has_cuda_graphs()) key["graphs"] = options.graphs;
  if (!options.proposer.model.model.empty()) {
    key["proposer"] = to_json(options.proposer);
    key["after_compiler"] = options.after_compiler;
    for (const char* price : {"price_read", "price_written"}) key["proposer"].erase(price);
  }
  return key.dump();
}

}  // namespace kw
