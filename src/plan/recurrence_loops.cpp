#include "plan/recurrence_loops.hpp"

#include <algorithm>

#include "plan/recurrent_cell.hpp"
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

class RecurrenceLoopKernels : ProductKernels {
 public:
  RecurrenceLoopKernels(const LoweredGroup& group, const RecurrenceLoops& blocks)
      : ProductKernels(group, {}), one_(*group.recurrence), blocks_(blocks) {}

  ScheduledGroup run() {
    if (!one_.products) products_ = tensor("products", products_shape());
    // What a layer in two directions makes is not complete before both have read the one below: two tensors take turns.
    const Shape between = {products_shape()[0], products_shape()[1], width()};
    if (one_.layers > 1) between_ = tensor("between", between);
    if (one_.layers > 2) other_between_ = tensor("between_too", between);
    for (int64_t layer = 0; layer < one_.layers; ++layer)
      for (int64_t direction = 0; direction < one_.directions; ++direction) {
        if (!one_.products) multiply_input(layer, direction);
        walk(layer, direction);
      }
    return std::move(result_);
  }

 private:
  int64_t width() const { return one_.directions * one_.state_size(); }
  // Between layers values lie as the products do.
  Shape between_strides() const {
    const Shape strides = contiguous_strides({products_shape()[0], products_shape()[1], width()});
    return steps_first() ? strides : Shape{strides[1], strides[0], strides[2]};
  }
  int64_t in_vectors(int64_t extent) const { return ceil_divide(extent, blocks_.vector) * blocks_.vector; }
  const RecurrentCell& cell(int64_t layer, int64_t direction) const {
    return one_.cells[layer * one_.directions + direction];
  }

  int tensor(const std::string& name, const Shape& shape) {
    return -1 - scratch(name, one_.dtype, shape, contiguous_strides(shape));
  }

  static int operand(KernelDraft& draft, const std::string& name, const StridedOperand& operand, const Shape& shape) {
    return draft.buffer(name, operand.lies.dtype, shape, operand.strides, BufferRole::kInput, operand.lies.root,
                        operand.lies.offset);
  }

  // What a layer reads: step, sample, feature.
  StridedOperand input_of(int64_t layer) const {
    if (layer == 0) return one_.input;
    StridedOperand below;
    below.lies.dtype = one_.dtype;
    below.lies.root = between_of(layer - 1);
    below.strides = between_strides();
    return below;
  }

  // Products lie as the layers' input does: steps first, or samples.
  bool steps_first() const { return one_.products || one_.input.strides[0] >= one_.input.strides[1]; }
  Shape products_shape() const {
    if (steps_first()) return {one_.steps, one_.batch, one_.rows()};
    return {one_.batch, one_.steps, one_.rows()};
  }

  int between_of(int64_t layer) const { return layer % 2 == 0 ? between_ : other_between_; }

  void finish(ScheduledDraft& draft) { ProductKernels::finish(draft, draft.schedule); }

  // The products of a layer's input with its weights, for all steps at once.
  void multiply_input(int64_t layer, int64_t direction) {
    const int64_t features = layer == 0 ? one_.features : width();
    ScheduledDraft draft("multiply_input_" + group_.kernel.name, "A layer's input times its weights, for all steps.");
    kernel::Builder& build = draft.build;
    // Rows are those of all that lies behind each other, else the steps of one sample.
    StridedOperand input = input_of(layer);
    if (!steps_first()) std::swap(input.strides[0], input.strides[1]);
    Shape shape = products_shape();
    const int64_t outer = shape[0], inner = shape[1];
    const auto rows = [&](const std::string& name, int64_t count) {
      return symbol_index(
          draft.mapped(name, count, {.mapping = Mapping::kGrid, .width = std::min(blocks_.rows, count)}));
    };
    std::vector<Index> place;
    if (input.strides[0] == inner * input.strides[1]) {
      input.strides.erase(input.strides.begin());
      shape = {outer * inner, features};
      place = {rows("row", outer * inner)};
    } else {
      shape.back() = features;
      const Index first = draft.grid("outer", outer);
      place = {first, rows("inner", inner)};
    }
    std::vector<Index> made = place;
    const Symbol row = draft.mapped("gate_row", one_.rows(), {.mapping = Mapping::kGrid, .width = blocks_.columns}),
                 feature = draft.mapped("feature", features,
                                        {.mapping = Mapping::kLoop, .width = in_vectors(std::min(features, kDepth))});
    place.push_back(symbol_index(feature));
    made.push_back(symbol_index(row));
    const ExprId left = draft.load(operand(draft, "input", input, shape), place);
    const RecurrentCell& own = cell(layer, direction);
    const ExprId right = draft.load(operand(draft, "input_weights", own.input_weight, {one_.rows(), features}),
                                    {symbol_index(row), symbol_index(feature)});
    ExprId value = build.dot(left, right, {feature});
    if (own.input_bias)
      value = build.op(ScalarOp::kAdd, {value, draft.load(operand(draft, "biases", *own.input_bias, {one_.rows()}),
                                                          {symbol_index(row)})});
    shape.back() = one_.rows();
    draft.store(draft.buffer("products", one_.dtype, shape, {}, BufferRole::kOutput, products_), made, value);
    draft.schedule.narrow_products = true;
    finish(draft);
  }

  // What the steps of one layer in one direction are made with.
  struct Walk {
    Walk(const std::string& name, const std::string& doc) : draft(name, doc) {}
    ScheduledDraft draft;
    Symbol sample = -1, step = -1, unit = -1, source = -1;
    Symbol number = -1;  // of the hidden state: the unit, where nothing projects
    Index time;          // the place in the sequence
  };

  void walk(int64_t layer, int64_t direction) {
    Walk walk(group_.kernel.name, group_.kernel.doc);
    ScheduledDraft& draft = walk.draft;
    kernel::Builder& build = draft.build;
    const auto whole = [&](int64_t extent) {
      return lower::AxisSchedule{.mapping = Mapping::kTile, .width = in_vectors(extent)};
    };
    walk.sample = draft.mapped("sample", one_.batch, {.mapping = Mapping::kGrid, .width = blocks_.samples});
    walk.step = draft.mapped("step", one_.steps, {.mapping = Mapping::kLoop, .width = 1}, true);
    walk.unit = draft.mapped("unit", one_.hidden, whole(one_.hidden));
    walk.number = one_.projected > 0 ? draft.mapped("projected", one_.projected, whole(one_.projected)) : walk.unit;
    walk.source = draft.mapped("source", one_.state_size(), whole(one_.state_size()));
    walk.time = direction == 0 ? symbol_index(walk.step) : Index(one_.steps - 1) - symbol_index(walk.step);
    const int64_t place = layer * one_.directions + direction;
    const int hidden = build.state("hidden", DType::f32, {walk.sample, walk.number}, walk.step,
                                   first(walk, "first_hidden", one_.first_hidden, place, walk.number));
    const int cell_state = one_.first_cell ? build.state("cell", DType::f32, {walk.sample, walk.unit}, walk.step,
                                                         first(walk, "first_cell", *one_.first_cell, place, walk.unit))
                                           : -1;
    const Index sample = symbol_index(walk.sample), unit = symbol_index(walk.unit);
    const ExprId previous = build.previous(hidden, {sample, symbol_index(walk.source)});
    const RecurrentCell& own = cell(layer, direction);
    const int products = products_buffer(walk),
              weights = operand(draft, "weights", own.recurrent_weight, {one_.rows(), one_.state_size()}),
              biases = own.recurrent_bias ? operand(draft, "biases", *own.recurrent_bias, {one_.rows()}) : -1;
    const auto row = [&](int64_t gate) { return Index(gate * one_.hidden) + unit; };
    const auto of_input = [&](int64_t gate) { return draft.load(products, of_products(walk.time, sample, row(gate))); };
    const auto of_hidden = [&](int64_t gate) {
      const ExprId product = build.dot(previous, draft.load(weights, {row(gate), symbol_index(walk.source)}),
                                       {walk.source});
      return biases < 0 ? product : build.op(ScalarOp::kAdd, {product, draft.load(biases, {row(gate)})});
    };
    CellStates after = states_after(
        build, one_.kind,
        {.of_input = of_input,
         .of_hidden = of_hidden,
         .gate = [&](int64_t gate) { return build.op(ScalarOp::kAdd, {of_input(gate), of_hidden(gate)}); },
         .hidden = [&] { return build.previous(hidden, {sample, unit}); },
         .cell = [&] { return build.previous(cell_state, {sample, unit}); }});
    if (own.projection) after.hidden = projected(walk, *own.projection, after.hidden);
    build.set_next(hidden, after.hidden);
    if (cell_state >= 0) build.set_next(cell_state, after.cell);
    const ExprId is_last = build.op(ScalarOp::kEqual,
                                    {build.index(symbol_index(walk.step)), build.constant(DType::i32, one_.steps - 1)});
    store_last(walk, one_.last_hidden, "last_hidden", place, after.hidden, is_last, walk.number);
    if (cell_state >= 0) store_last(walk, one_.last_cell, "last_cell", place, after.cell, is_last, walk.unit);
    if (one_.cell_sequence.value != kNoValue) store_steps(walk, "cells", one_.cell_sequence, direction, after.cell);
    store_sequence(walk, layer, direction, after.hidden);
    draft.schedule.narrow_products = true;
    finish(draft);
  }

  int64_t size_of_state(const Walk& walk, Symbol number) const {
    return number == walk.unit ? one_.hidden : one_.projected;
  }

  // The hidden state that a projection makes of what the units made.
  ExprId projected(Walk& walk, const StridedOperand& weights, ExprId made) const {
    const int buffer = operand(walk.draft, "projection", weights, {one_.projected, one_.hidden});
    const ExprId weight = walk.draft.load(buffer, {symbol_index(walk.number), symbol_index(walk.unit)});
    return walk.draft.build.dot(made, weight, {walk.unit});
  }

  ExprId first(Walk& walk, const std::string& name, const StridedOperand& from, int64_t place, Symbol number) const {
    const int buffer = operand(walk.draft, name, from, {one_.cell_count(), one_.batch, size_of_state(walk, number)});
    return walk.draft.load(buffer, {Index(place), symbol_index(walk.sample), symbol_index(number)});
  }

  int products_buffer(Walk& walk) const {
    if (!one_.products)
      return walk.draft.buffer("products", one_.dtype, products_shape(), {}, BufferRole::kInput, products_);
    return operand(walk.draft, "products", *one_.products, {one_.steps, one_.batch, one_.rows()});
  }

  std::vector<Index> of_products(const Index& time, const Index& sample, const Index& row) const {
    if (steps_first()) return {time, sample, row};
    return {sample, time, row};
  }

  void store_last(Walk& walk, const StridedResult& result, const std::string& name, int64_t place, ExprId value,
                  ExprId is_last, Symbol number) const {
    if (result.value == kNoValue) return;
    const int made = walk.draft.buffer(name, one_.dtype, {one_.cell_count(), one_.batch, size_of_state(walk, number)},
                                       result.strides, BufferRole::kOutput, result.value);
    walk.draft.store(made, {Index(place), symbol_index(walk.sample), symbol_index(number)}, value, is_last);
  }

  void store_sequence(Walk& walk, int64_t layer, int64_t direction, ExprId value) const {
    const bool is_result = layer + 1 == one_.layers;
    StridedResult to = one_.sequence;
    if (!is_result) to = {between_of(layer), between_strides()};
    if (is_result && to.value == kNoValue) return;
    store_steps(walk, is_result ? "sequence" : "between", to, direction, value);
  }

  void store_steps(Walk& walk, const std::string& name, const StridedResult& to, int64_t direction,
                   ExprId value) const {
    const int made = walk.draft.buffer(name, one_.dtype, {one_.steps, one_.batch, width()}, to.strides,
                                       BufferRole::kOutput, to.value);
    walk.draft.store(
        made, {walk.time, symbol_index(walk.sample), Index(direction * one_.state_size()) + symbol_index(walk.number)},
        value);
  }

  static constexpr int64_t kDepth = 256;  // of a step of the input's products

  const Recurrence& one_;
  const RecurrenceLoops& blocks_;
  int products_ = 0, between_ = 0, other_between_ = 0;  // tensors of our own, as buffers are told of them
};

}  // namespace

ScheduledGroup recurrence_loops(const LoweredGroup& group, const RecurrenceLoops& blocks) {
  return RecurrenceLoopKernels(group, blocks).run();
}

}  // namespace kw::plan
