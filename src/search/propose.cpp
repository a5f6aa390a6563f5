#include "search/propose.hpp"

#include <algorithm>
#include <map>

#include "search/ranking.hpp"

namespace kw::search {

SearchResult evaluate_proposals(const Schedule& first, Proposer& proposer, Evaluator& evaluator, int evaluations) {
  Ranking ranking(first, evaluator);
  std::map<std::string, Outcome> known;  // by identity
  const std::string own = evaluator.identity(first);
  known[own] = {Outcome::State::kMeasured, 1, 1, 1, false, ""};
  while (ranking.result().standing.tried < evaluations && evaluator.has_time()) {
    const int wanted = std::min(proposer.batch(), evaluations - ranking.result().standing.tried);
    const std::vector<Proposal> proposals = proposer.propose(wanted);
    if (proposals.empty()) break;
    std::vector<Told> told(proposals.size());
    std::vector<size_t> fresh;  // not known from earlier batches, nor from this one: the second of two that are the
                                // same is a repetition
    for (size_t i = 0; i < proposals.size(); ++i) {
      told[i].reason = proposals[i].fault;
      if (!proposals[i].schedule) continue;
      told[i].identity = evaluator.identity(*proposals[i].schedule);
      if (told[i].identity.empty()) {
        told[i].reason = evaluator.unfit();
        continue;
      }
      const bool repeated = known.contains(told[i].identity) ||
                            std::any_of(fresh.begin(), fresh.end(),
                                        [&](size_t other) { return told[other].identity == told[i].identity; });
      told[i].kind = repeated ? Told::Kind::kRepeated : Told::Kind::kPassedOver;
      if (!repeated) fresh.push_back(i);
    }
    std::erase_if(fresh, [&](size_t i) { return !(proposals[i].expected <= kHopeless); });
    std::stable_sort(fresh.begin(), fresh.end(),
                     [&](size_t left, size_t right) { return proposals[left].expected < proposals[right].expected; });
    fresh.resize(std::min(fresh.size(), static_cast<size_t>(wanted)));
    std::vector<Candidate> batch;
    for (const size_t i : fresh) {
      told[i].kind = Told::Kind::kEvaluated;
      batch.push_back({*proposals[i].schedule, proposals[i].change, told[i].identity, proposals[i].expected});
    }
    if (!batch.empty()) {
      evaluator.prepare(batch);
      const Ranking::Known* leader = ranking.leader();
      const double before = ranking.best();
      const std::vector<Outcome> outcomes = evaluator.measure(batch, leader ? &leader->candidate : nullptr);
      for (size_t i = 0; i < batch.size(); ++i) {
        known[batch[i].identity] = outcomes[i];
        ranking.take(batch[i], outcomes[i]);
      }
      ranking.settle_leader(before, true);
    }
    for (Told& one : told) {
      const auto found = known.find(one.identity);
      if (found != known.end()) {
        one.outcome = found->second;
        const Ranking::Known* ranked = ranking.find(one.identity);
        one.refused = ranked && ranked->rejected;
        one.verified = one.outcome.state != Outcome::State::kFailed && !one.refused &&
                       (one.identity == own || (ranked && ranked->confirmed) || evaluator.verifies());
      } else if (one.kind == Told::Kind::kRepeated) one.kind = Told::Kind::kPassedOver;  // as the one before it
    }
    proposer.told(told);
    evaluator.report(ranking.result().standing);
  }
  return ranking.finish();
}

}  // namespace kw::search
