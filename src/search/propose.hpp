// Schedules that somebody else proposes (a language model, chance), evaluated as those of the search are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "search/search.hpp"

namespace kw::search {

struct Proposal {
  std::optional<Schedule> schedule;  // none: `fault` says what was wrong with the answer
  std::string change, fault;
  double expected = 1;  // its time relative to the first schedule's, as predicted
};

// What became of one.
struct Told {
  enum class Kind {
    kEvaluated,
    kRepeated,    // `outcome` is the earlier one's
    kPassedOver,  // others were expected to be faster, or it to be hopeless: not evaluated
    kUnfit,       // `reason`: no schedule, or parameters that do not go together
  };
  Kind kind = Kind::kUnfit;
  Outcome outcome;
  std::string identity, reason;
  bool verified = false, refused = false;  // by a verification; a slower one may have had none
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual int batch() const = 0;  // that are evaluated, built and raced together
  // For `count` evaluations; where there are more that are new, those that are expected to be fastest are evaluated.
  // Empty: there are no more.
  virtual std::vector<Proposal> propose(int count) = 0;
  virtual void told(const std::vector<Told>& outcomes) = 0;  // of the last batch, in its order
};

// Until `evaluations` schedules that differ have been evaluated, the first one not counted, or the proposer or the time
// is at an end. A better one is verified at once, if not all are.
SearchResult evaluate_proposals(const Schedule& first, Proposer& proposer, Evaluator& evaluator, int evaluations);

}  // namespace kw::search
