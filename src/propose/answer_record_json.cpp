#include <nlohmann/json.hpp>

#include "propose/answer_record.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

std::string text_of_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json usage_json(const llm::Usage& usage) {
  return {{"finish", usage.finish},
          {"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"estimated", usage.tokens_estimated},
          {"seconds", usage.seconds},
          {"first_token_seconds", usage.first_token_seconds},
          {"retries", usage.retries},
          {"waited_seconds", usage.waited_seconds}};
}

llm::Usage usage_from_json(const Json& json) {
  const std::string finish = text_of(json, "finish");
  const auto count = [&](const char* name) { return static_cast<int>(count_of(json, name).value_or(0)); };
  return {.finish = finish.empty() ? "stop" : finish,
          .prompt_tokens = count("prompt_tokens"),
          .completion_tokens = count("completion_tokens"),
          .tokens_estimated = flag_of(json, "estimated"),
          .seconds = figure_of(json, "seconds").value_or(0),
          .first_token_seconds = figure_of(json, "first_token_seconds").value_or(0),
          .retries = count("retries"),
          .waited_seconds = figure_of(json, "waited_seconds").value_or(0)};
}

Json seconds_json(const AnswerSeconds& seconds) {
  Json json = {{"write", seconds.write}, {"judge", seconds.judge}};
  put(json, "overhead", seconds.overhead);
  return json;
}

Json times_json(const Timing& timing) {
  Json all = Json::object(), times = Json::object();
  write_timing(all, timing);
  for (const char* field : {"time_ms", "speedup", "noise", "roofline", "profile"})
    if (all.contains(field)) times[field] = std::move(all[field]);
  return times;
}

void put_flag(Json& json, const char* name, bool is_set) {
  if (is_set) json[name] = true;
}

Json to_json(const AnswerRecord& record) {
  const AnswerVerdict& outcome = record.outcome;
  Json json = {{"model", record.model},     {"usage", usage_json(record.usage)},
               {"repairs", record.repairs}, {"verdict", outcome.verdict},
               {"code", outcome.code},      {"reason", outcome.reason},
               {"ran", record.ran}};
  if (outcome.errors) json["errors"] = to_json(*outcome.errors);
  if (!outcome.notes.empty()) json["notes"] = outcome.notes;
  if (record.pick) put(json, "last", record.is_last);  // stands before what follows, as it always has
  put_flag(json, "same_as_before", record.same_as_before);
  put_flag(json, "reused", record.reused);
  put_text(json, "candidate", record.candidate);
  if (record.pick) {
    put(json, "ratio", record.pick->ratio);
    put_text(json, "change", record.pick->change);
  }
  if (record.times) json["times"] = times_json(*record.times);
  put(json, "last", record.is_last);
  put_text(json, "feedback", record.feedback);
  if (record.seconds) json["seconds"] = seconds_json(*record.seconds);
  return json;
}

}  // namespace

std::string to_text(const AnswerRequest& request) {
  Json json;
  for (const llm::Message& message : request.prompt.messages)
    json["messages"].push_back({{"role", message.role}, {"content", message.content}});
  if (request.prompt.messages.empty()) json["prompt"] = request.prompt.raw;
  json.update({{"template", request.form}, {"temperature", request.temperature}, {"top_p", request.top_p}});
  put(json, "max_tokens", request.max_tokens);
  put(json, "seed", request.seed);
  if (!request.schema.empty()) json["schema"] = Json::parse(request.schema);
  json["target"] = request.target;
  return text_of_json(json);
}

std::string to_text(const llm::Usage& usage) { return text_of_json(usage_json(usage)); }

std::string to_text(const AnswerRecord& record) { return text_of_json(to_json(record)); }

llm::Prompt prompt_from_text(std::string_view request) {
  const Json json = Json::parse(request, nullptr, false);
  llm::Prompt prompt{.messages = {}, .raw = text_of(json, "prompt")};
  for (const Json& message : rows_of(json, "messages"))
    prompt.messages.push_back({text_of(message, "role"), text_of(message, "content")});
  return prompt;
}

llm::Usage usage_from_text(std::string_view usage) { return usage_from_json(Json::parse(usage, nullptr, false)); }

std::optional<AnswerRecord> answer_record_from_text(std::string_view record) {
  const Json json = Json::parse(record, nullptr, false);
  return json.is_object() ? std::optional(answer_record_from_json(json)) : std::nullopt;
}

Json turn_json(const AnswerRecord& record) {
  Json json = {{"verdict", record.outcome.verdict},
               {"code", record.outcome.code},
               {"reason", record.outcome.reason},
               {"repairs", record.repairs},
               {"ran", record.ran}};
  put_text(json, "candidate", record.candidate);
  json["usage"] = usage_json(record.usage);
  if (record.seconds) json["seconds"] = seconds_json(*record.seconds);
  if (record.times) json["times"] = times_json(*record.times);
  put_flag(json, "reused", record.reused);
  put_flag(json, "same_as_before", record.same_as_before);
  return json;
}

AnswerRecord answer_record_from_json(const Json& json) {
  AnswerRecord record{.model = text_of(json, "model"),
                      .usage = usage_from_json(member(json, "usage")),
                      .repairs = texts_of(json, "repairs"),
                      .outcome = {.verdict = text_of(json, "verdict"),
                                  .code = text_of(json, "code"),
                                  .reason = text_of(json, "reason"),
                                  .errors = errors_from_json(member(json, "errors")),
                                  .notes = texts_of(json, "notes")},
                      .ran = flag_of(json, "ran"),
                      .same_as_before = flag_of(json, "same_as_before"),
                      .reused = flag_of(json, "reused"),
                      .candidate = text_of(json, "candidate"),
                      .pick = std::nullopt,
                      .times = std::nullopt,
                      .is_last = flag_where_told(json, "last"),
                      .feedback = text_of(json, "feedback"),
                      .seconds = std::nullopt};
  if (json.contains("change") || json.contains("ratio"))
    record.pick = AnswerPick{text_of(json, "change"), figure_of(json, "ratio")};
  if (const Json& times = member(json, "times"); times.is_object()) record.times = timing_from_json(times);
  if (const Json& seconds = member(json, "seconds"); seconds.is_object())
    record.seconds = AnswerSeconds{figure_of(seconds, "write").value_or(0), figure_of(seconds, "judge").value_or(0),
                                   figure_of(seconds, "overhead")};
  return record;
}

}  // namespace kw
