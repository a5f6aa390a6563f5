#include "passes/recurrences.hpp"

#include <algorithm>
#include <map>

#include "ir/op_registry.hpp"
#include "passes/slices.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestSteps = 4;
constexpr int kDeepestSum = 8;

// What is added to make a step's argument: a value, or the product of `parts`, side by side, with a matrix.
struct Addend {
  std::vector<ValueId> parts;
  ValueId matrix = kNoValue;  // kNoValue: no product
  bool transposed = false;    // as a linear layer's weight: its rows are the result's columns
  bool is_like(const Addend& other) const {
    return parts.size() == other.parts.size() && matrix == other.matrix && transposed == other.transposed;
  }
};

// act(sum of addends); of an LSTM, the sum has the arguments of all gates.
struct Step {
  std::string kind;
  ValueId sum = kNoValue;
  ValueId cell_before = kNoValue, cell = kNoValue;  // of an LSTM
  std::vector<Addend> addends;
};

// What a part is from one step to the next.
enum class Role { kSame, kSlice, kState };

class Recurrences {
 public:
  explicit Recurrences(Graph& graph) : rewriter_(graph), reads_(graph.values.size(), 0) {
    for (const Node& node : graph.nodes) for_each_operand(node, [&](ValueId value) { ++reads_[value]; });
    for (const GraphOutput& output : graph.outputs)
      if (output.value != kNoValue) ++reads_[output.value];
    for (const Node& node : graph.nodes)
      if (auto step = step_of(node)) add(node.results[0], std::move(*step));
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      const std::vector<ValueId>& states = chains_[chain].states;
      if (!is_worth_it(chains_[chain])) continue;
      for (size_t at = 0; at < states.size(); ++at) places_[states[at]] = {chain, at};
      if (const ValueId cell = steps_.at(states.back()).cell; cell != kNoValue) last_cells_[cell] = chain;
    }
  }

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.results.size() != 1) return false;
      if (const auto last = last_cells_.find(node.results[0]); last != last_cells_.end()) {
        rewriter_.replace(node.results[0], chains_[last->second].last_cell, NumericTag::kReassociates);
        return true;
      }
      const auto found = places_.find(node.results[0]);
      if (found == places_.end()) return false;
      Chain& chain = chains_[found->second.first];
      const size_t at = found->second.second;
      if (at == 0) emit(chain, *step_of(node), rewriter_.type(node.results[0]));
      const ValueId state = node.results[0];
      rewriter_.replace(state, emit_slice(rewriter_, chain.sequence, static_cast<int64_t>(at)),
                        NumericTag::kReassociates);
      return true;
    });
  }

 private:
  struct Chain {
    std::vector<ValueId> states;
    std::vector<Role> roles;  // of all parts of all addends
    ValueId sequence = kNoValue, last_cell = kNoValue;
  };

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  // --- What a step computes ---

  bool is_matrix(ValueId value) const {
    return value != kNoValue && type(value).rank() == 2 && type(value).dtype == DType::f32;
  }

  std::vector<ValueId> parts_of(ValueId value) const {
    const Node* node = rewriter_.producer(value);
    if (node == nullptr || node->op != "aten.cat.default") return {value};
    const auto* parts = std::get_if<ValueList>(node->find("tensors"));
    const int64_t dim = node->integer("dim", 0);
    if (parts == nullptr || parts->ids.size() != 2 || (dim != 1 && dim != -1)) return {value};
    return parts->ids;
  }

  bool add_product(Step& step, ValueId left, ValueId matrix, bool transposed, ValueId bias) const {
    if (!is_matrix(left) || !is_matrix(matrix)) return false;
    step.addends.push_back({parts_of(left), matrix, transposed});
    if (bias != kNoValue) step.addends.push_back({{bias}});
    return true;
  }

  // Adds what is added in `value`, which has the shape of the sum.
  void add_addends(Step& step, ValueId value, int depth) const {
    const Node* node = rewriter_.producer(value);
    const auto is = [&](std::string_view op) { return node != nullptr && node->op == op; };
    if (is("aten.add.Tensor") && depth < kDeepestSum && node->number("alpha", 1.0) == 1.0) {
      const ValueId self = node->value("self"), other = node->value("other");
      if (self != kNoValue && other != kNoValue) {
        for (const ValueId side : {self, other}) add_addends(step, side, depth + 1);
        return;
      }
    }
    if (is("aten.linear.default") &&
        add_product(step, node->value("input"), node->value("weight"), true, node->value("bias")))
      return;
    if (is("aten.mm.default") && add_product(step, node->value("self"), node->value("mat2"), false, kNoValue)) return;
    if (is("aten.matmul.default") && add_product(step, node->value("self"), node->value("other"), false, kNoValue))
      return;
    if (is("aten.addmm.default") && node->number("alpha", 1.0) == 1.0 && node->number("beta", 1.0) == 1.0 &&
        add_product(step, node->value("mat1"), node->value("mat2"), false, node->value("self")))
      return;
    step.addends.push_back({{value}});
  }

  // The operand of a pointwise operator, kNoValue where `value` is no result of it.
  ValueId operand_of(ValueId value, std::string_view op) const {
    const Node* node = value == kNoValue ? nullptr : rewriter_.producer(value);
    return node != nullptr && node->op == op ? node->value("self") : kNoValue;
  }

  // Both operands of a product or sum of two tensors, in each order until `take` is content.
  template <typename Take>
  bool either_way(const Node* node, std::string_view op, const Take& take) const {
    if (node == nullptr || node->op != op || node->number("alpha", 1.0) != 1.0) return false;
    const ValueId self = node->value("self"), other = node->value("other");
    return self != kNoValue && other != kNoValue && (take(self, other) || take(other, self));
  }

  // Is `value` op(gate `which` of all)? The first one that is asked for says what all are.
  bool is_gate(ValueId value, std::string_view op, int64_t which, int64_t hidden, ValueId& all) const {
    const ValueId operand = operand_of(value, op);
    const Node* node = operand == kNoValue ? nullptr : rewriter_.producer(operand);
    if (node == nullptr || node->op != "aten.slice.Tensor") return false;
    const ValueId from = node->value("self");
    const int64_t dim = node->integer("dim", 0);
    if ((all != kNoValue && from != all) || !is_matrix(from) || type(from).shape[1] != 4 * hidden ||
        (dim != 1 && dim != -1) || node->integer("start", 0) != which * hidden || node->integer("step", 1) != 1 ||
        type(operand).shape != Shape{type(from).shape[0], hidden})
      return false;
    all = from;
    return true;
  }

  std::optional<Step> lstm_step_of(const Node& node) const {
    const ValueId result = node.results[0];
    if (node.op != "aten.mul.Tensor" || !is_matrix(result) || !type(result).is_contiguous()) return std::nullopt;
    const int64_t hidden = type(result).shape[1];
    Step step{"lstm", kNoValue, kNoValue, kNoValue, {}};
    const auto is = [&](ValueId value, std::string_view op, int64_t which) {
      return is_gate(value, op, which, hidden, step.sum);
    };
    const auto output = [&](ValueId gate, ValueId bounded) {
      step.cell = operand_of(bounded, "aten.tanh.default");
      return step.cell != kNoValue && is(gate, "aten.sigmoid.default", 3);
    };
    const auto written = [&](ValueId gate, ValueId candidate) {
      return is(gate, "aten.sigmoid.default", 0) && is(candidate, "aten.tanh.default", 2);
    };
    const auto kept = [&](ValueId gate, ValueId before) {
      step.cell_before = before;
      return is(gate, "aten.sigmoid.default", 1);
    };
    const auto cell = [&](ValueId old, ValueId fresh) {
      return either_way(rewriter_.producer(fresh), "aten.mul.Tensor", written) &&
             either_way(rewriter_.producer(old), "aten.mul.Tensor", kept);
    };
    if (!either_way(&node, "aten.mul.Tensor", output) ||
        !either_way(rewriter_.producer(step.cell), "aten.add.Tensor", cell) ||
        type(step.cell_before).shape != type(result).shape || type(step.cell_before).dtype != DType::f32)
      return std::nullopt;
    add_addends(step, step.sum, 0);
    return step;
  }

  std::optional<Step> step_of(const Node& node) const {
    if (node.results.size() != 1 || node.results[0] == kNoValue) return std::nullopt;
    if (node.op == "aten.mul.Tensor") return lstm_step_of(node);
    if ((node.op != "aten.tanh.default" && node.op != "aten.relu.default")) return std::nullopt;
    const ValueId result = node.results[0];
    if (!is_matrix(result) || !type(result).is_contiguous() || type(result).elements() == 0) return std::nullopt;
    Step step{std::string(base_name(node.op)), node.value("self"), kNoValue, kNoValue, {}};
    add_addends(step, node.value("self"), 0);
    return step;
  }

  // --- Which steps follow each other ---

  // The roles of a step's parts, where it follows the one that made `state`. It may read that once, in a product.
  std::optional<std::vector<Role>> roles_of(const Step& before, const Step& step, ValueId state) const {
    if (before.kind != step.kind || before.addends.size() != step.addends.size() || step.cell_before != before.cell)
      return std::nullopt;
    // Other steps' cells are not stored: what the step before made is read by it, and by this one.
    if (before.cell != kNoValue && reads_[before.cell] != 2) return std::nullopt;
    std::vector<Role> roles;
    int states = 0;
    for (size_t at = 0; at < step.addends.size(); ++at) {
      const Addend &now = step.addends[at], &then = before.addends[at];
      if (!now.is_like(then)) return std::nullopt;
      for (size_t part = 0; part < now.parts.size(); ++part) {
        const auto slice = slice_of(rewriter_, now.parts[part]), last = slice_of(rewriter_, then.parts[part]);
        if (now.parts[part] == state && now.matrix != kNoValue) {
          roles.push_back(Role::kState);
          ++states;
        } else if (now.parts[part] == then.parts[part]) {
          roles.push_back(Role::kSame);
        } else if (slice && last && last->is_before(*slice) && type(slice->whole).rank() == 3) {
          roles.push_back(Role::kSlice);
        } else {
          return std::nullopt;
        }
      }
    }
    return states == 1 ? std::optional(roles) : std::nullopt;
  }

  void add(ValueId result, Step step) {
    for (const Addend& addend : step.addends)
      for (const ValueId state : addend.parts)
        if (const auto before = steps_.find(state); before != steps_.end() && type(state).shape == type(result).shape)
          if (const auto roles = roles_of(before->second, step, state); roles && extend(state, result, *roles)) break;
    steps_.emplace(result, std::move(step));
  }

  bool extend(ValueId state, ValueId result, const std::vector<Role>& roles) {
    if (chain_of_.contains(result)) return true;
    const auto found = chain_of_.find(state);
    if (found == chain_of_.end()) {
      chain_of_[state] = chain_of_[result] = chains_.size();
      chains_.push_back({{state, result}, roles});
      return true;
    }
    Chain& chain = chains_[found->second];
    if (chain.states.back() != state || chain.roles != roles) return false;
    chain_of_[result] = found->second;
    chain.states.push_back(result);
    return true;
  }

  // Something of all of a step's elements comes for each step.
  bool is_worth_it(const Chain& chain) const {
    if (std::ssize(chain.states) < kFewestSteps) return false;
    const Step& step = steps_.at(chain.states[0]);
    size_t at = 0;
    for (const Addend& addend : step.addends)
      for (const ValueId part : addend.parts)
        if (chain.roles[at++] == Role::kSlice &&
            (addend.matrix != kNoValue || type(part).shape == type(step.sum).shape))
          return true;
    return false;
  }

  // --- What takes their place ---

  ValueId emit_op(std::string op, std::vector<NamedArgument> arguments) {
    return rewriter_.emit(std::move(op), std::move(arguments));
  }

  void emit(Chain& chain, const Step& first, TensorType type) {
    const auto steps = static_cast<int64_t>(chain.states.size());
    ValueId sum = kNoValue, state = kNoValue, weight = kNoValue;
    size_t at = 0;
    for (const Addend& addend : first.addends) {
      int64_t begin = 0;
      for (const ValueId part : addend.parts) {
        const Role role = chain.roles[at++];
        const int64_t depth = addend.matrix == kNoValue ? 0 : rewriter_.type(part).shape[1];
        const ValueId matrix = addend.matrix == kNoValue ? kNoValue : rows_of(addend, begin, depth);
        begin += depth;
        if (role == Role::kState) {
          state = part;
          weight = matrix;
          continue;
        }
        const ValueId all = role == Role::kSlice ? emit_slices(rewriter_, *slice_of(rewriter_, part), steps) : part;
        const ValueId value = matrix == kNoValue ? all
                                                 : emit_op("aten.linear.default",
                                                           {{"input", ValueRef{all}}, {"weight", ValueRef{matrix}}});
        sum = sum == kNoValue ? value
                              : emit_op("aten.add.Tensor", {{"self", ValueRef{sum}}, {"other", ValueRef{value}}});
      }
    }
    type.shape.insert(type.shape.begin(), steps);
    type.strides = contiguous_strides(type.shape);
    type.offset = 0;
    std::vector<NamedArgument> arguments = {
        {"products", ValueRef{sum}}, {"first", ValueRef{state}}, {"weight", ValueRef{weight}}, {"kind", first.kind}};
    if (first.cell == kNoValue) {
      chain.sequence = rewriter_.emit("kw.rnn_steps.default", std::move(arguments), std::move(type), "states");
      return;
    }
    arguments.push_back({"cell", ValueRef{first.cell_before}});
    TensorType cell = rewriter_.type(first.cell_before);
    cell.strides = contiguous_strides(cell.shape);
    cell.offset = 0;
    const auto results = rewriter_.emit_all("kw.rnn_steps.default", std::move(arguments),
                                            {{"states", std::move(type)}, {"last_cell", std::move(cell)}});
    chain.sequence = results[0];
    chain.last_cell = results[1];
  }

  // Of an addend's matrix what multiplies one part, as a linear layer's weight.
  ValueId rows_of(const Addend& addend, int64_t begin, int64_t depth) {
    ValueId matrix = addend.matrix;
    if (!addend.transposed) matrix = emit_permuted(rewriter_, matrix, {1, 0});
    if (depth == type(matrix).shape[1]) return matrix;
    return emit_op("aten.slice.Tensor",
                   {{"self", ValueRef{matrix}}, {"dim", int64_t{1}}, {"start", begin}, {"end", begin + depth}});
  }

  Rewriter rewriter_;
  std::vector<int> reads_;         // of the values of the graph as it was
  std::map<ValueId, Step> steps_;  // by its result
  std::map<ValueId, size_t> chain_of_;
  std::vector<Chain> chains_;
  std::map<ValueId, std::pair<size_t, size_t>> places_;  // of a state: its chain, and which step made it
  std::map<ValueId, size_t> last_cells_;                 // their chains
};

}  // namespace

RewriteCounts recurrences(Graph& graph) { return Recurrences(graph).run(); }

}  // namespace kw
