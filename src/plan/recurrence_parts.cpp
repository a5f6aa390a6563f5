#include "plan/recurrence_parts.hpp"

#include <algorithm>

#include "plan/pieces.hpp"

namespace kw::plan {

using kernel::ExprId;
using kernel::Index;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

namespace {

constexpr int64_t kCopiedTile = 1024;  // elements of a block that copies

}  // namespace

void RecurrenceParts::gather_parameters() {
  std::vector<StridedOperand> recurrent, below, biases;
  for (const RecurrentCell& cell : one_.cells) {
    const int64_t place = &cell - one_.cells.data();
    recurrent.push_back(one_.projected > 0 ? folded(folded_recurrent_, place) : cell.recurrent_weight);
    if (one_.directions == 1 && place > 0)
      below.push_back(one_.projected > 0 ? folded(folded_below_, place - 1) : cell.input_weight);
    if (!gathers_biases()) continue;
    for (const auto& bias : {cell.input_bias, cell.recurrent_bias})
      biases.push_back({bias->lies, {bias->strides[0], one_.hidden * bias->strides[0]}});
  }
  recurrent_ = gathered("recurrent_weights", recurrent, one_.dtype, {one_.rows(), one_.hidden}, recurrent_precision());
  if (!below.empty()) below_ = gathered("input_weights", below, one_.dtype, {one_.rows(), one_.hidden}, precision());
  if (gathers_biases())
    biases_ = gathered("biases", biases, DType::f32, {one_.hidden, one_.gates()}, kernel::Precision::kFull);
}

int RecurrenceParts::gathered(const std::string& name, const std::vector<StridedOperand>& operands, DType dtype,
                              const Shape& shape, kernel::Precision precision) {
  const auto count = static_cast<int64_t>(operands.size());
  Shape all = shape;
  all.insert(all.begin(), count);
  const bool apart = splits(precision);
  const int result = tensor(name + (apart ? "_high" : ""), apart ? DType::bf16 : dtype, all);
  const int low = apart ? tensor(name + "_low", DType::bf16, all) : 0;
  const int middle = apart && blocks_.parts == 3 ? tensor(name + "_middle", DType::bf16, all) : 0;
  if (apart) {
    recurrent_low_ = low;
    recurrent_middle_ = middle;
  }
  ScheduledDraft draft("gather_" + name + "_kernel", "The layers' parameters, one after the other.");
  kernel::Builder& build = draft.build;
  const Index which = draft.grid("cell", count);
  std::vector<Index> places;
  int64_t left = kCopiedTile;
  const int64_t columns = std::min(next_power_of_two(shape.back()), int64_t{256});
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const bool inner = dim + 1 == shape.size();
    const int64_t lanes = inner ? columns : std::min(next_power_of_two(shape[dim]), left / columns);
    places.push_back(
        symbol_index(draft.mapped(inner ? "column" : "row", shape[dim], {.mapping = Mapping::kGrid, .width = lanes})));
  }
  ExprId value = kNoExpr;
  for (int64_t at = 0; at < count; ++at) {
    const ExprId is_it = count == 1 ? kNoExpr : compared(build, ScalarOp::kEqual, which, at);
    const ExprId loaded = draft.load(operand(draft, operands[at], shape), places, 0.0, is_it);
    value = at == 0 ? loaded : build.op(ScalarOp::kSelect, {is_it, loaded, value});
  }
  places.insert(places.begin(), which);
  const auto store = [&](const std::string& called, DType type, int to, ExprId stored) {
    draft.store(draft.buffer(called, type, all, {}, BufferRole::kOutput, to), places, stored);
  };
  // Factors are rounded, or taken apart, here, so that no step does it again.
  if (apart) {
    // What is not finite is in the low part alone, so that it is multiplied with the state's high part only: products
    // of an infinity with parts of either sign would cancel to NaN.
    const Pieces parts = pieces_of(draft, name, value, blocks_.parts);
    const ExprId is_zero = build.op(ScalarOp::kEqual, {parts.finite, build.constant(DType::bf16, 0.0)});
    store(name + "_high", DType::bf16, result, parts.finite);
    if (parts.middle != kNoExpr) store(name + "_middle", DType::bf16, middle, parts.middle);
    store(name + "_low", DType::bf16, low, build.op(ScalarOp::kSelect, {is_zero, parts.high, parts.low}));
  } else {
    store(name, dtype, result, factor(build, build.cast(dtype, value), precision));
  }
  draft.schedule.warps = 4;
  finish(draft);
  return result;
}

Shape RecurrenceParts::state_shape(int64_t cells) const { return {2, cells, one_.batch, one_.hidden}; }

void RecurrenceParts::begin_states() {
  const int64_t cells = one_.cell_count();
  hidden_ = tensor("hidden", one_.dtype, state_shape(cells));
  if (one_.has_cell_state()) cell_ = tensor("cell", DType::f32, state_shape(cells));
  ScheduledDraft draft("begin_" + group_.kernel.name, "The states before the first step, twice.");
  const Index which = draft.grid("which", 2), cell = draft.grid("cell", cells);
  const Symbol sample = draft.mapped("sample", one_.batch, {});
  const Symbol unit = draft.mapped(
      "unit", one_.hidden, {.mapping = Mapping::kGrid, .width = std::min(next_power_of_two(one_.hidden), kCopiedTile)});
  const auto copy = [&](const std::string& name, const StridedOperand& from, int to, DType dtype) {
    const std::vector<Index> place = {cell, symbol_index(sample), symbol_index(unit)};
    const ExprId value = draft.load(operand(draft, from, {cells, one_.batch, one_.hidden}), place);
    const int made = draft.buffer(name, dtype, state_shape(cells), {}, BufferRole::kOutput, to);
    draft.store(made, {which, cell, symbol_index(sample), symbol_index(unit)}, draft.build.cast(dtype, value));
  };
  if (one_.projected > 0) {
    const int made = draft.buffer("hidden", one_.dtype, state_shape(cells), {}, BufferRole::kOutput, hidden_);
    draft.store(made, {which, cell, symbol_index(sample), symbol_index(unit)}, draft.build.constant(one_.dtype, 0.0));
  } else {
    copy("hidden", one_.first_hidden, hidden_, one_.dtype);
  }
  if (one_.first_cell) copy("cell", *one_.first_cell, cell_, DType::f32);
  finish(draft);
}

void RecurrenceParts::multiply_input(int64_t layer, int64_t direction) {
  const RecurrentCell& cell = one_.cells[layer * one_.directions + direction];
  const int64_t features = layer == 0 ? one_.features : state_width();
  StridedOperand input = one_.input;
  if (layer > 0) input = of_ours("between", between_, 0, contiguous_strides({one_.steps, one_.batch, features}));
  ScheduledDraft draft("multiply_input_" + group_.kernel.name, "A layer's input times its weights, for all times.");
  multiply_by_gates(draft, std::move(input), {one_.steps, one_.batch, features}, cell.input_weight, products_,
                    direction * product(products_shape()) / one_.directions);
}

void RecurrenceParts::multiply_by_gates(ScheduledDraft& draft, StridedOperand input, Shape shape,
                                        const StridedOperand& weight, int to, int64_t offset) {
  const int64_t steps = shape[0], rows = steps * one_.batch, columns = one_.hidden * gate_places(), features = shape[2];
  kernel::Builder& build = draft.build;
  const Symbol row = draft.mapped("row", rows, {.mapping = Mapping::kGrid, .width = block(rows, 64)}),
               column = draft.mapped("column", columns,
                                     {.mapping = Mapping::kGrid, .width = block(columns, one_.exact ? 64 : 128)}),
               feature = draft.mapped("feature", features,
                                      {.mapping = Mapping::kLoop, .width = block(features, 32), .stages = 3});
  std::vector<Index> place;
  if (steps == 1 || input.strides[0] == one_.batch * input.strides[1]) {
    shape = {rows, features};
    input.strides.erase(input.strides.begin());
    place = {symbol_index(row)};
  } else {
    const Digits at(draft, symbol_index(row), {steps, one_.batch});
    place = {at[0], at[1]};
  }
  place.push_back(symbol_index(feature));
  const ExprId left = draft.load(operand(draft, input, shape), place);
  const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
  const Index gate = kernel::modulo(symbol_index(column), gate_places(), ranges),
              unit = kernel::floor_divide(symbol_index(column), gate_places(), ranges);
  const ExprId right = draft.load(operand(draft, weight, {one_.rows(), features}),
                                  {gate * Index(one_.hidden) + unit, symbol_index(feature)}, 0.0,
                                  within(build, gate, one_.gates()));
  const int made = draft.buffer("products", DType::f32, {rows, columns}, {}, BufferRole::kOutput, to, offset);
  draft.store(made, {symbol_index(row), symbol_index(column)},
              build.dot(factor(build, left, precision()), factor(build, right, precision()), {feature}, precision()));
  draft.schedule.order = {.grouped = "row", .along = "column", .count = 8};
  draft.schedule.warps = 4;
  finish(draft);
}

StridedOperand RecurrenceParts::of_ours(const std::string& name, int tensor, int64_t offset, Shape strides) const {
  StridedOperand made;
  made.lies.dtype = one_.dtype;
  made.lies.name = name;
  made.lies.root = tensor;
  made.lies.offset = offset;
  made.strides = std::move(strides);
  return made;
}

StridedOperand RecurrenceParts::folded(int tensor, int64_t place) const {
  return of_ours("folded_weights", tensor, place * one_.rows() * one_.hidden, {one_.hidden, 1});
}

void RecurrenceParts::fold_projections() {
  const int64_t cells = one_.cell_count();
  folded_recurrent_ = tensor("folded_recurrent_weights", DType::f32, {cells, one_.rows(), one_.hidden});
  first_gates_ = tensor("first_gates", DType::f32, {cells, one_.batch, one_.hidden, gate_places()});
  last_ = tensor("last_made", DType::f32, {cells, one_.batch, one_.hidden});
  made_ = tensor("made", DType::f32, {one_.steps, one_.batch, width()});
  const bool stacked = one_.directions == 1 && one_.layers > 1;
  if (stacked) folded_below_ = tensor("folded_input_weights", DType::f32, {cells - 1, one_.rows(), one_.hidden});
  for (int64_t place = 0; place < cells; ++place) {
    const RecurrentCell& cell = one_.cells[place];
    fold(cell.recurrent_weight, *cell.projection, folded_recurrent_, place);
    if (stacked && place > 0) fold(cell.input_weight, *one_.cells[place - 1].projection, folded_below_, place - 1);
    ScheduledDraft draft("begin_gates_" + group_.kernel.name, "What the first step's gates have of its state.");
    StridedOperand first = one_.first_hidden;
    first.lies.offset += place * first.strides[0];
    multiply_by_gates(draft, first, {1, one_.batch, one_.projected}, cell.recurrent_weight, first_gates_,
                      place * one_.batch * one_.hidden * gate_places());
  }
}

void RecurrenceParts::fold(StridedOperand weights, StridedOperand projection, int to, int64_t place) {
  weights.strides.insert(weights.strides.begin(), 0);
  std::swap(projection.strides[0], projection.strides[1]);
  ScheduledDraft draft("fold_projection_" + group_.kernel.name, "A layer's weights times a projection.");
  multiply(draft, weights, {1, one_.rows(), one_.projected}, projection, one_.hidden, {to, {0, one_.hidden, 1}},
           place * one_.rows() * one_.hidden, kernel::Precision::kFull);
}

void RecurrenceParts::project_results() {
  if (one_.projected == 0) return;
  if (one_.sequence.value != kNoValue) project_sequence(one_.layers - 1, one_.sequence);
  if (one_.last_hidden.value == kNoValue) return;
  for (int64_t place = 0; place < one_.cell_count(); ++place) {
    const StridedOperand made = of_ours("made", last_, place * one_.batch * one_.hidden, {0, one_.hidden, 1});
    project(made, {1, one_.batch, one_.hidden}, place, one_.last_hidden, place * one_.last_hidden.strides[0]);
  }
}

void RecurrenceParts::project_sequence(int64_t layer, const StridedResult& to) {
  const Shape strides = contiguous_strides({one_.steps, one_.batch, width()});
  for (int64_t direction = 0; direction < one_.directions; ++direction)
    project(of_ours("made", made_, direction * one_.hidden, strides), {one_.steps, one_.batch, one_.hidden},
            layer * one_.directions + direction, to, direction * one_.projected * to.strides[2]);
}

void RecurrenceParts::project(const StridedOperand& made, const Shape& shape, int64_t place, const StridedResult& to,
                              int64_t offset) {
  ScheduledDraft draft("project_" + group_.kernel.name, "Hidden states, of what the units made.");
  multiply(draft, made, shape, *one_.cells[place].projection, one_.projected, to, offset,
           precision() == kernel::Precision::kTf32 ? kernel::Precision::kTf32x3 : precision());
}

void RecurrenceParts::multiply(ScheduledDraft& draft, const StridedOperand& left, const Shape& shape,
                               const StridedOperand& weights, int64_t columns, const StridedResult& to, int64_t offset,
                               kernel::Precision precision) {
  kernel::Builder& build = draft.build;
  const int64_t rows = shape[0] * shape[1];
  const Symbol row = draft.mapped("row", rows, {.mapping = Mapping::kGrid, .width = block(rows, 64)}),
               column = draft.mapped("column", columns, {.mapping = Mapping::kGrid, .width = block(columns, 64)}),
               depth = draft.mapped("depth", shape[2],
                                    {.mapping = Mapping::kLoop, .width = block(shape[2], 32), .stages = 3});
  const Digits at(draft, symbol_index(row), {shape[0], shape[1]});
  const ExprId value = build.dot(
      draft.load(operand(draft, left, shape), {at[0], at[1], symbol_index(depth)}),
      draft.load(operand(draft, weights, {columns, shape[2]}), {symbol_index(column), symbol_index(depth)}), {depth},
      precision);
  const int made = draft.buffer("product", one_.dtype, {shape[0], shape[1], columns}, to.strides, BufferRole::kOutput,
                                to.value, offset);
  draft.store(made, {at[0], at[1], symbol_index(column)}, value);
  draft.schedule.order = {.grouped = "row", .along = "column", .count = 8};
  draft.schedule.warps = 4;
  finish(draft);
}

}  // namespace kw::plan
