// What the contract makes of one candidate, whoever wrote it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "judge/contract.hpp"
#include "judge/session.hpp"

namespace kw {

struct Judgement {
  Verdict verdict;
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();  // the worker's; empty for a candidate that
                                                                      // raised, crashed or hung
  std::string where, source, hint;  // of one that raised: the line of its file, and what to do
  std::optional<uint64_t> seed;     // of the draws
  size_t draws = 0;
  std::optional<std::vector<std::string>> missing_protections;  // of its process, in words; none where it needed none
  std::optional<std::string> runs_original;  // why a file of the compiler's ran the original module on the problem's
                                             // own inputs
  double prepared_seconds = 0;               // of the worker, before it was asked

  bool passed() const { return verdict.pass; }
};

// A candidate of the compiler's that passed because the original module ran in its place fails. Throws kUser where the
// problem itself cannot be run, and whatever is not the candidate's fault.
Judgement judge(Session& session, const VerifyRequest& request);

// The same of figures that a worker has given.
Judgement judgement_of(nlohmann::ordered_json figures, Policy policy);

// Of a worker's reply to verify or measure.
std::optional<std::string> runs_original(const nlohmann::ordered_json& reply);

// Per output: eager's largest error over the draws, norm-relative. A network that amplifies rounding moves that far
// from run to run.
std::map<std::string, double> eager_errors(const Verdict& verdict);

}  // namespace kw
