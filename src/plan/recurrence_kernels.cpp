#include "plan/recurrence_kernels.hpp"

#include <algorithm>

#include "lower/pipeline.hpp"
#include "plan/pieces.hpp"
#include "plan/recurrent_cell.hpp"
#include "plan/scheduled_draft.hpp"
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

constexpr int64_t kLeastBlock = 16;    // of a dot in Triton
constexpr int64_t kCopiedTile = 1024;  // elements of a block that copies
constexpr int64_t kCounterPlaces = 4;  // of a counter of blocks, so that each is aligned to 16 bytes

class RecurrenceKernels : ProductKernels {
 public:
  RecurrenceKernels(const LoweredGroup& group, const RecurrenceBlocks& blocks)
      : ProductKernels(group, operands_of(*group.recurrence)), one_(*group.recurrence), blocks_(blocks) {}

  ScheduledGroup run() {
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
      return std::move(result_);
    }
    if (one_.layers > 1) between_ = tensor("between", one_.dtype, {one_.steps, one_.batch, width()});
    for (int64_t layer = 0; layer < one_.layers; ++layer) {
      for (int64_t direction = 0; direction < one_.directions; ++direction) multiply_input(layer, direction);
      walk(layer, 1);
    }
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

  static std::vector<const ProductOperand*> operands_of(const Recurrence& one) {
    std::vector<const ProductOperand*> operands = {one.products ? &one.products->lies : &one.input.lies,
                                                   &one.first_hidden.lies};
    if (one.first_cell) operands.push_back(&one.first_cell->lies);
    for (const RecurrentCell& cell : one.cells) {
      if (!one.products) operands.push_back(&cell.input_weight.lies);
      operands.push_back(&cell.recurrent_weight.lies);
      for (const auto* bias : {&cell.input_bias, &cell.recurrent_bias})
        if (*bias) operands.push_back(&(*bias)->lies);
    }
    return operands;
  }

  int64_t width() const { return one_.directions * one_.hidden; }
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

  static ExprId sum(kernel::Builder& build, ExprId a, ExprId b) {
    return a == kNoExpr ? b : b == kNoExpr ? a : build.op(ScalarOp::kAdd, {a, b});
  }

  // --- Before the first step ---

  void gather_parameters() {
    std::vector<StridedOperand> recurrent, below, biases;
    for (const RecurrentCell& cell : one_.cells) {
      recurrent.push_back(cell.recurrent_weight);
      if (one_.directions == 1 && &cell != &one_.cells[0]) below.push_back(cell.input_weight);
      if (!gathers_biases()) continue;
      for (const auto& bias : {cell.input_bias, cell.recurrent_bias})
        biases.push_back({bias->lies, {bias->strides[0], one_.hidden * bias->strides[0]}});
    }
    recurrent_ = gathered("recurrent_weights", recurrent, one_.dtype, {one_.rows(), one_.hidden},
                          recurrent_precision());
    if (!below.empty()) below_ = gathered("input_weights", below, one_.dtype, {one_.rows(), one_.hidden}, precision());
    if (gathers_biases())
      biases_ = gathered("biases", biases, DType::f32, {one_.hidden, one_.gates()}, kernel::Precision::kFull);
  }

  // Tensors of one shape, one after the other, so that an index tells which.
  int gathered(const std::string& name, const std::vector<StridedOperand>& operands, DType dtype, const Shape& shape,
               kernel::Precision precision) {
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
      places.push_back(symbol_index(
          draft.mapped(inner ? "column" : "row", shape[dim], {.mapping = Mapping::kGrid, .width = lanes})));
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

  Shape state_shape(int64_t cells) const { return {2, cells, one_.batch, one_.hidden}; }

  // Two states of each cell: one is read while the other is written. A cell that has not begun finds its first in both.
  void begin_states() {
    const int64_t cells = one_.cell_count();
    hidden_ = tensor("hidden", one_.dtype, state_shape(cells));
    if (one_.has_cell_state()) cell_ = tensor("cell", DType::f32, state_shape(cells));
    ScheduledDraft draft("begin_" + group_.kernel.name, "The states before the first step, twice.");
    const Index which = draft.grid("which", 2), cell = draft.grid("cell", cells);
    const Symbol sample = draft.mapped("sample", one_.batch, {});
    const Symbol unit = draft.mapped(
        "unit", one_.hidden,
        {.mapping = Mapping::kGrid, .width = std::min(next_power_of_two(one_.hidden), kCopiedTile)});
    const auto copy = [&](const std::string& name, const StridedOperand& from, int to, DType dtype) {
      const std::vector<Index> place = {cell, symbol_index(sample), symbol_index(unit)};
      const ExprId value = draft.load(operand(draft, from, {cells, one_.batch, one_.hidden}), place);
      const int made = draft.buffer(name, dtype, state_shape(cells), {}, BufferRole::kOutput, to);
      draft.store(made, {which, cell, symbol_index(sample), symbol_index(unit)}, draft.build.cast(dtype, value));
    };
    copy("hidden", one_.first_hidden, hidden_, one_.dtype);
    if (one_.first_cell) copy("cell", *one_.first_cell, cell_, DType::f32);
    finish(draft);
  }

  // --- What does not wait for the step before ---

  // The products of a layer's input with its weights, for all times.
  void multiply_input(int64_t layer, int64_t direction) {
    const RecurrentCell& cell = one_.cells[layer * one_.directions + direction];
    const int64_t rows = one_.steps * one_.batch, columns = one_.hidden * gate_places(),
                  features = layer == 0 ? one_.features : width();
    ScheduledDraft draft("multiply_input_" + group_.kernel.name, "A layer's input times its weights, for all times.");
    kernel::Builder& build = draft.build;
    const auto block = [](int64_t extent, int64_t most) {
      return std::clamp<int64_t>(next_power_of_two(extent), kLeastBlock, most);
    };
    const Symbol row = draft.mapped("row", rows, {.mapping = Mapping::kGrid, .width = block(rows, 64)}),
                 column = draft.mapped("column", columns,
                                       {.mapping = Mapping::kGrid, .width = block(columns, one_.exact ? 64 : 128)}),
                 feature = draft.mapped("feature", features,
                                        {.mapping = Mapping::kLoop, .width = block(features, 32), .stages = 3});
    std::vector<Index> place;
    StridedOperand input = one_.input;
    if (layer > 0) {
      input.lies.name = "between";
      input.lies.root = between_;
      input.lies.offset = 0;
      input.strides = contiguous_strides({one_.steps, one_.batch, features});
    }
    Shape shape = {one_.steps, one_.batch, features};
    if (input.strides[0] == one_.batch * input.strides[1]) {
      shape = {rows, features};
      input.strides.erase(input.strides.begin());
      place = {symbol_index(row)};
    } else {
      const Digits at(draft, symbol_index(row), {one_.steps, one_.batch});
      place = {at[0], at[1]};
    }
    place.push_back(symbol_index(feature));
    const ExprId left = draft.load(operand(draft, input, shape), place);
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    const Index gate = kernel::modulo(symbol_index(column), gate_places(), ranges),
                unit = kernel::floor_divide(symbol_index(column), gate_places(), ranges);
    const ExprId right = draft.load(operand(draft, cell.input_weight, {one_.rows(), features}),
                                    {gate * Index(one_.hidden) + unit, symbol_index(feature)}, 0.0,
                                    within(build, gate, one_.gates()));
    const int made = draft.buffer("products", DType::f32, {rows, columns}, {}, BufferRole::kOutput, products_,
                                  direction * rows * columns);
    draft.store(made, {symbol_index(row), symbol_index(column)},
                build.dot(factor(build, left, precision()), factor(build, right, precision()), {feature}, precision()));
    draft.schedule.order = {.grouped = "row", .along = "column", .count = 8};
    draft.schedule.warps = 4;
    finish(draft);
  }

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
    return sum(wave.draft.build, recurrent_dot(wave, parts, gate), bias(wave, parts, gate, 1));
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
    store_last(wave, one_.last_hidden, "last_hidden", made);
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
    if (!is_result) to = {between_, contiguous_strides({one_.steps, one_.batch, width()})};
    if (is_result && to.value == kNoValue) return;
    store_steps(wave, is_result ? "sequence" : "between", to, value);
  }

  void store_steps(Wave& wave, const std::string& name, const StridedResult& to, ExprId value) const {
    const int made = wave.draft.buffer(name, one_.dtype, {one_.steps, one_.batch, width()}, to.strides,
                                       BufferRole::kOutput, to.value);
    const Index first = one_.directions > 1 ? wave.cell * Index(one_.hidden) : Index(0);
    wave.draft.store(made, {wave.time, symbol_index(wave.sample), first + symbol_index(wave.unit)},
                     wave.draft.build.cast(one_.dtype, value), wave.draft.build.both(wave.active, wave.is_highest));
  }

  const Recurrence& one_;
  const RecurrenceBlocks& blocks_;
  // Tensors of our own, as buffers are told of them.
  int recurrent_ = 0, recurrent_low_ = 0, recurrent_middle_ = 0, below_ = 0, biases_ = 0, hidden_ = 0, cell_ = 0,
      products_ = 0, between_ = 0, arrived_ = 0;
  int64_t first_ = 0, cells_ = 1;  // of the kernel under construction
};

}  // namespace

ScheduledGroup recurrence_kernels(const LoweredGroup& group, const RecurrenceBlocks& blocks) {
  return RecurrenceKernels(group, blocks).run();
}

}  // namespace kw::plan
