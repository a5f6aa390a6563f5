// What was evaluated so far, and which of it stands: the bookkeeping that every way of proposing schedules has in
// common.
#pragma once

#include <vector>

#include "search/search.hpp"

namespace kw::search {

class Ranking {
 public:
  Ranking(const Schedule& first, Evaluator& evaluator) : first_(first), evaluator_(evaluator) {}

  struct Known {
    Candidate candidate;
    Outcome outcome;
    bool confirmed = false, rejected = false;
  };

  void take(const Candidate& candidate, const Outcome& outcome);
  // After a batch: what is better than before goes into the history and is verified, or with `at_once` false when the
  // evaluator likes.
  void settle_leader(double before, bool at_once);
  Known* leader();  // the best that has not been rejected; nullptr: the first schedule
  const Known* find(const std::string& identity) const;  // nullptr: not measured, or the first
  double best() { return leader() ? leader()->outcome.ratio : 1.0; }
  static bool is_better(const Outcome& outcome);

  SearchResult finish();  // decides what is still open
  SearchResult& result() { return result_; }

 private:
  void settle(Known& known, bool last);
  const Schedule& first_;
  Evaluator& evaluator_;
  std::vector<Known> known_;
  SearchResult result_;
};

}  // namespace kw::search
