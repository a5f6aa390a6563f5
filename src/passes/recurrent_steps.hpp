// One step of a recurrence, as a forward writes it out: what its gates add up (recurrences.hpp says of which cells).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/rewriter.hpp"

namespace kw {

// Columns of a value, or of its product with a matrix.
struct Addend {
  ValueId value = kNoValue;
  int64_t begin = 0, columns = 1;  // of the value, or of the product
  ValueId matrix = kNoValue;       // kNoValue: no product
  bool transposed = false;         // as a linear layer's weight: its rows are the product's columns
  int64_t from = 0, depth = 0;     // the terms of the matrix that meet the value
  bool negated = false;            // what is added is the opposite

  // The same but for the value.
  bool is_like(const Addend& other) const {
    return begin == other.begin && columns == other.columns && matrix == other.matrix &&
           transposed == other.transposed && from == other.from && depth == other.depth && negated == other.negated;
  }
};

// Of a GRU the gates are reset, update, what the candidate has of the input, and what it has of the state (which the
// reset gate scales).
struct RecurrentStep {
  std::string kind;                                 // as of kw.rnn_steps
  std::vector<std::vector<Addend>> gates;           // what each adds up
  ValueId state_before = kNoValue;                  // of a GRU: what its update gate keeps
  ValueId cell_before = kNoValue, cell = kNoValue;  // of an LSTM

  bool takes_input(size_t gate) const { return kind != "gru" || gate != 3; }
  bool takes_state(size_t gate) const { return kind != "gru" || gate != 2; }
};

// Of a node that makes the state of a step.
std::optional<RecurrentStep> recurrent_step_of(const Rewriter& rewriter, const Node& node);

}  // namespace kw
