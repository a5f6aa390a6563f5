// Recurrent layers among a graph's nodes: what the recurrence scheduler takes, as strides over the operands' storage.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/product.hpp"

namespace kw::plan {

// A tensor and its strides, in elements.
struct StridedOperand {
  ProductOperand lies;
  Shape strides;
};

// A result of the node and its strides; kNoValue where nothing reads it.
struct StridedResult {
  ValueId value = kNoValue;
  Shape strides;
};

// The parameters of one layer in one direction. Rows are the gates' units, gate after gate.
struct RecurrentCell {
  StridedOperand input_weight, recurrent_weight;             // row, feature; row, unit
  std::optional<StridedOperand> input_bias, recurrent_bias;  // row
  std::optional<StridedOperand> projection;                  // of an LSTM: number of the hidden state, unit
};

// h[t] = decay[t] · h[t−1] + input[t], element by element. Operands and results have strides along these axes; those
// of what comes for each step have the step's in front.
struct LinearSteps {
  Shape shape;  // of a step, axes that are one in memory joined
  StridedOperand input, first;
  std::optional<StridedOperand> decay;
  double factor = 1.0;  // where there is no such operand
  StridedResult result;
  bool every = true;  // is the result all steps' states? Else the last one.
};

enum class CellKind { kLstm, kGru, kTanh, kRelu };

// A stack of layers over a sequence. The gates of a unit at time t, from what the layer below made of t and from what
// this layer made of the time before: PyTorch's formulas (torch.nn.LSTM, GRU, RNN), in its order of gates.
struct Recurrence {
  NodeId node = kNoNode;
  CellKind kind = CellKind::kLstm;
  int64_t layers = 1, directions = 1;
  int64_t steps = 1, batch = 1;
  int64_t features = 1, hidden = 1;  // of the input, and of each layer and direction
  int64_t projected = 0;             // numbers that an LSTM's projection makes of its units; 0: there is none
  DType dtype = DType::f32;
  bool exact = false;    // as sums of f32 products; else operands may be rounded to TF32's 11 digits
  StridedOperand input;  // step, batch, feature
  // Of kw.rnn_steps in the input's place: its products with the weights, the input's biases added. Step, batch, row.
  std::optional<StridedOperand> products;
  StridedOperand first_hidden;               // layer and direction, batch, unit
  std::optional<StridedOperand> first_cell;  // of an LSTM
  std::vector<RecurrentCell> cells;          // [layer · directions + direction]
  StridedResult sequence;                    // step, batch, number of all directions' hidden states
  StridedResult last_hidden, last_cell;      // layer and direction, batch, number of the state
  StridedResult cell_sequence;               // of kw.rnn_steps: step, batch, unit
  std::optional<LinearSteps> linear;         // of kw.linear_steps, which has none of the above but `steps` and `hidden`

  bool has_cell_state() const { return kind == CellKind::kLstm; }
  int64_t gates() const { return kind == CellKind::kLstm ? 4 : kind == CellKind::kGru ? 3 : 1; }
  int64_t rows() const { return gates() * hidden; }
  // Numbers of a hidden state.
  int64_t state_size() const { return projected > 0 ? projected : hidden; }
  int64_t cell_count() const { return layers * directions; }
  double flops() const;  // a product and a sum count as two
};

// aten.lstm.input, gru, rnn_tanh and rnn_relu, kw.rnn_steps (passes/recurrences.hpp) and kw.linear_steps. nullopt where
// the library keeps them; why_not_taken says why.
std::optional<Recurrence> recurrence_of(const GraphFacts& facts, NodeId node);
bool is_recurrence(const Node& node);
// "" of what is taken.
std::string why_not_taken(const GraphFacts& facts, NodeId node);

}  // namespace kw::plan
