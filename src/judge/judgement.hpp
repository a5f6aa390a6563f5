// What the contract makes of one candidate, whoever wrote it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "judge/contract.hpp"
#include "judge/session.hpp"

namespace kw {

struct Judgement {
  Verdict verdict;
  std::optional<Figures> figures;   // what the verdict rests on; none of a candidate that raised, crashed or hung
  std::string reply = "{}";         // the worker's, as it came: JSON for the archive
  std::string where, source, hint;  // of one that raised: the line of its file, and what to do

  bool passed() const { return verdict.pass; }
};

// A candidate of the compiler's that passed because the original module ran in its place fails. Throws kUser where the
// problem itself cannot be run, and whatever is not the candidate's fault.
Judgement judge(Session& session, const VerifyRequest& request);

// The same of what a worker has answered.
Judgement judgement_of(const nlohmann::ordered_json& reply, Policy policy);

// Per output: eager's largest error over the draws, norm-relative. A network that amplifies rounding moves that far
// from run to run.
std::map<std::string, double> eager_errors(const Verdict& verdict);

}  // namespace kw
