// Random kernels that carry states along an ordered axis, as recurrent layers do.
#pragma once

#include <string>
#include <vector>

#include "random_kernels.hpp"

namespace kw::lower {

// One or two states of a batch's units, which a step makes of those before it, in their own place or over all units.
class RandomRecurrence {
 public:
  explicit RandomRecurrence(Random& random)
      : random_(random), builder_("random_recurrence"), dtype_(random.pick(std::vector{DType::f32, DType::f64})) {
    step_ = builder_.axis("step", Index(random_.chance(0.05) ? 0 : 1 + random_.below(6)), true);
    if (random_.chance(0.7)) of_state_.push_back(builder_.axis("batch", Index(1 + random_.below(5))));
    const Index units(1 + random_.below(8));
    unit_ = builder_.axis("unit", units);
    source_ = builder_.axis("source", units);
    of_state_.push_back(unit_);
    of_step_ = of_state_;
    of_step_.insert(of_step_.begin(), step_);
    for (const std::vector<Symbol>& over : {of_step_, of_state_, std::vector<Symbol>{unit_, source_}}) {
      const std::string name = "x" + std::to_string(inputs_.size());
      inputs_.push_back({buffer(name, over, BufferRole::kInput), over});
    }
  }

  Kernel make() {
    const int64_t count = 1 + random_.below(2);
    for (int64_t i = 0; i < count; ++i)
      states_.push_back(builder_.state("h" + std::to_string(i), dtype_, of_state_, step_, load(1)));
    for (const int state : states_) {
      // Bounded, so that no step is a matter of the last one's last places.
      next_.push_back(builder_.op(ScalarOp::kSin, {builder_.op(ScalarOp::kAdd, {value(2), value(1)})}));
      builder_.set_next(state, next_.back());
    }
    const int every = buffer("y0", of_step_, BufferRole::kOutput);
    builder_.store(at(every, of_step_), random_.chance(0.6) ? random_.pick(next_) : value(2));
    if (const Index steps = builder_.kernel().symbols[step_].extent; steps != Index(0) && random_.chance(0.4)) {
      Access last = at(buffer("y1", of_state_, BufferRole::kOutput), of_state_);
      last.mask = builder_.op(ScalarOp::kEqual,
                              {builder_.index(kernel::symbol_index(step_)), builder_.index(steps - Index(1))});
      builder_.store(last, random_.pick(next_));
    }
    return builder_.finish();
  }

  // Mostly what can be kept: steps one after the other, and where a step reads all units, these in one block.
  KernelSchedule schedule(const Kernel& kernel) {
    KernelSchedule schedule = random_schedule(random_, kernel);
    if (random_.chance(0.1)) return schedule;
    const std::vector<Symbol> axes = kernel::axes_of(kernel);
    const int64_t width = random_.pick(std::vector<int64_t>{8, 16});
    for (size_t place = 0; place < axes.size(); ++place) {
      AxisSchedule& one = schedule.axes[place];
      const bool is_step = kernel.symbols[axes[place]].ordered;
      if (!is_step && kernel.symbols[axes[place]].name == "batch" && one.mapping != Mapping::kLoop) continue;
      one = AxisSchedule{};
      one.mapping = is_step ? Mapping::kLoop : Mapping::kTile;
      one.width = is_step ? 1 : width;
    }
    return schedule;
  }

 private:
  struct Input {
    int buffer;
    std::vector<Symbol> over;
  };

  int buffer(const std::string& name, const std::vector<Symbol>& over, BufferRole role) {
    std::vector<Index> shape;
    for (Symbol axis : over) shape.push_back(builder_.kernel().symbols[axis].extent);
    return builder_.buffer(name, dtype_, shape, role);
  }

  static Access at(int buffer, const std::vector<Symbol>& over) {
    Access access;
    access.buffer = buffer;
    for (Symbol axis : over) access.coordinates.push_back({kernel::symbol_index(axis), -1});
    return access;
  }

  ExprId load(size_t input) { return builder_.load(at(inputs_[input].buffer, inputs_[input].over)); }

  ExprId previous(Symbol unit) {
    std::vector<Index> coordinates;
    for (Symbol axis : of_state_) coordinates.push_back(kernel::symbol_index(axis == unit_ ? unit : axis));
    return builder_.previous(random_.pick(states_), coordinates);
  }

  ExprId value(int depth) {
    if (depth == 0) return random_.chance(0.5) ? previous(unit_) : load(static_cast<size_t>(random_.below(2)));
    switch (random_.below(6)) {
      case 0: return builder_.op(ScalarOp::kAdd, {value(depth - 1), value(depth - 1)});
      case 1: return builder_.op(ScalarOp::kMul, {value(depth - 1), value(depth - 1)});
      case 2: return builder_.op(ScalarOp::kMaximum, {value(depth - 1), value(depth - 1)});
      case 3: return builder_.dot(previous(source_), load(2), {source_});
      case 4: {
        const ReduceOp reduce = random_.pick(std::vector{ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum});
        return builder_.reduce(reduce, {builder_.op(ScalarOp::kMul, {previous(source_), load(2)})}, {source_});
      }
      default: return builder_.op(ScalarOp::kSin, {value(depth - 1)});
    }
  }

  Random& random_;
  Builder builder_;
  DType dtype_;
  Symbol step_, unit_, source_;
  std::vector<Symbol> of_state_, of_step_;
  std::vector<Input> inputs_;
  std::vector<int> states_;
  std::vector<ExprId> next_;
};

}  // namespace kw::lower
