// What the kernels of a recurrence's waves (recurrence_kernels.cpp) read and leave to others: parameters, first states,
// and products that wait for no step.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/recurrence_kernels.hpp"
#include "plan/scheduled_draft.hpp"

namespace kw::plan {

class RecurrenceParts : protected ProductKernels {
 protected:
  using BufferRole = kernel::BufferRole;
  using ExprId = kernel::ExprId;
  using Index = kernel::Index;
  using ScalarOp = kernel::ScalarOp;
  static constexpr ExprId kNoExpr = kernel::kNoExpr;
  static constexpr int64_t kLeastBlock = 16;  // of a dot in Triton

  RecurrenceParts(const LoweredGroup& group, const RecurrenceBlocks& blocks)
      : ProductKernels(group, operands_of(*group.recurrence)), one_(*group.recurrence), blocks_(blocks) {}

  static std::vector<const ProductOperand*> operands_of(const Recurrence& one) {
    std::vector<const ProductOperand*> operands = {one.products ? &one.products->lies : &one.input.lies,
                                                   &one.first_hidden.lies};
    if (one.first_cell) operands.push_back(&one.first_cell->lies);
    for (const RecurrentCell& cell : one.cells) {
      if (!one.products) operands.push_back(&cell.input_weight.lies);
      if (cell.projection) operands.push_back(&cell.projection->lies);
      operands.push_back(&cell.recurrent_weight.lies);
      for (const auto* bias : {&cell.input_bias, &cell.recurrent_bias})
        if (*bias) operands.push_back(&(*bias)->lies);
    }
    return operands;
  }

  int64_t width() const { return one_.directions * one_.hidden; }
  int64_t state_width() const { return one_.directions * one_.state_size(); }
  // The gates of a unit lie side by side, as many as a power of two.
  int64_t gate_places() const { return next_power_of_two(one_.gates()); }
  Shape products_shape() const { return {one_.directions, one_.steps, one_.batch, one_.hidden, gate_places()}; }
  bool has_biases() const { return one_.cells[0].recurrent_bias.has_value(); }
  // Those of a loop's steps are read where they lie: the input's are among its products.
  bool gathers_biases() const { return has_biases() && !one_.products; }
  kernel::Precision precision() const {
    return one_.dtype == DType::f32 && !one_.exact ? kernel::Precision::kTf32 : kernel::Precision::kFull;
  }

  // Of the products with the state before. cuDNN's LSTM is twice as exact as if it rounded them like those of the
  // input.
  kernel::Precision recurrent_precision() const {
    return precision() == kernel::Precision::kTf32 && one_.kind == CellKind::kLstm ? kernel::Precision::kTf32x3
                                                                                   : precision();
  }
  // Weights that stay on chip are taken apart once, into bfloat16 of which the sum has 16 or 24 digits.
  bool splits(kernel::Precision precision) const {
    return blocks_.persistent && precision == kernel::Precision::kTf32x3;
  }

  // What a product on tensor cores takes: they would cut digits where cuDNN rounds.
  static ExprId factor(kernel::Builder& build, ExprId value, kernel::Precision precision) {
    return precision == kernel::Precision::kTf32 ? build.op(ScalarOp::kRoundTf32, {value}) : value;
  }

  int tensor(const std::string& name, DType dtype, const Shape& shape) {
    return -1 - scratch(name, dtype, shape, contiguous_strides(shape));
  }

  void finish(ScheduledDraft& draft) { ProductKernels::finish(draft, draft.schedule); }

  static int operand(KernelDraft& draft, const StridedOperand& operand, const Shape& shape) {
    return draft.buffer(operand.lies.name, operand.lies.dtype, shape, operand.strides, BufferRole::kInput,
                        operand.lies.root, operand.lies.offset);
  }

  static ExprId whole(kernel::Builder& build, int64_t number) { return build.constant(DType::i32, number); }

  static ExprId compared(kernel::Builder& build, ScalarOp op, const Index& index, int64_t number) {
    return build.op(op, {build.index(index), whole(build, number)});
  }

  // 0 <= index < size, as far as the ranges do not say so.
  static ExprId within(kernel::Builder& build, const Index& index, int64_t size) {
    const kernel::Interval range = kernel::range_of(index, kernel::ranges_of(build.kernel()));
    ExprId inside = kNoExpr;
    if (range.low < 0) inside = compared(build, ScalarOp::kGreaterEqual, index, 0);
    if (range.high >= size) inside = build.both(inside, compared(build, ScalarOp::kLess, index, size));
    return inside;
  }

  static int64_t block(int64_t extent, int64_t most) {
    return std::clamp<int64_t>(next_power_of_two(extent), kLeastBlock, most);
  }

  static ExprId sum(kernel::Builder& build, ExprId a, ExprId b) {
    return a == kNoExpr ? b : b == kNoExpr ? a : build.op(ScalarOp::kAdd, {a, b});
  }

  // --- Before the first step ---

  void gather_parameters();

  // Tensors of one shape, one after the other, so that an index tells which.
  int gathered(const std::string& name, const std::vector<StridedOperand>& operands, DType dtype, const Shape& shape,
               kernel::Precision precision);

  Shape state_shape(int64_t cells) const;

  // Two states of each cell: one is read while the other is written. A cell that has not begun finds its first in both.
  void begin_states();

  // --- What does not wait for the step before ---

  // The products of a layer's input with its weights, for all times.
  void multiply_input(int64_t layer, int64_t direction);

  // Rows are steps and samples; the gates of a unit come out side by side.
  void multiply_by_gates(ScheduledDraft& draft, StridedOperand input, Shape shape, const StridedOperand& weight, int to,
                         int64_t offset);

  // --- Projections ---
  //
  // h = P·y, where y is a step's σ(o) tanh(c): what multiplies h with W multiplies y with W·P. So y is the state that
  // waves exchange, and h is computed of all y at once, behind them. What an LSTM begins with is no P·y: its products
  // are added to the first step's gates.

  StridedOperand of_ours(const std::string& name, int tensor, int64_t offset, Shape strides) const;

  StridedOperand folded(int tensor, int64_t place) const;

  void fold_projections();

  void fold(StridedOperand weights, StridedOperand projection, int to, int64_t place);

  void project_results();

  void project_sequence(int64_t layer, const StridedResult& to);

  void project(const StridedOperand& made, const Shape& shape, int64_t place, const StridedResult& to, int64_t offset);

  // [outer, inner, depth] times weights of [column, depth].
  void multiply(ScheduledDraft& draft, const StridedOperand& left, const Shape& shape, const StridedOperand& weights,
                int64_t columns, const StridedResult& to, int64_t offset, kernel::Precision precision);

  const Recurrence& one_;
  const RecurrenceBlocks& blocks_;
  // Tensors of our own, as buffers are told of them.
  int recurrent_ = 0, recurrent_low_ = 0, recurrent_middle_ = 0, below_ = 0, biases_ = 0, hidden_ = 0, cell_ = 0,
      products_ = 0, between_ = 0, arrived_ = 0;
  int folded_recurrent_ = 0, folded_below_ = 0, first_gates_ = 0, made_ = 0, last_ = 0;  // where it projects
};

}  // namespace kw::plan
