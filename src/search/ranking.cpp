#include "search/ranking.hpp"

#include <algorithm>

namespace kw::search {

namespace {

constexpr double kBetter = 0.99;  // less than one percent is not worth another kernel

}  // namespace

bool Ranking::is_better(const Outcome& outcome) {
  return outcome.state == Outcome::State::kMeasured && outcome.ratio < kBetter && outcome.high < 1;
}

void Ranking::take(const Candidate& candidate, const Outcome& outcome) {
  Standing& standing = result_.standing;
  ++standing.tried;
  standing.reused += outcome.reused;
  standing.pruned += outcome.state == Outcome::State::kPruned;
  standing.failed += outcome.state == Outcome::State::kFailed;
  result_.trials.push_back({candidate.change, outcome});
  if (outcome.state == Outcome::State::kMeasured) known_.push_back({candidate, outcome});
}

const Ranking::Known* Ranking::find(const std::string& identity) const {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& one) { return one.candidate.identity == identity; });
  return found == known_.end() ? nullptr : &*found;
}

Ranking::Known* Ranking::leader() {
  Known* best = nullptr;
  for (Known& one : known_)
    if (!one.rejected && is_better(one.outcome) && (!best || one.outcome.ratio < best->outcome.ratio)) best = &one;
  return best;
}

void Ranking::settle_leader(double before, bool at_once) {
  Known* best = leader();
  if (best && best->outcome.ratio < kBetter * before) {
    result_.history.push_back(
        {evaluator_.seconds(), result_.standing.tried, best->outcome.ratio, best->candidate.change});
    if (!best->confirmed) settle(*best, at_once);
  }
  best = leader();
  result_.standing.best = best ? best->outcome.ratio : 1.0;
}

void Ranking::settle(Known& known, bool last) {
  const auto verdict = evaluator_.confirm(known.candidate, known.outcome.ratio, last);
  known.confirmed = verdict == Evaluator::Verdict::kPassed;
  known.rejected = verdict == Evaluator::Verdict::kFailed;
  if (known.rejected) ++result_.standing.failed;
}

SearchResult Ranking::finish() {
  Known* best = leader();
  while (best && !best->confirmed) {
    settle(*best, true);
    // Nobody may hang on to "later" at the end.
    if (!best->confirmed) best->rejected = true;
    best = leader();
  }
  result_.schedule = best ? best->candidate.schedule : first_;
  result_.ratio = result_.standing.best = best ? best->outcome.ratio : 1.0;
  return std::move(result_);
}

}  // namespace kw::search
