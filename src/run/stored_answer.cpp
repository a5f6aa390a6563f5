#include "run/stored_answer.hpp"

#include <algorithm>

#include "targets/targets.hpp"

namespace kw {

namespace {

// Has a search of at least this length, or one that left nothing to try, found the stored answer?
bool is_searched_enough(const std::optional<SearchOutcome>& search, double seconds) {
  return search && (search->is_exhausted || search->budget_seconds >= seconds);
}

}  // namespace

bool may_come_from_archive(const OptimizeOptions& options) {
  return !options.fresh && !options.emit_only && !options.seed && options.draws <= 0 &&
         options.disabled_passes.empty() && options.schedule.empty();
}

bool answers(const Report& stored, const OptimizeOptions& options) {
  const Target* target = find_target(stored.target);
  if (target && target->has_cuda_graphs() && (stored.graphs.empty() ? "off" : stored.graphs) != options.graphs)
    return false;
  if (options.budget_seconds > 0 &&
      !std::ranges::all_of(options.baselines, [&](const auto& one) { return stored.timing.answers_for(one); }))
    return false;
  return options.search_seconds() <= 0 || is_searched_enough(stored.searches.search, options.search_seconds());
}

}  // namespace kw
