#include "search/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "plan/schedule_json.hpp"
#include "search/moves.hpp"
#include "search/ranking.hpp"
#include "support/hash.hpp"

namespace kw::search {

namespace {

constexpr double kWorthExpanding = 1.1;  // of the best

class Search {
 public:
  Search(Catalogue& catalogue, const Schedule& first, Evaluator& evaluator, const SearchOptions& options)
      : catalogue_(catalogue), first_(first), evaluator_(evaluator), options_(options), ranking_(first, evaluator) {}

  SearchResult run(std::vector<Candidate> given) {
    seen_.insert(evaluator_.identity(first_));
    for (Candidate& candidate : given) {
      candidate.expected = 0.0;
      offer(std::move(candidate), false);
    }
    expand(first_, 1.0, true);
    std::vector<Candidate> batch = pick();
    if (!batch.empty()) evaluator_.prepare(batch);
    while (!batch.empty() && evaluator_.has_time()) {
      std::vector<Candidate> next = pick();
      if (!next.empty()) evaluator_.prepare(next);
      const Ranking::Known* best = ranking_.leader();
      take(batch, evaluator_.measure(batch, best ? &best->candidate : nullptr));
      batch = std::move(next);
      // What was just learnt may offer something new where nothing was left.
      if (batch.empty() && !(batch = pick()).empty()) evaluator_.prepare(batch);
    }
    ranking_.result().exhausted = batch.empty() && !full();
    return ranking_.finish();
  }

 private:
  // Frontier

  double tie(const Schedule& schedule) const {
    const std::string hash = sha256_hex(std::to_string(options_.seed) + schedule_to_json(schedule));
    return static_cast<double>(std::stoul(hash.substr(0, 7), nullptr, 16)) / static_cast<double>(0xfffffff);
  }

  void offer(Candidate candidate, bool regroups) {
    if (!std::isfinite(candidate.expected) || candidate.expected > options_.hopeless) return;
    const std::string key = schedule_to_json(candidate.schedule);
    if (popped_.contains(key)) return;
    const auto known = waiting_.find(key);
    if (known != waiting_.end()) {
      if (known->second.first <= candidate.expected) return;
      auto& queue = known->second.second ? groupings_ : frontier_;
      queue.erase(Order{known->second.first, tie(candidate.schedule), key});
    }
    waiting_[key] = {candidate.expected, regroups};
    (regroups ? groupings_ : frontier_)
        .emplace(Order{candidate.expected, tie(candidate.schedule), key}, std::move(candidate));
  }

  void offer_moves(std::vector<Move> moves, double ratio, double seconds) {
    for (Move& move : moves) {
      const double expected = ratio * move.seconds / seconds;
      offer({std::move(move.schedule), std::move(move.change), "", expected}, move.regroups);
    }
  }

  // `schedule` takes `ratio` of the first one's time: so its neighbours are expected to.
  void expand(const Schedule& schedule, double ratio, bool anew) {
    if (options_.only_given) return;
    const double seconds = catalogue_.seconds(schedule);
    if (!(seconds > 0) || !std::isfinite(seconds)) return;
    offer_moves(parameter_moves(catalogue_, schedule), ratio, seconds);
    if (!anew) return;
    offer_moves(promising_moves(catalogue_, schedule, options_.promising), ratio, seconds);
    offer_moves(grouping_moves(catalogue_, schedule, options_.regroupings), ratio, seconds);
  }

  struct Order {
    double expected, tie;
    std::string key;
    auto operator<=>(const Order&) const = default;
  };
  using Queue = std::map<Order, Candidate>;

  bool pop(Queue& queue, std::vector<Candidate>& batch) {
    while (!queue.empty()) {
      const auto place = queue.begin();
      Candidate candidate = std::move(place->second);
      popped_.insert(place->first.key);
      waiting_.erase(place->first.key);
      queue.erase(place);
      candidate.identity = evaluator_.identity(candidate.schedule);
      if (candidate.identity.empty() || !seen_.insert(candidate.identity).second) continue;
      batch.push_back(std::move(candidate));
      ++picked_;
      return true;
    }
    return false;
  }

  // The most promising first; of every batch, one in three is another grouping, since the model knows least about
  // those.
  std::vector<Candidate> pick() {
    std::vector<Candidate> batch;
    while (static_cast<int>(batch.size()) < options_.batch && !full()) {
      const bool regroup = batch.size() % 3 == 2;
      if (!pop(regroup ? groupings_ : frontier_, batch) && !pop(regroup ? frontier_ : groupings_, batch)) break;
    }
    return batch;
  }

  // Outcomes

  void take(const std::vector<Candidate>& batch, const std::vector<Outcome>& outcomes) {
    const double before = ranking_.best();
    std::vector<size_t> improving;
    for (size_t i = 0; i < batch.size(); ++i) {
      ranking_.take(batch[i], outcomes[i]);
      if (Ranking::is_better(outcomes[i])) improving.push_back(i);
    }
    ranking_.settle_leader(before, false);
    const double best = ranking_.best();
    for (size_t i = 0; i < batch.size(); ++i)
      if (outcomes[i].state == Outcome::State::kMeasured && outcomes[i].ratio <= kWorthExpanding * best)
        expand(batch[i].schedule, outcomes[i].ratio, regrouped(batch[i].schedule));
    combine(batch, outcomes, improving);
    evaluator_.report(ranking_.result().standing);
  }

  bool regrouped(const Schedule& schedule) const {
    if (schedule.groups.size() != first_.groups.size()) return true;
    for (size_t group = 0; group < schedule.groups.size(); ++group)
      if (schedule.groups[group].nodes != first_.groups[group].nodes) return true;
    return false;
  }

  // Improvements of different groups add up.
  void combine(const std::vector<Candidate>& batch, const std::vector<Outcome>& outcomes,
               const std::vector<size_t>& improving) {
    const Ranking::Known* best = ranking_.leader();
    if (!best) return;
    const Schedule base = best->candidate.schedule;
    const double base_ratio = best->outcome.ratio;
    for (const size_t i : improving) {
      const Schedule& other = batch[i].schedule;
      if (other.groups.size() != base.groups.size()) continue;
      Schedule both = base;
      bool same_groups = true;
      for (size_t group = 0; group < base.groups.size(); ++group) {
        same_groups = same_groups && base.groups[group].nodes == other.groups[group].nodes &&
                      base.groups[group].scheduler == other.groups[group].scheduler;
        if (same_groups && group < first_.groups.size() && first_.groups[group].nodes == base.groups[group].nodes &&
            base.groups[group].parameters == first_.groups[group].parameters)
          both.groups[group].take(other.groups[group].parameters);
      }
      if (same_groups && both != base)
        offer({std::move(both), batch[i].change + ", together", "", base_ratio * outcomes[i].ratio}, false);
    }
  }

  bool full() const { return options_.most > 0 && picked_ >= options_.most; }

  Catalogue& catalogue_;
  const Schedule& first_;
  Evaluator& evaluator_;
  const SearchOptions& options_;
  Queue frontier_, groupings_;
  std::map<std::string, std::pair<double, bool>> waiting_;  // schedule → where it stands: expected, among the groupings
  std::set<std::string> popped_, seen_;                     // schedules; identities
  Ranking ranking_;
  int picked_ = 0;
};

}  // namespace

SearchResult search(Catalogue& catalogue, const Schedule& first, std::vector<Candidate> given, Evaluator& evaluator,
                    const SearchOptions& options) {
  return Search(catalogue, first, evaluator, options).run(std::move(given));
}

}  // namespace kw::search
