#include "search/relief.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/op_table.hpp"
#include "search/likeliest.hpp"

namespace kw::search {
namespace {

constexpr double kFewer = 0.8;  // of the registers: less of a change would spill as well
constexpr int kMostCuts = 2;    // of each group
constexpr int kCutsLookedAt = 6;
constexpr double kHour = 3600.0;  // longer than any kernel

}  // namespace

std::vector<Move> relief_moves(Catalogue& catalogue, const Schedule& schedule, const std::vector<size_t>& spilling,
                               int most) {
  if (spilling.empty()) return {};
  const auto outputs = stored_values(catalogue.facts(), nodes_of(schedule));
  const double total = catalogue.seconds(schedule);
  std::vector<Move> moves;
  std::set<std::pair<std::string, plan::Parameters>> done;
  for (const size_t group : spilling) {
    const GroupSchedule& now = schedule.groups[group];
    GroupEntry* entry = catalogue.find(now.nodes, outputs[group]);
    if (!entry || !entry->scheduler || !done.emplace(entry->text, now.parameters).second) continue;
    std::vector<size_t> alike;
    for (size_t other = 0; other < schedule.groups.size(); ++other) {
      const GroupEntry* its = catalogue.find(schedule.groups[other].nodes, outputs[other]);
      if (its && its->text == entry->text && schedule.groups[other].parameters == now.parameters)
        alike.push_back(other);
    }
    const double before = catalogue.seconds(*entry, now.parameters),
                 registers = catalogue.registers(*entry, now.parameters);
    std::set<double> seen{before};  // equal to the last digit: the same kernel
    const double most_registers = kFewer * registers;
    // Those that ask for too many come last, by how many that is.
    const auto cost = [&](const plan::Parameters& parameters) {
      const double asked = catalogue.registers(*entry, parameters);
      return asked > most_registers ? kHour * asked : catalogue.seconds(*entry, parameters);
    };
    for (const auto& [seconds, parameters] : likeliest(*entry, now.parameters, cost)) {
      if (seconds >= kHour || !seen.insert(seconds).second) continue;
      Move move{schedule,
                fmt::format("{}: {}", base_name(catalogue.graph().nodes[now.nodes.back()]),
                            text_of(parameters, now.parameters)),
                false, total + (seconds - before) * static_cast<double>(alike.size())};
      for (const size_t same : alike) move.schedule.groups[same].take(parameters);
      moves.push_back(std::move(move));
    }
  }
  const auto faster = [](const Move& left, const Move& right) { return left.seconds < right.seconds; };
  std::stable_sort(moves.begin(), moves.end(), faster);
  // Room for cuts: the model knows nothing of what a long formula keeps in registers.
  std::vector<Move> cuts;
  for (Move& move : grouping_moves(catalogue, schedule, kCutsLookedAt)) {
    const auto stays = [&](size_t group) {
      return std::any_of(move.schedule.groups.begin(), move.schedule.groups.end(), [&](const GroupSchedule& one) {
        return std::includes(one.nodes.begin(), one.nodes.end(), schedule.groups[group].nodes.begin(),
                             schedule.groups[group].nodes.end());
      });
    };
    if (std::none_of(spilling.begin(), spilling.end(), stays)) cuts.push_back(std::move(move));
  }
  std::stable_sort(cuts.begin(), cuts.end(), faster);
  const size_t cut = std::min<size_t>(cuts.size(), kMostCuts), rest = static_cast<size_t>(std::max(most, 0));
  moves.resize(std::min(moves.size(), rest - std::min(rest, cut)));
  moves.insert(moves.end(), std::make_move_iterator(cuts.begin()),
               std::make_move_iterator(cuts.begin() + static_cast<std::ptrdiff_t>(std::min(cut, rest))));
  return moves;
}

}  // namespace kw::search
