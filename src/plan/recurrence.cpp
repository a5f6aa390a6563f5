#include "plan/recurrence.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/op_registry.hpp"

namespace kw::plan {
namespace {

// Products of the input with the lowest layer's weights lie in memory for all steps at once.
constexpr int64_t kMostBytesOfProducts = int64_t{1} << 30;

const ValueList* list_of(const Node& node, std::string_view name) {
  const Argument* found = node.find(name);
  return found ? std::get_if<ValueList>(found) : nullptr;
}

struct Read {
  const GraphFacts& facts;
  const Node& node;
  const ValueList* parameters = list_of(node, "params");
  const int64_t layers = node.integer("num_layers", 1), directions = node.boolean("bidirectional", false) ? 2 : 1;
  const bool has_biases = node.boolean("has_biases", true), batch_first = node.boolean("batch_first", false);
  const std::string_view name = base_name(node);

  const TensorType& type(ValueId value) const { return facts.graph.type(value); }
  ValueId input() const { return node.value("input"); }

  // What it begins with: of an LSTM two, a list.
  std::vector<ValueId> first() const {
    if (const ValueList* list = list_of(node, "hx")) return list->ids;
    return {node.value("hx")};
  }

  int64_t gates() const { return name == "lstm" ? 4 : name == "gru" ? 3 : 1; }
  int64_t gate_places() const { return gates() > 1 ? 4 : 1; }  // of their products
  int64_t parameter_count() const { return std::ssize(parameters->ids); }
  int64_t cells() const { return layers * directions; }
  int64_t cell_size_unprojected() const { return has_biases ? 4 : 2; }
  bool projects() const { return name == "lstm" && parameter_count() == cells() * (cell_size_unprojected() + 1); }
  int64_t cell_size() const { return cell_size_unprojected() + (projects() ? 1 : 0); }
  int64_t state_size() const { return type(first()[0]).shape[2]; }
  int64_t hidden() const { return projects() ? type(first()[1]).shape[2] : state_size(); }

  bool has_shapes() const {
    for (int64_t cell = 0; cell < cells(); ++cell) {
      const ValueId* own = parameters->ids.data() + cell * cell_size();
      const int64_t features = cell < directions ? type(input()).shape[2] : directions * state_size();
      if (type(own[0]).shape != Shape{gates() * hidden(), features} ||
          type(own[1]).shape != Shape{gates() * hidden(), state_size()} ||
          (projects() && type(own[cell_size() - 1]).shape != Shape{state_size(), hidden()}))
        return false;
    }
    return true;
  }

  bool is_of_one_kind() const {
    const TensorType& x = type(input());
    bool same = true;
    for_each_operand(
        node, [&](ValueId value) { same = same && type(value).dtype == x.dtype && type(value).device == x.device; });
    return same;
  }
};

struct Refusal {
  bool (*holds)(const Read& read);
  const char* why;
};

// In this order: each may count on what those before it ruled out.
constexpr std::array<Refusal, 10> kRefusals = {{
    {[](const Read& read) { return !read.node.op.ends_with(".input"); }, "its sequences are packed"},
    {[](const Read& read) {
       return read.parameters == nullptr || read.input() == kNoValue || read.first()[0] == kNoValue;
     },
     "it is not written as PyTorch's modules do"},
    {[](const Read& read) { return !is_pure(read.node); }, "it drops out between layers"},
    {[](const Read& read) {
       return read.parameter_count() != read.cells() * read.cell_size() ||
              (read.projects() && std::ssize(read.first()) != 2);
     },
     "its parameters are not those of PyTorch's modules"},
    {[](const Read& read) { return read.type(read.input()).rank() != 3 || read.type(read.first()[0]).rank() != 3; },
     "its input has no batch"},
    {[](const Read& read) {
       const DType dtype = read.type(read.input()).dtype;
       return dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16;
     },
     "it is in double precision, or of integers"},
    {[](const Read& read) { return read.projects() && read.type(read.input()).dtype != DType::f32; },
     "it projects its hidden state in 16 bits"},
    {[](const Read& read) { return !read.is_of_one_kind(); }, "its operands are of several types or devices"},
    {[](const Read& read) {
       const Shape& shape = read.type(read.first()[0]).shape;
       return read.type(read.input()).elements() == 0 || product(shape) == 0 || !read.has_shapes();
     },
     "there is nothing to compute"},
    {[](const Read& read) {
       const TensorType& x = read.type(read.input());
       return x.elements() / x.shape[2] * read.directions * read.gate_places() * read.hidden() * 4 >
              kMostBytesOfProducts;
     },
     "the products of its input take too much memory"},
}};

StridedOperand strided(const GraphFacts& facts, ValueId value) {
  return {placed(facts, value), facts.graph.type(value).strides};
}

bool is_of_steps(const Node& node) { return node.op == "kw.rnn_steps.default"; }

Recurrence recurrence_of_steps(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph;
  const Node& node = graph.nodes[id];
  const ValueId first = node.value("first"), products = node.value("products");
  Recurrence made;
  made.node = id;
  const std::string kind = node.text("kind");
  made.kind = kind == "lstm"   ? CellKind::kLstm
              : kind == "gru"  ? CellKind::kGru
              : kind == "relu" ? CellKind::kRelu
                               : CellKind::kTanh;
  const TensorType& sequence = graph.type(node.results[0]);
  made.steps = sequence.shape[0];
  made.batch = sequence.shape[1];
  made.features = 0;
  made.hidden = sequence.shape[2];
  made.exact = true;
  made.products = strided(facts, products);
  const auto of_one_cell = [&](ValueId value) {
    StridedOperand state = strided(facts, value);
    state.strides.insert(state.strides.begin(), 0);
    return state;
  };
  made.first_hidden = of_one_cell(first);
  if (made.has_cell_state()) {
    made.first_cell = of_one_cell(node.value("cell"));
    made.last_cell = {node.results[1], {0}};
    if (node.results[1] != kNoValue) {
      const Shape& strides = graph.type(node.results[1]).strides;
      made.last_cell.strides.insert(made.last_cell.strides.end(), strides.begin(), strides.end());
    }
  }
  if (node.results.size() > 2 && node.results[2] != kNoValue)
    made.cell_sequence = {node.results[2], graph.type(node.results[2]).strides};
  made.cells.push_back({{}, strided(facts, node.value("weight")), {}, {}, {}});
  if (const ValueId bias = node.value("bias"); bias != kNoValue) made.cells[0].recurrent_bias = strided(facts, bias);
  made.sequence = {node.results[0], sequence.strides};
  return made;
}

bool is_linear(const Node& node) { return node.op == "kw.linear_steps.default"; }

// Neighbouring axes that are one in the memory of all operands and of the result become one.
void join_axes(LinearSteps& made) {
  std::vector<std::pair<Shape*, size_t>> strides = {// each with its place of the first axis
                                                    {&made.input.strides, 1},
                                                    {&made.first.strides, 0},
                                                    {&made.result.strides, made.every ? 1 : 0}};
  if (made.decay) strides.emplace_back(&made.decay->strides, 1);
  for (size_t axis = made.shape.size(); axis-- > 1;) {
    const auto is_one = [&](const auto& one) {
      const Shape& own = *one.first;
      return own[one.second + axis - 1] == own[one.second + axis] * made.shape[axis];
    };
    if (made.shape[axis] != 1 && made.shape[axis - 1] != 1 && !std::all_of(strides.begin(), strides.end(), is_one))
      continue;
    const size_t gone = made.shape[axis] == 1 ? axis : axis - 1;  // the other's stride is the joined axis's
    made.shape[axis - 1] *= made.shape[axis];
    made.shape.erase(made.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    for (const auto& [own, start] : strides) own->erase(own->begin() + static_cast<std::ptrdiff_t>(start + gone));
  }
}

Recurrence recurrence_of_linear(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph;
  const Node& node = graph.nodes[id];
  const ValueId input = node.value("input"), decay = node.value("decay"), result = node.results[0];
  LinearSteps linear;
  linear.input = strided(facts, input);
  linear.first = strided(facts, node.value("first"));
  linear.shape = graph.type(node.value("first")).shape;
  if (decay != kNoValue) linear.decay = strided(facts, decay);
  else linear.factor = node.number("decay", 1.0);
  linear.every = node.boolean("every", true);
  linear.result = {result, graph.type(result).strides};
  Recurrence made;
  made.node = id;
  made.kind = CellKind::kTanh;
  made.steps = graph.type(input).shape[0];
  made.hidden = product(linear.shape);
  made.exact = true;
  join_axes(linear);
  made.linear = std::move(linear);
  return made;
}

}  // namespace

bool is_recurrence(const Node& node) {
  const std::string_view name = base_name(node);
  return is_of_steps(node) || is_linear(node) ||
         (node.op.starts_with("aten.") &&
          (name == "lstm" || name == "gru" || name == "rnn_tanh" || name == "rnn_relu"));
}

std::string why_not_taken(const GraphFacts& facts, NodeId node) {
  if (is_of_steps(facts.graph.nodes[node]) || is_linear(facts.graph.nodes[node])) return "";
  const Read read{facts, facts.graph.nodes[node]};
  for (const Refusal& refusal : kRefusals)
    if (refusal.holds(read)) return refusal.why;
  return "";
}

double Recurrence::flops() const {
  if (linear) return 2.0 * static_cast<double>(steps * hidden);
  double terms = 0;  // of a unit's gates, and of its part in the projection
  for (int64_t layer = 0; layer < layers; ++layer)
    terms += static_cast<double>(gates() * (state_size() + (layer == 0 ? features : directions * state_size())) +
                                 projected);
  return 2.0 * terms * static_cast<double>(directions * hidden) * static_cast<double>(steps * batch);
}

std::optional<Recurrence> recurrence_of(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph;
  const Node& node = graph.nodes[id];
  if (!is_recurrence(node) || !why_not_taken(facts, id).empty()) return std::nullopt;
  if (is_of_steps(node)) return recurrence_of_steps(facts, id);
  if (is_linear(node)) return recurrence_of_linear(facts, id);
  const Read read{facts, node};
  Recurrence made;
  made.node = id;
  made.kind = read.name == "lstm"       ? CellKind::kLstm
              : read.name == "gru"      ? CellKind::kGru
              : read.name == "rnn_tanh" ? CellKind::kTanh
                                        : CellKind::kRelu;
  made.layers = read.layers;
  made.directions = read.directions;
  const TensorType& x = graph.type(read.input());
  const size_t step = read.batch_first ? 1 : 0, sample = 1 - step;
  made.steps = x.shape[step];
  made.batch = x.shape[sample];
  made.features = x.shape[2];
  made.hidden = read.hidden();
  if (read.projects()) made.projected = read.state_size();
  made.dtype = x.dtype;
  made.exact = x.dtype == DType::f32 && !graph.tf32_convolutions;
  made.input = {placed(facts, read.input()), {x.strides[step], x.strides[sample], x.strides[2]}};
  made.first_hidden = strided(facts, read.first()[0]);
  if (made.has_cell_state()) made.first_cell = strided(facts, read.first()[1]);
  for (int64_t cell = 0; cell < made.cell_count(); ++cell) {
    const ValueId* own = read.parameters->ids.data() + cell * read.cell_size();
    RecurrentCell one{strided(facts, own[0]), strided(facts, own[1]), {}, {}, {}};
    if (read.has_biases) {
      one.input_bias = strided(facts, own[2]);
      one.recurrent_bias = strided(facts, own[3]);
    }
    if (read.projects()) one.projection = strided(facts, own[read.cell_size() - 1]);
    made.cells.push_back(std::move(one));
  }
  const auto result = [&](size_t place) {
    const ValueId value = place < node.results.size() ? node.results[place] : kNoValue;
    return StridedResult{value, value == kNoValue ? Shape{} : graph.type(value).strides};
  };
  made.sequence = result(0);
  made.last_hidden = result(1);
  if (made.has_cell_state()) made.last_cell = result(2);
  if (read.batch_first && made.sequence.value != kNoValue)
    std::swap(made.sequence.strides[0], made.sequence.strides[1]);
  return made;
}

}  // namespace kw::plan
