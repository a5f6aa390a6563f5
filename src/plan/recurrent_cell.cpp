#include "plan/recurrent_cell.hpp"

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;

CellStates states_after(kernel::Builder& build, CellKind kind, const CellInputs& inputs) {
  const auto sigmoid = [&](const std::string& name, ExprId value) {
    return build.named(name, build.op(ScalarOp::kSigmoid, {value}));
  };
  const auto times = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kMul, {a, b}); };
  const auto sum = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kAdd, {a, b}); };
  CellStates after;
  switch (kind) {
    case CellKind::kLstm: {
      const ExprId input = sigmoid("input_gate", inputs.gate(0)), forget = sigmoid("forget_gate", inputs.gate(1)),
                   candidate = build.op(ScalarOp::kTanh, {inputs.gate(2)}),
                   output = sigmoid("output_gate", inputs.gate(3));
      const ExprId kept = times(forget, inputs.cell());
      after.cell = build.named("next_cell", sum(kept, times(input, candidate)));
      after.hidden = times(output, build.op(ScalarOp::kTanh, {after.cell}));
      break;
    }
    case CellKind::kGru: {
      const ExprId reset = sigmoid("reset_gate", inputs.gate(0)), update = sigmoid("update_gate", inputs.gate(1));
      const ExprId of_input = inputs.of_input(2), of_hidden = inputs.of_hidden(2);
      const ExprId candidate = build.op(ScalarOp::kTanh, {sum(of_input, times(reset, of_hidden))});
      const ExprId own = inputs.hidden();
      const ExprId rest = build.op(ScalarOp::kSub, {build.constant(DType::f32, 1.0), update});
      after.hidden = sum(times(rest, candidate), times(update, own));
      break;
    }
    case CellKind::kTanh: after.hidden = build.op(ScalarOp::kTanh, {inputs.gate(0)}); break;
    case CellKind::kRelu:
      after.hidden = build.op(ScalarOp::kMaximum, {inputs.gate(0), build.constant(DType::f32, 0.0)});
      break;
  }
  build.named("next_hidden", after.hidden);
  return after;
}

}  // namespace kw::plan
