#include "plan/recurrence_kernels.hpp"

#include <algorithm>

#include "lower/pipeline.hpp"
#include "plan/pieces.hpp"
#include "plan/recurrence_parts.hpp"
#include "plan/recurrent_cell.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::BufferRole;
using kernel::ExprId;
using kernel::Index;
using kernel::kNoExpr;
using kernel::ScalarOp;
using kernel::Symbol;
using kernel::symbol_index;
using lower::Mapping;

constexpr int64_t kCounterPlaces = 4;  // of a counter of blocks, so that each is aligned to 16 bytes

class RecurrenceKernels : RecurrenceParts {
 public:
  RecurrenceKernels(const LoweredGroup& group, const RecurrenceBlocks& blocks) : RecurrenceParts(group, blocks) {}

  ScheduledGroup run() {
    if (one_.projected > 0) fold_projections();
    if (!blocks_.summed) gather_parameters();
    begin_states();
    if (!one_.products) products_ = tensor("products", DType::f32, products_shape());
    if (blocks_.persistent) {
      const int64_t walks = one_.directions > 1 ? one_.layers : 1;
      arrived_ = tensor("arrived", DType::i32, {walks, kCounterPlaces});
      result_.scratch[-1 - arrived_].zeros = true;
    }
    if (one_.directions == 1) {
      if (!one_.products) multiply_input(0, 0);
      walk(0, one_.layers);
      project_results();
      return std::move(result_);
    }
    if (one_.layers > 1) between_ = tensor("between", one_.dtype, {one_.steps, one_.batch, state_width()});
    for (int64_t layer = 0; layer < one_.layers; ++layer) {
      for (int64_t direction = 0; direction < one_.directions; ++direction) multiply_input(layer, direction);
      walk(layer, 1);
      if (one_.projected > 0 && layer + 1 < one_.layers)
        project_sequence(layer, {between_, contiguous_strides({one_.steps, one_.batch, state_width()})});
    }
    project_results();
    return std::move(result_);
  }

 private:
  // What a wave's kernel computes with.
  struct Wave {
    ScheduledDraft draft;
    Index cell;         // of those that it has: the layer, or the direction
    Index turn, time;   // how many times came before; the place in the sequence
    Index before, now;  // which of the two states is read, and which is written
    Symbol sample = -1, unit = -1, source = -1;
    Symbol gate = -1;             // −1: each gate has a product of its own
    ExprId active = kNoExpr;      // is there such a time?
    ExprId has_input = kNoExpr;   // does the cell read the input's products? kNoExpr: all do
    ExprId is_highest = kNoExpr;  // does it make the sequence? kNoExpr: all do
    ExprId is_last = kNoExpr;     // of all times
  };

  // --- The waves ---

  // Launches of one kernel. Of a stack each takes one step in every layer, those above one time later than those below;
  // of layers in two directions one step in both.
  void walk(int64_t first, int64_t layers) {
    const bool both_ways = one_.directions > 1;
    const int64_t cells = both_ways ? one_.directions : layers, launches = one_.steps + layers - 1;
    Wave wave{ScheduledDraft(group_.kernel.name, group_.kernel.doc), {}, {}, {}, {}, {}};
    ScheduledDraft& draft = wave.draft;
    kernel::Builder& build = draft.build;
    const Symbol step = draft.size("step", {0, launches - 1});
    const std::string size = build.kernel().symbols[step].name;
    wave.cell = draft.grid(both_ways ? "direction" : "layer", cells);
    const auto declare_samples = [&] {
      wave.sample = draft.mapped("sample", one_.batch, {.mapping = Mapping::kGrid, .width = blocks_.batch});
    };
    const bool joined = blocks_.joined && one_.gates() > 1;
    const bool units_first = blocks_.gates_first && (joined || blocks_.persistent);
    if (!units_first) declare_samples();
    wave.unit = draft.mapped("unit", one_.hidden, {.mapping = Mapping::kGrid, .width = blocks_.units});
    if (joined)
      wave.gate = draft.mapped(
          "gate", one_.gates(),
          {.mapping = Mapping::kTile, .width = gate_places(), .within = build.kernel().symbols[wave.unit].name});
    if (wave.sample < 0) declare_samples();
    const int64_t all = std::max(next_power_of_two(one_.hidden), kLeastBlock);
    wave.source = draft.mapped("source", one_.hidden,
                               blocks_.persistent ? lower::AxisSchedule{.mapping = Mapping::kTile, .width = all}
                                                  : lower::AxisSchedule{.mapping = Mapping::kLoop,
                                                                        .width = std::min(all, blocks_.depth),
                                                                        .stages = blocks_.stages});
    const Index at = symbol_index(step);
    wave.turn = both_ways ? at : at - wave.cell;
    wave.time = both_ways ? at + wave.cell * Index(one_.steps - 1) - at * wave.cell * Index(2) : wave.turn;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    wave.before = kernel::modulo(at + Index(1), 2, ranges);
    wave.now = kernel::modulo(at, 2, ranges);
    wave.active = within(build, wave.time, one_.steps);
    if (!both_ways && layers > 1) {
      wave.has_input = compared(build, ScalarOp::kEqual, wave.cell, 0);
      wave.is_highest = compared(build, ScalarOp::kEqual, wave.cell, layers - 1);
    }
    wave.is_last = compared(build, ScalarOp::kEqual, wave.turn, one_.steps - 1);
    first_ = first * one_.directions;
    cells_ = cells;
    compute(wave, first + layers == one_.layers);
    draft.schedule.loads_first = true;
    draft.schedule.warps = blocks_.warps;
    if (blocks_.persistent) {
      walk_inside(draft, size, launches, both_ways ? first : 0);
    } else {
      finish(draft);
      result_.tiles.back().repetition = Repetition{launches, size};
    }
  }

  // The launches as one.
  void walk_inside(ScheduledDraft& draft, const std::string& size, int64_t launches, int64_t walk) {
    const std::vector<kernel::Buffer>& buffers = draft.build.kernel().buffers;
    lower::StepsInside& inside = draft.schedule.steps_inside;
    inside.size = size;
    inside.count = launches;
    std::vector<size_t> written_ones;
    for (size_t read = 0; read < buffers.size(); ++read)
      for (size_t written = 0; written < buffers.size(); ++written)
        if (draft.tensors[read] == draft.tensors[written] && buffers[read].role == BufferRole::kInput &&
            buffers[written].role == BufferRole::kOutput) {
          inside.same.emplace_back(buffers[read].name, buffers[written].name);
          written_ones.push_back(written);
        }
    finish(draft);
    ScheduledTiles& made = result_.tiles.back();
    std::sort(written_ones.rbegin(), written_ones.rend());
    for (const size_t written : written_ones) {
      made.buffers.erase(made.buffers.begin() + static_cast<std::ptrdiff_t>(written));
      made.offsets.erase(made.offsets.begin() + static_cast<std::ptrdiff_t>(written));
    }
    made.buffers.push_back(arrived_);
    made.offsets.push_back(walk * kCounterPlaces);
  }

  // What makes a wave's gates.
  struct Parts {
    int products = -1, biases = -1;  // buffers
    int weights = -1, input_weights = -1;
    int weights_middle = -1, weights_low = -1;   // what the first lack, where they are taken apart
    ExprId previous = kNoExpr, below = kNoExpr;  // hidden states: its own, and the layer below's
    ExprId is_above = kNoExpr;                   // is there a layer below?
    int first_gates = -1;                        // where it projects
    ExprId is_first = kNoExpr;
  };

  Parts parts_of(Wave& wave, int hidden) const {
    kernel::Builder& build = wave.draft.build;
    const Index sample = symbol_index(wave.sample), source = symbol_index(wave.source);
    Parts parts;
    parts.previous = wave.draft.load(hidden, {wave.before, wave.cell, sample, source});
    const auto recurrent = [&](const std::string& name, DType dtype, int tensor) {
      return parameters(wave, name, dtype, tensor, 1, {one_.rows(), one_.hidden});
    };
    const bool apart = splits(recurrent_precision());
    if (blocks_.summed) parts.weights = weights_where_they_lie(wave);
    else
      parts.weights = recurrent(apart ? "weights_high" : "recurrent_weights", apart ? DType::bf16 : one_.dtype,
                                recurrent_);
    if (apart && blocks_.parts == 3) parts.weights_middle = recurrent("weights_middle", DType::bf16, recurrent_middle_);
    if (apart) parts.weights_low = recurrent("weights_low", DType::bf16, recurrent_low_);
    parts.products = products_buffer(wave);
    if (has_biases()) parts.biases = biases_buffer(wave);
    if (one_.projected > 0) {
      parts.first_gates = parameters(wave, "first_gates", DType::f32, first_gates_, 1,
                                     {one_.batch, one_.hidden, gate_places()});
      parts.is_first = compared(build, ScalarOp::kEqual, wave.turn, 0);
    }
    if (wave.has_input == kNoExpr) return parts;
    parts.is_above = compared(build, ScalarOp::kGreater, wave.cell, 0);
    parts.below = wave.draft.load(hidden, {wave.before, wave.cell - Index(1), sample, source}, 0.0, parts.is_above);
    parts.input_weights = wave.draft.buffer("input_weights", one_.dtype, {one_.layers - 1, one_.rows(), one_.hidden},
                                            {}, BufferRole::kInput, below_);
    return parts;
  }

  int products_buffer(Wave& wave) const {
    if (!one_.products)
      return wave.draft.buffer("products", DType::f32, products_shape(), {}, BufferRole::kInput, products_);
    StridedOperand given = *one_.products;
    given.strides = {0, given.strides[0], given.strides[1], given.strides[2], one_.hidden * given.strides[2]};
    return operand(wave.draft, given, {1, one_.steps, one_.batch, one_.hidden, one_.gates()});
  }

  int biases_buffer(Wave& wave) const {
    if (gathers_biases()) return parameters(wave, "biases", DType::f32, biases_, 2, {one_.hidden, one_.gates()});
    StridedOperand given = *one_.cells[0].recurrent_bias;
    given.strides = {0, given.strides[0], one_.hidden * given.strides[0]};
    return operand(wave.draft, given, {1, one_.hidden, one_.gates()});
  }

  int weights_where_they_lie(Wave& wave) const {
    StridedOperand given = one_.cells[0].recurrent_weight;
    given.strides.insert(given.strides.begin(), 0);
    return operand(wave.draft, given, {1, one_.rows(), one_.hidden});
  }

  ExprId weights_of(Wave& wave, int weights, const Index& cell, const Index& gate, ExprId mask) const {
    const Index row = gate * Index(one_.hidden) + symbol_index(wave.unit);
    return wave.draft.load(weights, {cell, row, symbol_index(wave.source)}, 0.0, mask);
  }

  // The products with the state before, as exact as an LSTM needs them.
  ExprId recurrent_dot(Wave& wave, const Parts& parts, const Index& gate) const {
    kernel::Builder& build = wave.draft.build;
    const ExprId weights = weights_of(wave, parts.weights, wave.cell, gate, kNoExpr);
    const kernel::Precision precision = recurrent_precision();
    if (blocks_.summed)
      return build.reduce(kernel::ReduceOp::kSum, {build.op(ScalarOp::kMul, {parts.previous, weights})}, {wave.source});
    if (!splits(precision))
      return build.dot(factor(build, parts.previous, precision), weights, {wave.source}, precision);
    const Pieces state = pieces_of(wave.draft, "state", parts.previous, blocks_.parts);
    const auto product = [&](ExprId left, ExprId right) {
      return build.dot(left, right, {wave.source}, kernel::Precision::kFull);
    };
    const ExprId rest = weights_of(wave, parts.weights_low, wave.cell, gate, kNoExpr);
    ExprId small = sum(build, product(state.low, weights), product(state.finite, rest));
    if (state.middle != kNoExpr) {
      const ExprId middle = weights_of(wave, parts.weights_middle, wave.cell, gate, kNoExpr);
      small = sum(build, small, product(state.middle, middle));
      small = sum(build, sum(build, small, product(state.middle, weights)), product(state.finite, middle));
    }
    return sum(build, small, product(state.high, weights));
  }

  ExprId bias(Wave& wave, const Parts& parts, const Index& gate, int64_t which) const {
    if (parts.biases < 0 || (which == 0 && !gathers_biases())) return kNoExpr;
    const Index row = gathers_biases() ? wave.cell * Index(2) + Index(which) : Index(0);
    return wave.draft.load(parts.biases, {row, symbol_index(wave.unit), gate});
  }

  // What a gate has of the layer's input, and of the state before.
  ExprId from_input(Wave& wave, const Parts& parts, const Index& gate) const {
    kernel::Builder& build = wave.draft.build;
    const Index direction = one_.directions > 1 ? wave.cell : Index(0);
    const ExprId product = wave.draft.load(
        parts.products, {direction, wave.time, symbol_index(wave.sample), symbol_index(wave.unit), gate}, 0.0,
        build.both(wave.active, wave.has_input));
    const ExprId own = sum(build, product, bias(wave, parts, gate, 0));
    if (parts.below == kNoExpr) return own;
    const ExprId weights = weights_of(wave, parts.input_weights, wave.cell - Index(1), gate, parts.is_above);
    return sum(build, build.dot(factor(build, parts.below, precision()), weights, {wave.source}, precision()), own);
  }

  ExprId from_hidden(Wave& wave, const Parts& parts, const Index& gate) const {
    const ExprId own = sum(wave.draft.build, recurrent_dot(wave, parts, gate), bias(wave, parts, gate, 1));
    if (parts.first_gates < 0) return own;
    const ExprId first = wave.draft.load(
        parts.first_gates, {wave.cell, symbol_index(wave.sample), symbol_index(wave.unit), gate}, 0.0, parts.is_first);
    return sum(wave.draft.build, own, first);
  }

  // One gate of what `make` makes of a gate. Where all gates are one product it is picked from that.
  template <typename Make>
  ExprId gate_of(Wave& wave, int64_t gate, const Make& make) const {
    if (wave.gate < 0) return make(Index(gate));
    kernel::Builder& build = wave.draft.build;
    const Index all = symbol_index(wave.gate);
    const ExprId picked = build.op(
        ScalarOp::kSelect, {compared(build, ScalarOp::kEqual, all, gate), make(all), build.constant(DType::f32, 0.0)});
    return build.reduce(kernel::ReduceOp::kSum, {picked}, {wave.gate});
  }

  // A kernel has some of the cells, which begin at first_. Of each, `each` rows of a tensor of parameters.
  int parameters(Wave& wave, const std::string& name, DType dtype, int tensor, int64_t each, const Shape& inner) const {
    Shape shape = inner;
    shape.insert(shape.begin(), each * cells_);
    return wave.draft.buffer(name, dtype, shape, {}, BufferRole::kInput, tensor, each * first_ * product(inner));
  }

  int state(Wave& wave, const std::string& name, DType dtype, BufferRole role, int tensor) const {
    Shape own = state_shape(cells_), strides = contiguous_strides(state_shape(one_.cell_count()));
    return wave.draft.buffer(name, dtype, own, strides, role, tensor, first_ * strides[1]);
  }

  void compute(Wave& wave, bool makes_sequence) {
    kernel::Builder& build = wave.draft.build;
    const Index sample = symbol_index(wave.sample), unit = symbol_index(wave.unit);
    const int hidden = state(wave, "hidden", one_.dtype, BufferRole::kInput, hidden_);
    const Parts parts = parts_of(wave, hidden);
    const auto of_input = [&](const Index& gate) { return from_input(wave, parts, gate); };
    const auto of_hidden = [&](const Index& gate) { return from_hidden(wave, parts, gate); };
    const auto gate = [&](int64_t which) {
      return gate_of(wave, which, [&](const Index& at) { return sum(build, of_input(at), of_hidden(at)); });
    };
    const CellStates after = states_after(
        build, one_.kind,
        {.of_input = [&](int64_t which) { return gate_of(wave, which, of_input); },
         .of_hidden = [&](int64_t which) { return gate_of(wave, which, of_hidden); },
         .gate = gate,
         .hidden =
             [&] { return build.cast(DType::f32, wave.draft.load(hidden, {wave.before, wave.cell, sample, unit})); },
         .cell =
             [&] {
               const int cell = state(wave, "cell", DType::f32, BufferRole::kInput, cell_);
               return wave.draft.load(cell, {wave.before, wave.cell, sample, unit});
             }});
    if (one_.has_cell_state()) {
      store_state(wave, "new_cell", DType::f32, cell_, after.cell);
      store_last(wave, one_.last_cell, "last_cell", after.cell);
      if (one_.cell_sequence.value != kNoValue) store_steps(wave, "cells", one_.cell_sequence, after.cell);
    }
    const ExprId made = after.hidden;
    store_state(wave, "new_hidden", one_.dtype, hidden_, made);
    StridedResult last = one_.last_hidden;
    if (one_.projected > 0 && last.value != kNoValue)
      last = {last_, contiguous_strides({one_.cell_count(), one_.batch, one_.hidden})};
    store_last(wave, last, "last_hidden", made);
    store_sequence(wave, makes_sequence, made);
  }

  void store_state(Wave& wave, const std::string& name, DType dtype, int tensor, ExprId value) const {
    const int made = state(wave, name, dtype, BufferRole::kOutput, tensor);
    wave.draft.store(made, {wave.now, wave.cell, symbol_index(wave.sample), symbol_index(wave.unit)},
                     wave.draft.build.cast(dtype, value), wave.active);
  }

  void store_last(Wave& wave, const StridedResult& result, const std::string& name, ExprId value) const {
    if (result.value == kNoValue) return;
    const int made = wave.draft.buffer(name, one_.dtype, {cells_, one_.batch, one_.hidden}, result.strides,
                                       BufferRole::kOutput, result.value, first_ * result.strides[0]);
    wave.draft.store(made, {wave.cell, symbol_index(wave.sample), symbol_index(wave.unit)},
                     wave.draft.build.cast(one_.dtype, value), wave.is_last);
  }

  void store_sequence(Wave& wave, bool is_result, ExprId value) const {
    StridedResult to = one_.sequence;
    if (is_result && to.value == kNoValue) return;
    if (one_.projected > 0 || !is_result)
      to = {one_.projected > 0 ? made_ : between_, contiguous_strides({one_.steps, one_.batch, width()})};
    store_steps(wave, is_result ? "sequence" : "between", to, value);
  }

  void store_steps(Wave& wave, const std::string& name, const StridedResult& to, ExprId value) const {
    const int made = wave.draft.buffer(name, one_.dtype, {one_.steps, one_.batch, width()}, to.strides,
                                       BufferRole::kOutput, to.value);
    const Index first = one_.directions > 1 ? wave.cell * Index(one_.hidden) : Index(0);
    wave.draft.store(made, {wave.time, symbol_index(wave.sample), first + symbol_index(wave.unit)},
                     wave.draft.build.cast(one_.dtype, value), wave.draft.build.both(wave.active, wave.is_highest));
  }

  int64_t first_ = 0, cells_ = 1;  // of the kernel under construction
};

}  // namespace

ScheduledGroup recurrence_kernels(const LoweredGroup& group, const RecurrenceBlocks& blocks) {
  return RecurrenceKernels(group, blocks).run();
}

}  // namespace kw::plan
