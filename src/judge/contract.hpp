// The contract: what a candidate's errors, checks and forms must be for it to pass. Pure functions from figures to a
// Verdict.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "judge/figures.hpp"

namespace kw {

// reference: at most twice eager's own error. ieee: the same, with eager kept from reduced-precision products. relaxed:
// TF32 and 16-bit products allowed.
enum class Policy { kReference, kIeee, kRelaxed };

std::string_view name_of(Policy policy);
Policy policy_of(std::string_view name);  // throws kUser for an unknown name

struct OutputVerdict {
  std::string draw;  // "generator", "signed", "wide", "constant", "special"
  int draw_index = 0;
  std::string output;  // "output[0]", "buffer bn.running_mean"
  RelativeError ours, eager, bound;
  bool conditioned = false;  // the bound rests on how far eager moves when its inputs move by one rounding
  std::string fault;         // empty when it passes; otherwise the sentence that says what is wrong
};

// An output on one draw, and the largest share of its bound that its errors take; none where that is no number.
struct JudgedOutput : OutputVerdict {
  std::optional<double> of_bound;
};

// A trivial answer ("zeros", "input[0] itself") that this problem's contract could not tell from a right one.
struct VacuousOutput {
  std::string output, trivial;
};

struct Verdict {
  bool pass = false;
  std::string code;    // stable slug: "pass", "inaccurate", "shape", "guard-bands", "crashed", …
  std::string reason;  // one sentence
  Policy policy = Policy::kReference;
  std::string reference;  // "fp64", "fp64-on-cpu", "fp32-eager"
  std::string reference_note;
  std::vector<OutputVerdict> errors;
  std::vector<Check> checks;
  std::vector<VacuousOutput> vacuous;
  std::vector<std::string> skipped;  // draws that eager itself cannot take, with why
  std::optional<Gate> kernelbench_gate;
  std::string detail;  // a compiler's output, a log's end; not printed by default
};

// Judges the result of the worker's method "verify".
Verdict judge(const Figures& figures, Policy policy);

// The verdict on a candidate that never came to yield figures: it did not compile, crashed, hung.
Verdict failed_verdict(Policy policy, std::string code, std::string reason, std::string detail = "");

// The largest errors that pass. `sensitivity` is eager's error on inputs and weights moved by one rounding, where it
// was measured, or on operators rounded otherwise, where that takes half of the digits.
RelativeError error_bound(Policy policy, RelativeError eager, const std::optional<RelativeError>& sensitivity,
                          const OutputFacts& output, bool weak_reference);

nlohmann::ordered_json to_json(const OutputVerdict& output);
nlohmann::ordered_json to_json(const std::vector<JudgedOutput>& errors);
nlohmann::ordered_json to_json(const Check& check);
nlohmann::ordered_json to_json(const VacuousOutput& output);
nlohmann::ordered_json to_json(const Gate& gate);
nlohmann::ordered_json to_json(const Verdict& verdict);
Verdict verdict_from_json(const nlohmann::ordered_json& json);

// None where it is no list. Fields that are missing or of another type are as if they were not there.
std::optional<std::vector<JudgedOutput>> errors_from_json(const nlohmann::ordered_json& rows);

}  // namespace kw
