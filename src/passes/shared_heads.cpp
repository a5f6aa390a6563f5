#include "passes/shared_heads.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace kw {
namespace {

class SharedHeads {
 public:
  SharedHeads(Graph& graph, const GraphForms& forms) : in_attention_(forms.attention_shares_heads), rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.op == "aten.matmul.default") return share_in_product(node);
      if (node.op == "aten.scaled_dot_product_attention.default") share_in_attention(node);
      return false;
    });
  }

 private:
  // A tensor of `groups` · `repeats` heads, of which neighbours are one: [batch…, groups, 1, rows, columns] holds each
  // once. `transposed`: the tensor has rows and columns exchanged.
  struct Repeated {
    ValueId once = kNoValue;
    int64_t groups = 1, repeats = 1;
    bool transposed = false;
  };

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  const Node* made_by(ValueId id, std::string_view op) const {
    const Node* node = id == kNoValue ? nullptr : rewriter_.producer(id);
    return node != nullptr && node->op == op ? node : nullptr;
  }

  static IntList exchanged_last(int64_t rank) {
    IntList dims(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    return dims;
  }

  std::optional<Repeated> repeated(ValueId id) const {
    const int64_t rank = type(id).rank();
    if (rank < 3) return std::nullopt;
    Repeated found;
    if (const Node* turn = made_by(id, "aten.permute.default");
        turn != nullptr && turn->integers("dims") == exchanged_last(rank)) {
      found.transposed = true;
      id = turn->value("self");
    }
    const Node* merge = made_by(id, "aten.view.default");
    const Node* copy = merge != nullptr ? made_by(merge->value("self"), "aten.clone.default") : nullptr;
    const Node* expand = copy != nullptr ? made_by(copy->value("self"), "aten.expand.default") : nullptr;
    if (expand == nullptr) return std::nullopt;
    found.once = expand->value("self");
    Shape once = type(found.once).shape;
    const Shape& spread = type(expand->results[0]).shape;
    if (static_cast<int64_t>(spread.size()) != rank + 1 || once.size() != spread.size()) return std::nullopt;
    const size_t axis = spread.size() - 3;
    found.groups = spread[axis - 1];
    found.repeats = spread[axis];
    if (once[axis] != 1 || found.repeats == 1) return std::nullopt;
    once[axis] = found.repeats;
    Shape merged = spread;
    merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(axis));
    merged[axis - 1] = found.groups * found.repeats;
    return once == spread && merged == type(id).shape ? std::optional(found) : std::nullopt;
  }

  // With the axis of heads as two: groups, and heads of each.
  Shape in_groups(Shape shape, const Repeated& heads) const {
    const size_t axis = shape.size() - 3;
    shape[axis] = heads.repeats;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), heads.groups);
    return shape;
  }

  ValueId view(ValueId id, const Shape& size) {
    return rewriter_.emit("aten.view.default", {{"self", ValueRef{id}}, {"size", IntList(size.begin(), size.end())}});
  }

  bool share_in_product(const Node& node) {
    const ValueId left = node.value("self"), right = node.value("other");
    const auto heads = repeated(right);
    if (!heads || type(left).rank() != type(right).rank()) return false;
    const Shape& rows = type(left).shape;
    if (!std::equal(rows.begin(), rows.end() - 2, type(right).shape.begin())) return false;
    const Shape result = type(node.results[0]).shape;
    if (!type(node.results[0]).is_contiguous()) return false;
    const ValueId grouped = view(left, in_groups(rows, *heads));
    const ValueId shared = heads->transposed ? rewriter_.emit("aten.permute.default",
                                                              {{"self", ValueRef{heads->once}},
                                                               {"dims", exchanged_last(type(heads->once).rank())}})
                                             : heads->once;
    TensorType made = type(node.results[0]);
    made.shape = in_groups(result, *heads);
    made.strides = contiguous_strides(made.shape);
    const ValueId product = rewriter_.emit("aten.matmul.default",
                                           {{"self", ValueRef{grouped}}, {"other", ValueRef{shared}}}, std::move(made));
    rewriter_.adopt(node.results[0], view(product, result), NumericTag::kExact);
    return true;
  }

  void share_in_attention(Node& node) {
    const ValueId query = node.value("query"), mask = node.value("attn_mask");
    if (!in_attention_ || node.boolean("enable_gqa", false) || (mask != kNoValue && type(query).dtype != DType::f32))
      return;
    const auto key = repeated(node.value("key")), value = repeated(node.value("value"));
    if (!key || !value || key->transposed || value->transposed || key->groups != value->groups ||
        type(query).rank() != type(node.value("key")).rank() ||
        type(query).shape[type(query).rank() - 3] != key->groups * key->repeats)
      return;
    const auto without_axis = [&](ValueId once) {
      Shape size = type(once).shape;
      size.erase(size.end() - 3);
      return view(once, size);
    };
    node.set("key", ValueRef{without_axis(key->once)});
    node.set("value", ValueRef{without_axis(value->once)});
    node.set("enable_gqa", true);
    rewriter_.count(NumericTag::kExact);
  }

  const bool in_attention_;
  Rewriter rewriter_;
};

}  // namespace

RewriteCounts shared_heads(Graph& graph, const GraphForms& forms) { return SharedHeads(graph, forms).run(); }

}  // namespace kw
