#include "search/propose.hpp"

#include <algorithm>
#include <map>

#include "search/ranking.hpp"

namespace kw::search {

SearchResult evaluate_proposals(const Schedule& first, Proposer& proposer, Evaluator& evaluator, int evaluations) {
  Ranking ranking(first, evaluator);
  std::map<std::string, Outcome> known;   // by identity
  known[evaluator.identity(first)] = {Outcome::State::kMeasured, 1, 1, 1, false, ""};
  while (ranking.result().standing.tried < evaluations && evaluator.has_time()) {
    const std::vector<Proposal> proposals = proposer.propose(std::min(proposer.batch(), evaluations - ranking.result().standing.tried));
    if (proposals.empty()) break;
    std::vector<Told> told(proposals.size());
    std::vector<Candidate> batch;
    std::vector<std::string> asked;        // identities of this batch: the second of two that are the same is a repetition
    for (size_t i = 0; i < proposals.size(); ++i) {
      told[i].reason = proposals[i].fault;
      if (!proposals[i].schedule) continue;
      told[i].identity = evaluator.identity(*proposals[i].schedule);
      if (told[i].identity.empty()) {
        told[i].reason = evaluator.unfit();
        continue;
      }
      told[i].kind = Told::Kind::kRepeated;
      if (known.contains(told[i].identity) || std::find(asked.begin(), asked.end(), told[i].identity) != asked.end()) continue;
      told[i].kind = Told::Kind::kEvaluated;
      asked.push_back(told[i].identity);
      batch.push_back({*proposals[i].schedule, proposals[i].change, told[i].identity, 1});
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
    for (Told& one : told)
      if (!one.identity.empty()) one.outcome = known.at(one.identity);
    proposer.told(told);
    evaluator.report(ranking.result().standing);
  }
  return ranking.finish();
}

}  // namespace kw::search
