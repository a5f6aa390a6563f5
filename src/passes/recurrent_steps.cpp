#include "passes/recurrent_steps.hpp"

#include <algorithm>
#include <functional>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

constexpr int kDeepestSum = 8;

class StepReader {
 public:
  StepReader(const Rewriter& rewriter, ValueId result) : rewriter_(rewriter), result_(result) {}

  // act(sum)
  std::optional<RecurrentStep> plain(const Node& node) const {
    RecurrentStep step{std::string(base_name(node.op)), std::vector<std::vector<Addend>>(1)};
    add_addends(step.gates[0], all_of(node.value("self")), 0);
    return step;
  }

  // c = σ(f) c' + σ(i) tanh(g);  σ(o) tanh(c)
  std::optional<RecurrentStep> lstm(const Node& node) const {
    RecurrentStep step{"lstm", std::vector<std::vector<Addend>>(4)};
    const auto is = [&](ValueId value, std::string_view op, int64_t gate) {
      return read_gate(value, op, step.gates[gate]);
    };
    const auto output = [&](ValueId gate, ValueId bounded) {
      step.cell = operand_of(bounded, kTanh);
      return step.cell != kNoValue && is(gate, kSigmoid, 3);
    };
    const auto written = [&](ValueId gate, ValueId candidate) {
      return is(gate, kSigmoid, 0) && is(candidate, kTanh, 2);
    };
    const auto kept = [&](ValueId gate, ValueId before) {
      step.cell_before = before;
      return is(gate, kSigmoid, 1) && has_shape(before);
    };
    const auto cell = [&](ValueId old, ValueId fresh) {
      return either_way(producer_of(fresh, kMul), written) && either_way(producer_of(old, kMul), kept);
    };
    if (!either_way(&node, output) || !either_way(producer_of(step.cell, kAdd), cell)) return std::nullopt;
    return step;
  }

  // n = tanh(x + σ(r) h);  (1 − σ(z)) n + σ(z) h', or with n and h' the other way round: 1 − σ(z) is σ(−z)
  std::optional<RecurrentStep> gru(const Node& node) const {
    const std::optional<Mix> mix = mix_of(node);
    if (!mix) return std::nullopt;
    for (const bool inverted : {false, true}) {
      const ValueId candidate = inverted ? mix->gated : mix->rest, before = inverted ? mix->rest : mix->gated;
      RecurrentStep step{"gru", std::vector<std::vector<Addend>>(4), before};
      if (!has_shape(before) || !read_gate(mix->gate, kSigmoid, step.gates[1]) || !read_candidate(candidate, step))
        continue;
      for (Addend& addend : step.gates[1]) addend.negated = inverted;
      return step;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::string_view kAdd = "aten.add.Tensor", kSub = "aten.sub.Tensor", kMul = "aten.mul.Tensor",
                                    kTanh = "aten.tanh.default", kSigmoid = "aten.sigmoid.default",
                                    kWhere = "aten.where.self";

  // Some of a value's columns.
  struct Columns {
    ValueId value = kNoValue;
    int64_t begin = 0, count = 1;
  };

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  int64_t columns_of(ValueId id) const { return type(id).rank() == 0 ? 1 : type(id).shape.back(); }
  Columns all_of(ValueId id) const { return {id, 0, columns_of(id)}; }
  bool is_all(const Columns& columns) const { return columns.count == columns_of(columns.value); }

  bool is_matrix(ValueId value) const {
    return value != kNoValue && type(value).rank() == 2 && type(value).dtype == DType::f32;
  }
  bool has_shape(ValueId value) const { return is_matrix(value) && type(value).shape == type(result_).shape; }

  const Node* producer_of(ValueId value, std::string_view op) const {
    const Node* node = value == kNoValue ? nullptr : rewriter_.producer(value);
    return node != nullptr && node->op == op ? node : nullptr;
  }

  // The operand of a pointwise operator, kNoValue where `value` is no result of it.
  ValueId operand_of(ValueId value, std::string_view op) const {
    const Node* node = producer_of(value, op);
    return node ? node->value("self") : kNoValue;
  }

  // Both operands of a product or sum of two tensors, in each order until `take` is content.
  static bool either_way(const Node* node, const std::function<bool(ValueId, ValueId)>& take) {
    if (node == nullptr || node->number("alpha", 1.0) != 1.0) return false;
    const ValueId self = node->value("self"), other = node->value("other");
    return self != kNoValue && other != kNoValue && (take(self, other) || take(other, self));
  }

  // (1 − gate) rest + gate gated
  struct Mix {
    ValueId gate = kNoValue, rest = kNoValue, gated = kNoValue;
  };

  std::optional<Mix> mix_of(const Node& node) const {
    Mix mix;
    // rest + gate (gated − rest)
    const auto moved = [&](ValueId product, ValueId rest) {
      const auto scaled = [&](ValueId gate, ValueId way) {
        const Node* made = producer_of(way, kSub);
        if (!made || made->value("other") != rest || made->number("alpha", 1.0) != 1.0) return false;
        mix = {gate, rest, made->value("self")};
        return mix.gated != kNoValue;
      };
      return either_way(producer_of(product, kMul), scaled);
    };
    const auto added = [&](ValueId of_rest, ValueId of_gated) {
      const auto gates = [&](ValueId gate, ValueId gated) {
        const auto leaves = [&](ValueId share, ValueId rest) {
          mix = {gate, rest, gated};
          return is_rest(share, gate);
        };
        return either_way(producer_of(of_rest, kMul), leaves);
      };
      return either_way(producer_of(of_gated, kMul), gates);
    };
    if (either_way(&node, moved) || either_way(&node, added)) return mix;
    return lerp_of(node);
  }

  // torch.lerp as export writes it: (|g| < 0.5 ? rest : gated) + (|g| < 0.5 ? g : g − 1) (gated − rest)
  std::optional<Mix> lerp_of(const Node& node) const {
    Mix mix;
    const auto moved = [&](ValueId product, ValueId nearer) {
      const auto scaled = [&](ValueId share, ValueId way) {
        const Node *ends = producer_of(nearer, kWhere), *shares = producer_of(share, kWhere),
                   *made = producer_of(way, kSub);
        if (!ends || !shares || !made || made->number("alpha", 1.0) != 1.0) return false;
        mix = {shares->value("other"), ends->value("other"), ends->value("self")};
        const Node *half = producer_of(ends->value("condition"), "aten.ge.Scalar"),
                   *less = producer_of(shares->value("self"), kSub);
        return half && half->number("other", 0.0) == 0.5 &&
               (half->value("self") == mix.gate || operand_of(half->value("self"), "aten.abs.default") == mix.gate) &&
               shares->value("condition") == ends->value("condition") && less && less->value("self") == mix.gate &&
               less->value("other") == kNoValue && less->number("other", 0.0) == 1.0 &&
               less->number("alpha", 1.0) == 1.0 && made->value("self") == mix.gated &&
               made->value("other") == mix.rest;
      };
      return either_way(producer_of(product, kMul), scaled);
    };
    if (either_way(&node, moved)) return mix;
    return std::nullopt;
  }

  // 1 − gate
  bool is_rest(ValueId value, ValueId gate) const {
    const Node* node = producer_of(value, kSub);
    return node && node->value("self") == kNoValue && node->number("self", 0.0) == 1.0 &&
           node->number("alpha", 1.0) == 1.0 && node->value("other") == gate;
  }

  // Through slices of columns.
  Columns behind_slices(Columns columns) const {
    while (const Node* node = producer_of(columns.value, "aten.slice.Tensor")) {
      const ValueId from = node->value("self");
      const int64_t rank = type(from).rank(), dim = node->integer("dim", 0);
      int64_t start = node->integer("start", 0);
      if (start < 0) start += columns_of(from);
      if ((dim != -1 && dim != rank - 1) || node->integer("step", 1) != 1 || start < 0 ||
          start + columns_of(columns.value) > columns_of(from))
        break;
      columns = {from, start + columns.begin, columns.count};
    }
    return behind_views(columns);
  }

  // Through views of a matrix with other axes: gates that are parts along an axis of their own.
  Columns behind_views(const Columns& columns) const {
    const TensorType& own = type(columns.value);
    if (own.rank() != 2 || own.strides[1] != 1) return columns;
    Columns found = columns;
    const Node* node = rewriter_.producer(columns.value);
    for (; node && class_of(node->op) == OpClass::kView; node = rewriter_.producer(node->value("self"))) {
      const TensorType& whole = type(node->value("self"));
      const int64_t begin = own.offset - whole.offset;
      if (whole.rank() == 2 && whole.shape[0] == own.shape[0] && whole.strides[1] == 1 &&
          (own.shape[0] == 1 || whole.strides[0] == own.strides[0]) && begin >= 0 &&
          begin + own.shape[1] <= whole.shape[1])
        found = {node->value("self"), begin + columns.begin, columns.count};
    }
    return found;
  }

  // --- Sums ---

  std::vector<ValueId> parts_of(ValueId value) const {
    const Node* node = producer_of(value, "aten.cat.default");
    const auto* parts = node ? std::get_if<ValueList>(node->find("tensors")) : nullptr;
    if (parts == nullptr) return {value};
    const int64_t dim = node->integer("dim", 0);
    const auto fits = [&](ValueId part) { return is_matrix(part); };
    if ((dim != 1 && dim != -1) || !std::all_of(parts->ids.begin(), parts->ids.end(), fits)) return {value};
    return parts->ids;
  }

  bool add_product(std::vector<Addend>& addends, const Columns& columns, ValueId left, ValueId matrix, bool transposed,
                   ValueId bias) const {
    if (!is_matrix(left) || !is_matrix(matrix)) return false;
    if (bias != kNoValue && !is_all(columns) && columns_of(bias) != columns_of(columns.value)) return false;
    int64_t from = 0;
    for (const ValueId part : parts_of(left)) {
      const int64_t depth = columns_of(part);
      addends.push_back({part, columns.begin, columns.count, matrix, transposed, from, depth});
      from += depth;
    }
    if (bias != kNoValue)
      add_value(addends, is_all(columns) ? all_of(bias) : Columns{bias, columns.begin, columns.count});
    return true;
  }

  static void add_value(std::vector<Addend>& addends, const Columns& columns) {
    addends.push_back({columns.value, columns.begin, columns.count});
  }

  bool add_product(std::vector<Addend>& addends, const Columns& columns) const {
    const Node* node = rewriter_.producer(columns.value);
    if (node == nullptr) return false;
    if (node->op == "aten.linear.default")
      return add_product(addends, columns, node->value("input"), node->value("weight"), true, node->value("bias"));
    if (node->op == "aten.mm.default")
      return add_product(addends, columns, node->value("self"), node->value("mat2"), false, kNoValue);
    if (node->op == "aten.matmul.default")
      return add_product(addends, columns, node->value("self"), node->value("other"), false, kNoValue);
    return node->op == "aten.addmm.default" && node->number("alpha", 1.0) == 1.0 && node->number("beta", 1.0) == 1.0 &&
           add_product(addends, columns, node->value("mat1"), node->value("mat2"), false, node->value("self"));
  }

  // Adds what is added in these columns.
  void add_addends(std::vector<Addend>& addends, Columns columns, int depth) const {
    columns = behind_slices(columns);
    if (const Node* node = producer_of(columns.value, kAdd);
        node && depth < kDeepestSum && node->number("alpha", 1.0) == 1.0) {
      const ValueId sides[] = {node->value("self"), node->value("other")};
      // Of what is broadcast along a row all columns are added to each.
      const auto is_cut = [&](ValueId side) {
        return side != kNoValue && (is_all(columns) || columns_of(side) == columns_of(columns.value));
      };
      if (is_cut(sides[0]) && is_cut(sides[1])) {
        for (const ValueId side : sides)
          add_addends(addends, is_all(columns) ? all_of(side) : Columns{side, columns.begin, columns.count}, depth + 1);
        return;
      }
    }
    if (!add_product(addends, columns)) add_value(addends, columns);
  }

  // --- Gates ---

  // Is it op(sum), or columns of that?
  bool read_gate(ValueId value, std::string_view op, std::vector<Addend>& gate) const {
    if (!has_shape(value)) return false;
    const Columns columns = behind_slices(all_of(value));
    const ValueId operand = operand_of(columns.value, op);
    if (operand == kNoValue) return false;
    gate.clear();
    add_addends(gate, {operand, columns.begin, columns.count}, 0);
    return true;
  }

  // tanh(x + σ(r) h)
  bool read_candidate(ValueId value, RecurrentStep& step) const {
    if (!has_shape(value) || !read_gate(value, kTanh, step.gates[2])) return false;
    std::vector<Addend>& of_input = step.gates[2];
    for (size_t at = 0; at < of_input.size(); ++at) {
      const auto scaled = [&](ValueId gate, ValueId product) {
        if (!has_shape(product) || !read_gate(gate, kSigmoid, step.gates[0])) return false;
        step.gates[3].clear();
        add_addends(step.gates[3], all_of(product), 0);
        return true;
      };
      const ValueId added = of_input[at].value;
      if (of_input[at].matrix != kNoValue || !has_shape(added) || !either_way(producer_of(added, kMul), scaled))
        continue;
      of_input.erase(of_input.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    }
    return false;
  }

  const Rewriter& rewriter_;
  ValueId result_;
};

}  // namespace

std::optional<RecurrentStep> recurrent_step_of(const Rewriter& rewriter, const Node& node) {
  if (node.results.size() != 1 || node.results[0] == kNoValue) return std::nullopt;
  const TensorType& type = rewriter.type(node.results[0]);
  if (type.rank() != 2 || type.dtype != DType::f32 || !type.is_contiguous() || type.elements() == 0)
    return std::nullopt;
  const StepReader reader(rewriter, node.results[0]);
  if (node.op == "aten.mul.Tensor") return reader.lstm(node);
  if (node.op == "aten.add.Tensor") return reader.gru(node);
  if (node.op == "aten.tanh.default" || node.op == "aten.relu.default") return reader.plain(node);
  return std::nullopt;
}

}  // namespace kw
