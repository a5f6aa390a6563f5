#include "plan/linear_steps.hpp"

#include <algorithm>

#include "plan/scheduled_draft.hpp"

namespace kw::plan {
namespace {

using kernel::BufferRole;
using kernel::ExprId;
using kernel::Index;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

class LinearStepKernel : ProductKernels {
 public:
  LinearStepKernel(const LoweredGroup& group, const LinearStepBlocks& blocks)
      : ProductKernels(group, operands_of(*group.recurrence->linear)),
        one_(*group.recurrence->linear),
        steps_(group.recurrence->steps),
        blocks_(blocks),
        draft_(group.kernel.name, group.kernel.doc) {}

  ScheduledGroup run() {
    kernel::Builder& build = draft_.build;
    declare_elements();
    const int64_t together = std::clamp<int64_t>(blocks_.prefetch, 1, steps_);
    const Symbol step = draft_.mapped("step", ceil_divide(steps_, together) * together,
                                      {.mapping = Mapping::kLoop, .width = 1, .prefetch = together}, true);
    const ExprId first = draft_.load(operand(one_.first, one_.shape), places_);
    const int state = build.state("state", DType::f32, symbols_, step, first);
    std::vector<Index> own;
    for (const Symbol symbol : symbols_) own.push_back(symbol_index(symbol));
    const ExprId before = build.previous(state, own);
    const ExprId decay = one_.decay ? of_step(*one_.decay, step) : build.constant(DType::f32, one_.factor);
    const bool adds_up = !one_.decay && one_.factor == 1.0;
    const ExprId kept = adds_up ? before : build.op(ScalarOp::kMul, {decay, before});
    const ExprId next = build.named("next", build.op(ScalarOp::kAdd, {kept, of_step(one_.input, step)}));
    build.set_next(state, next);
    store(step, next);
    draft_.schedule.warps = blocks_.warps;
    ProductKernels::finish(draft_, draft_.schedule);
    return std::move(result_);
  }

 private:
  static std::vector<const ProductOperand*> operands_of(const LinearSteps& one) {
    std::vector<const ProductOperand*> operands = {&one.input.lies, &one.first.lies};
    if (one.decay) operands.push_back(&one.decay->lies);
    return operands;
  }

  // Blocks of lanes along all axes as one, or along the last one.
  void declare_elements() {
    const int64_t all = product(one_.shape);
    const auto blocks_of = [&](int64_t extent) {
      const int64_t most = blocks_.flat ? next_power_of_two(extent) : extent;  // a GPU's tiles are powers of two
      return draft_.mapped("element", extent, {.mapping = Mapping::kGrid, .width = std::min(blocks_.lanes, most)});
    };
    if (blocks_.flat) {
      symbols_ = {blocks_of(all)};
      const Digits at(draft_, symbol_index(symbols_[0]), one_.shape);
      for (size_t axis = 0; axis < one_.shape.size(); ++axis) places_.push_back(at[axis]);
      return;
    }
    for (size_t axis = 0; axis + 1 < one_.shape.size(); ++axis)
      symbols_.push_back(draft_.mapped("axis" + std::to_string(axis), one_.shape[axis], {}));
    symbols_.push_back(blocks_of(one_.shape.back()));
    for (const Symbol symbol : symbols_) places_.push_back(symbol_index(symbol));
  }

  Shape with_steps() const {
    Shape shape = one_.shape;
    shape.insert(shape.begin(), steps_);
    return shape;
  }

  std::vector<Index> places_at(Symbol step) const {
    std::vector<Index> places = places_;
    places.insert(places.begin(), symbol_index(step));
    return places;
  }

  int operand(const StridedOperand& from, const Shape& shape) {
    return draft_.buffer(from.lies.name, from.lies.dtype, shape, from.strides, BufferRole::kInput, from.lies.root,
                         from.lies.offset);
  }

  ExprId of_step(const StridedOperand& from, Symbol step) {
    return draft_.load(operand(from, with_steps()), places_at(step));
  }

  void store(Symbol step, ExprId next) {
    kernel::Builder& build = draft_.build;
    const int made = draft_.buffer("states", DType::f32, one_.every ? with_steps() : one_.shape, one_.result.strides,
                                   BufferRole::kOutput, one_.result.value);
    if (one_.every) {
      draft_.store(made, places_at(step), next, draft_.within(made, places_at(step)));
      return;
    }
    const ExprId is_last = build.op(ScalarOp::kEqual,
                                    {build.index(symbol_index(step)), build.constant(DType::i32, steps_ - 1)});
    draft_.store(made, places_, next, is_last);
  }

  const LinearSteps& one_;
  const int64_t steps_;
  const LinearStepBlocks& blocks_;
  ScheduledDraft draft_;
  std::vector<Symbol> symbols_;  // axes of elements
  std::vector<Index> places_;    // an element's, along each axis of a step
};

}  // namespace

ScheduledGroup linear_step_kernel(const LoweredGroup& group, const LinearStepBlocks& blocks) {
  return LinearStepKernel(group, blocks).run();
}

}  // namespace kw::plan
