#include "lower/named_ends.hpp"

#include <algorithm>
#include <utility>

namespace kw::lower {
namespace {

class EndNaming {
 public:
  EndNaming(const tile::Program& program, LoopPlan& plan) : program_(program), plan_(plan) {}

  void run() { walk(plan_.body); }

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
    plan_.named_ends.push_back({loop.lane, loop.end, loop.whole_vectors});
    before.named_ends.push_back(loop.end_name);
    known_.push_back(loop.end_name);
  }

  const tile::Program& program_;
  LoopPlan& plan_;
  std::vector<int> known_;  // in the block, and those around
};

}  // namespace

void name_ends(const tile::Program& program, LoopPlan& plan) { EndNaming(program, plan).run(); }

}  // namespace kw::lower
