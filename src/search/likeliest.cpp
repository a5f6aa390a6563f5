#include "search/likeliest.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace kw::search {
namespace {

constexpr size_t kSpread = 128;  // that a descent begins with

class Descent {
 public:
  Descent(const GroupEntry& entry, const std::function<double(const plan::Parameters&)>& cost)
      : entry_(entry), cost_(cost) {
    for (const plan::ParameterRange& range : entry.space) count_ *= std::max<size_t>(range.values.size(), 1);
  }

  // Of which the price is known already.
  void take(const std::map<plan::Parameters, double>& known, const plan::Parameters& now) {
    for (const auto& [parameters, cost] : known) {
      plan::Parameters same = now;
      for (const plan::ParameterRange& range : entry_.space)
        if (const auto value = parameters.find(range.name); value != parameters.end()) same[range.name] = value->second;
      if (same != parameters) continue;
      const auto [place, added] = priced_.try_emplace(parameters, cost);
      if (added) order_.emplace(cost, &place->first);
    }
  }

  std::vector<Priced> run(const plan::Parameters& now) {
    if (priced_.size() >= kMostPriced) {
      price(now);
    } else if (count_ <= kMostPriced) {
      for (size_t number = 0; number < count_; ++number) price(numbered(now, number));
    } else {
      price(now);
      plan::Parameters defaults = now;  // what is not in the space is no choice of the search
      for (const plan::ParameterRange& range : entry_.space)
        if (const auto usual = entry_.defaults.find(range.name); usual != entry_.defaults.end())
          defaults[range.name] = usual->second;
      price(defaults);
      // By the golden ratio: however many they are, they stand evenly along every parameter.
      constexpr double kGolden = 0.6180339887498949;
      for (size_t point = 1; point <= kSpread; ++point) {
        const double share = std::fmod(kGolden * static_cast<double>(point), 1.0);
        price(numbered(now, std::min(static_cast<size_t>(share * static_cast<double>(count_)), count_ - 1)));
      }
      while (const plan::Parameters* best = next()) look_around(*best);
    }
    std::vector<Priced> found;
    for (const auto& [cost, parameters] : order_)
      if (std::isfinite(cost)) found.push_back({cost, *parameters});
    return found;
  }

 private:
  plan::Parameters numbered(plan::Parameters parameters, size_t number) const {
    for (const plan::ParameterRange& range : entry_.space) {
      if (range.values.empty()) continue;
      parameters[range.name] = range.values[number % range.values.size()];
      number /= range.values.size();
    }
    return parameters;
  }

  void price(const plan::Parameters& parameters) {
    const auto [place, added] = priced_.try_emplace(parameters, 0.0);
    if (!added) return;
    place->second = cost_(parameters);
    order_.emplace(place->second, &place->first);
  }

  // The cheapest that nobody has looked around, while there is room for its neighbours.
  const plan::Parameters* next() {
    if (priced_.size() >= kMostPriced) return nullptr;
    for (const auto& [cost, parameters] : order_)
      if (std::isfinite(cost) && looked_.insert(parameters).second) return parameters;
    return nullptr;
  }

  void look_around(const plan::Parameters& best) {
    for (const plan::ParameterRange& range : entry_.space)
      for (const int64_t value : range.values) {
        plan::Parameters changed = best;
        changed[range.name] = value;
        price(changed);
      }
  }

  // By cost, and where that is equal by the parameters themselves.
  struct Cheaper {
    using Entry = std::pair<double, const plan::Parameters*>;
    bool operator()(const Entry& left, const Entry& right) const {
      return left.first != right.first ? left.first < right.first : *left.second < *right.second;
    }
  };

  const GroupEntry& entry_;
  const std::function<double(const plan::Parameters&)>& cost_;
  size_t count_ = 1;
  std::map<plan::Parameters, double> priced_;
  std::set<std::pair<double, const plan::Parameters*>, Cheaper> order_;
  std::set<const plan::Parameters*> looked_;
};

}  // namespace

std::vector<Priced> likeliest(const GroupEntry& entry, const plan::Parameters& now,
                              const std::function<double(const plan::Parameters&)>& cost,
                              const std::map<plan::Parameters, double>& known) {
  Descent descent(entry, cost);
  descent.take(known, now);
  return descent.run(now);
}

}  // namespace kw::search
