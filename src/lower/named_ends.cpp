#include "lower/named_ends.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace kw::lower {
namespace {

class EndNaming {
 public:
  EndNaming(const tile::Program& program, LoopPlan& plan) : program_(program), plan_(plan) {}

  void run() {
    walk(plan_.body);
    take_numbers(plan_.body);
  }

 private:
  // What a block names ends with it.
  void walk(std::vector<LoopStep>& steps) {
    const std::vector<int> around = known_;
    for (LoopStep& step : steps) {
      if (step.transposes) name(step, step.body[0]);
      if (!step.instruction) name(step, step);
      if (!step.transposes && !step.moves && !step.instruction) name_inside(step, step.body, step.lane);
      if (!step.transposes) walk(step.body);
      walk(step.otherwise_body);
    }
    known_ = around;
  }

  // Of loops inside, where no iteration of the one over the lane has another.
  void name_inside(LoopStep& before, std::vector<LoopStep>& steps, tile::Symbol lane) {
    for (LoopStep& step : steps) {
      if (step.instruction || kernel::uses(step.end, lane)) continue;
      name(before, step);
      name_inside(before, step.body, lane);
    }
  }

  void name(LoopStep& before, LoopStep& loop) {
    if (!loop.ends_early || (!loop.whole_vectors && kernel::as_constant(loop.end))) return;
    const auto is_same = [&](int end) {
      const NamedEnd& one = plan_.named_ends[end];
      return one.end == loop.end && one.whole_vectors == loop.whole_vectors &&
             (loop.whole_vectors || tile::width_of(program_, one.lane) == tile::width_of(program_, loop.lane));
    };
    const auto found = std::find_if(known_.begin(), known_.end(), is_same);
    if (found != known_.end()) {
      loop.end_name = *found;
      return;
    }
    loop.end_name = static_cast<int>(plan_.named_ends.size());
    plan_.named_ends.push_back(
        {loop.lane, loop.end, loop.whole_vectors, points_until(program_, loop.lane, loop.end, loop.whole_vectors)});
    before.named_ends.push_back(loop.end_name);
    known_.push_back(loop.end_name);
  }

  static std::optional<int64_t> number_of(const LaneBound& bound) {
    const auto dividend = kernel::as_constant(bound.dividend);
    return dividend && bound.value == tile::kNoValue ? std::optional(*dividend / bound.divisor) : std::nullopt;
  }

  // Of several numbers the narrowest counts.
  void take_numbers(std::vector<LoopStep>& steps) const {
    for (LoopStep& step : steps) {
      take_numbers(step.body);
      take_numbers(step.otherwise_body);
      if (step.instruction) continue;
      for (const LaneBound& bound : step.begins) step.first = std::max(step.first, number_of(bound).value_or(0));
      std::erase_if(step.begins, [](const LaneBound& bound) { return number_of(bound).has_value(); });
      if (step.end_name >= 0) continue;
      step.last = tile::width_of(program_, step.lane);
      if (step.ends_early) step.last = std::min(step.last, step.end.constant);
      for (const LaneBound& bound : step.ends) step.last = std::min(step.last, number_of(bound).value_or(step.last));
      std::erase_if(step.ends, [](const LaneBound& bound) { return number_of(bound).has_value(); });
    }
  }

  const tile::Program& program_;
  LoopPlan& plan_;
  std::vector<int> known_;  // in the block, and those around
};

}  // namespace

tile::Index points_until(const tile::Program& program, tile::Symbol lane, const tile::Index& end, bool whole_vectors) {
  if (whole_vectors) return end;
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  const tile::Index width(tile::width_of(program, lane)), start = tile::Index(end.constant) - end;
  // g++ does two iterations of a loop around at once only where the length is a difference of ends.
  if (kernel::as_symbol(start)) return kernel::minimum(start + width, end.constant, ranges) - start;
  return kernel::minimum(width, end, ranges);
}

void name_ends(const tile::Program& program, LoopPlan& plan) { EndNaming(program, plan).run(); }

}  // namespace kw::lower
