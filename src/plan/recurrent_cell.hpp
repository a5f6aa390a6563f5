// What the gates of a recurrent layer make of a step: PyTorch's formulas (torch.nn.LSTM, GRU, RNN).
#pragma once

#include <functional>

#include "kernel/builder.hpp"
#include "plan/recurrence.hpp"

namespace kw::plan {

// What a step reads. Gates are numbered as PyTorch's parameters have them; each is asked for once.
struct CellInputs {
  std::function<kernel::ExprId(int64_t gate)> of_input, of_hidden;  // a gate's products, biases added
  std::function<kernel::ExprId(int64_t gate)> gate;                 // the sum of both
  std::function<kernel::ExprId()> hidden, cell;                     // states before the step, in f32
};

struct CellStates {
  kernel::ExprId hidden = kernel::kNoExpr, cell = kernel::kNoExpr;  // cell: of an LSTM
};

// The states after the step, in f32.
CellStates states_after(kernel::Builder& build, CellKind kind, const CellInputs& inputs);

}  // namespace kw::plan
