// What the archive keeps of a language model's answers: what was asked, what writing took, and what became of each.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "judge/contract.hpp"
#include "judge/measurement.hpp"
#include "llm/backend.hpp"

namespace kw {

struct AnswerRequest {
  llm::Prompt prompt;
  std::string form;  // the template's name
  double temperature = 0, top_p = 0;
  std::optional<int> max_tokens;
  std::optional<uint64_t> seed;
  std::string schema;  // JSON that the answer has to follow; empty: none
  std::string target;
};

// Of a candidate, or why there is none.
struct AnswerVerdict {
  std::string verdict = "fail", code, reason;
  std::optional<std::vector<JudgedOutput>> errors;  // none: it was not verified
  std::vector<std::string> notes;

  bool passed() const { return verdict == "pass"; }
};

struct AnswerSeconds {
  double write = 0, judge = 0;
  std::optional<double> overhead;  // beside model and judge; none in a conversation with a person
};

// Of an answer that picks a schedule.
struct AnswerPick {
  std::string change;
  std::optional<double> ratio;  // to the first schedule's time, where it ran
};

struct AnswerRecord {
  std::string model;
  llm::Usage usage;
  std::vector<std::string> repairs;  // what was mended before it was judged
  AnswerVerdict outcome;
  bool ran = false;             // was verified for this answer
  bool same_as_before = false;  // the model gave a known candidate again
  bool reused = false;          // of an earlier run
  std::string candidate;        // hash; empty where there was no code
  std::optional<AnswerPick> pick;
  std::optional<Timing> times;  // where an improvement was to be asked for
  std::optional<bool> is_last;  // of its sample; none in a conversation with a person
  std::string feedback;         // what the model was told next
  std::optional<AnswerSeconds> seconds;

  bool passed() const { return outcome.passed(); }
};

// The JSON of the archive's completions and judgements.
std::string to_text(const AnswerRequest& request);
std::string to_text(const llm::Usage& usage);
std::string to_text(const AnswerRecord& record);

// Fields that are missing or of another type are as if they were not there.
llm::Prompt prompt_from_text(std::string_view request);
llm::Usage usage_from_text(std::string_view usage);
std::optional<AnswerRecord> answer_record_from_text(std::string_view record);  // none where it is no JSON object

// Of a record what reports show as a turn (docs/json.md).
nlohmann::ordered_json turn_json(const AnswerRecord& record);
AnswerRecord answer_record_from_json(const nlohmann::ordered_json& json);  // of a turn, or a whole record

}  // namespace kw
