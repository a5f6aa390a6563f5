// Products whose operand is what another kernel of ours makes: that kernel stores it as halves, which spares the one
// that would read it and split it, and the operand itself where nothing else reads it.
#pragma once

#include <map>
#include <vector>

#include "plan/concatenation.hpp"
#include "plan/domain.hpp"
#include "plan/schedule.hpp"
#include "plan/scheduler.hpp"
#include "target/device.hpp"

namespace kw::plan {

struct HalvesByProducers {
  // A group whose kernels store halves, too. What folded nothing folds its rows then, and is another scheduler's.
  struct Producer {
    LoweredGroup group;
    const Scheduler* scheduler = nullptr;
    Parameters parameters;
    std::vector<int> tensors;  // those that it stores, by their places in `tensors`
  };
  std::map<size_t, Producer> producers;                 // by their groups in the schedule
  std::map<size_t, std::vector<StoredHalves>> readers;  // groups of products → operands that come as halves
  std::vector<Scratch> tensors;                         // whose numbers follow those of the graph's values
};

// Of the schedule's groups, which store `outputs`. A kernel stores halves of a value where
//
// - it is one of elements or rows that are wholly its own, no product's, scan's or scatter's,
// - rows of the value as products read them are what the kernel folds, or it folds nothing and can have these,
// - rows are whole vectors of halves, and the value does not lie in the place of a concatenation's part, and
// - it takes less time by the cost model than it does now together with the kernel that is spared.
//
// A group whose schedule has one for the kernel that splits keeps that kernel. Where readers split the value in several
// ways, the way of most of them is taken.
HalvesByProducers halves_by_producers(const GraphFacts& facts, const Schedule& schedule,
                                      const std::vector<std::vector<ValueId>>& outputs,
                                      const std::map<ValueId, Place>& places, const DeviceDescription& device);

// The group, storing also halves of `value`, in tensors of these numbers; the value itself, where `halves.whole` is a
// tensor, only in those rows of which halves do not hold all digits. nullopt: see above.
std::optional<LoweredGroup> storing_halves(const LoweredGroup& group, const StoredHalves& halves);

}  // namespace kw::plan
