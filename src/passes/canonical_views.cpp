#include <algorithm>
#include <numeric>

#include "ir/infer.hpp"
#include "ir/op_registry.hpp"
#include "ir/promote.hpp"
#include "passes/canonicalise.hpp"

namespace kw {
namespace {

struct Views {
  Node& node;
  CanonicalContext& context;
  Rewriter& rewriter = context.rewriter;
  const OpInfo& info = op_info(node.op);
  ValueId self = node.value("self") != kNoValue ? node.value("self") : node.value("input");

  const TensorType& result(size_t index = 0) const { return rewriter.type(node.results[index]); }

  void become(std::string op, std::vector<NamedArgument> arguments) {
    node.op = "aten." + std::move(op);
    node.arguments = std::move(arguments);
    rewriter.count(NumericTag::kExact);
  }

  // Where the memory allows no view, a reshape copies in row-major order.
  void reshape() {
    const TensorType& from = rewriter.type(self);
    const auto strides = view_strides(from, result().shape);
    TensorType there = result();
    if (strides) there.strides = *strides;
    if (strides &&
        same_place(there, TensorType{from.dtype, result().shape, result().strides, from.offset, from.device}) &&
        result().offset == from.offset)
      return become("view.default", {{"self", ValueRef{self}}, {"size", result().shape}});
    if (!result().is_contiguous() || result().offset != 0) return;
    const TensorType dense{from.dtype, from.shape, contiguous_strides(from.shape), 0, from.device};
    const ValueId copy = rewriter.emit(
        "aten.clone.default",
        {{"self", ValueRef{self}}, {"memory_format", Keyword{"memory_format", "contiguous_format"}}}, dense, "dense");
    return become("view.default", {{"self", ValueRef{copy}}, {"size", result().shape}});
  }

  std::optional<IntList> moved_axes(int64_t rank) const {
    const IntList source = node.integers("source"), destination = node.integers("destination");
    if (source.size() != destination.size()) return std::nullopt;
    IntList order(rank, -1);
    std::vector<bool> moved(rank, false);
    for (size_t i = 0; i < source.size(); ++i) {
      const auto from = normalise_axis(source[i], rank), to = normalise_axis(destination[i], rank);
      if (!from || !to) return std::nullopt;
      order[*to] = *from;
      moved[*from] = true;
    }
    int64_t next = 0;
    for (auto& axis : order) {
      if (axis >= 0) continue;
      while (moved[next]) ++next;
      axis = next++;
    }
    return order;
  }

  void transposition() {
    const int64_t rank = rewriter.type(self).rank();
    const bool is_complex = result().dtype == DType::c64 || result().dtype == DType::c128;
    IntList order(rank);
    std::iota(order.begin(), order.end(), 0);
    const auto swap = [&](int64_t first, int64_t second) {
      const auto a = normalise_axis(first, rank), b = normalise_axis(second, rank);
      if (rank > 0 && a && b) std::swap(order[*a], order[*b]);
    };
    switch (info.rule) {
      case OpRule::kTranspose:
        if (node.find("axis0")) swap(node.integer("axis0", 0), node.integer("axis1", 0));
        else swap(node.integer("dim0", 0), node.integer("dim1", 0));
        break;
      case OpRule::kReverseAxes: std::reverse(order.begin(), order.end()); break;
      case OpRule::kMatrixTranspose:
        if (is_complex && info.name != "mT") return;  // the others conjugate
        swap(rank - 2, rank - 1);
        break;
      default: {
        const auto moved = moved_axes(rank);
        if (!moved) return;
        order = *moved;
      }
    }
    return become("permute.default", {{"self", ValueRef{self}}, {"dims", order}});
  }

  void narrow() {
    if (node.value("start") != kNoValue || !node.find("length")) return;
    const TensorType& from = rewriter.type(self);
    const auto axis = normalise_axis(node.integer("dim", 0), from.rank());
    if (!axis || from.shape.empty()) return;
    int64_t start = node.integer("start", 0);
    if (start < 0) start += from.shape[*axis];
    return become(
        "slice.Tensor",
        {{"self", ValueRef{self}}, {"dim", *axis}, {"start", start}, {"end", start + node.integer("length", 0)}});
  }

  // The result becomes that of a node of its own.
  void take(size_t index, std::string op, std::vector<NamedArgument> arguments) {
    if (node.results[index] == kNoValue) return;
    rewriter.define(node.results[index], std::move(op), std::move(arguments));
    rewriter.count(NumericTag::kExact);
  }

  // Consecutive pieces along one axis.
  bool split() {
    const TensorType from = rewriter.type(self);
    const int64_t fallback = info.name == "hsplit" ? (from.rank() == 1 ? 0 : 1) : info.name == "dsplit" ? 2 : 0;
    const auto axis = normalise_axis(node.integer("dim", fallback), from.rank());
    if (!axis || from.shape.empty()) return false;
    const bool any_missing = std::find(node.results.begin(), node.results.end(), kNoValue) != node.results.end();
    if (any_missing) return false;
    int64_t total = 0;
    for (size_t i = 0; i < node.results.size(); ++i) total += result(i).shape[*axis];
    if (total != from.shape[*axis]) return false;  // tensor_split may overlap or leave gaps
    int64_t start = 0;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const int64_t end = start + result(i).shape[*axis];
      take(i, "aten.slice.Tensor", {{"self", ValueRef{self}}, {"dim", *axis}, {"start", start}, {"end", end}});
      start = end;
    }
    return true;
  }

  bool unbind() {
    const auto axis = normalise_axis(node.integer("dim", 0), rewriter.type(self).rank());
    if (!axis) return false;
    for (size_t i = 0; i < node.results.size(); ++i)
      take(i, "aten.select.int", {{"self", ValueRef{self}}, {"dim", *axis}, {"index", static_cast<int64_t>(i)}});
    return true;
  }

  bool broadcast_all() {
    const auto* tensors = node.find("tensors") ? std::get_if<ValueList>(node.find("tensors")) : nullptr;
    if (!tensors || tensors->ids.size() != node.results.size()) return false;
    const ValueList operands = *tensors;
    for (size_t i = 0; i < operands.ids.size(); ++i)
      if (node.results[i] != kNoValue)
        take(i, "aten.expand.default", {{"self", ValueRef{operands.ids[i]}}, {"size", result(i).shape}});
    return true;
  }

  bool run() {
    if (info.name == "broadcast_tensors") return broadcast_all();
    if (self == kNoValue || node.results[0] == kNoValue) return false;
    switch (info.rule) {
      case OpRule::kSame: rewriter.replace(node.results[0], self); return true;
      case OpRule::kSplit: return split();
      case OpRule::kUnbind: return unbind();
      default: respell(); return is_its_operand();
    }
  }

  // As one of the few views that the other passes read.
  void respell() {
    switch (info.rule) {
      case OpRule::kReshape:
        if (info.name != "view") reshape();
        return;
      case OpRule::kReshapeAs:
      case OpRule::kFlatten:
      case OpRule::kUnflatten:
      case OpRule::kSqueeze:
      case OpRule::kUnsqueeze: return reshape();
      case OpRule::kTranspose:
      case OpRule::kReverseAxes:
      case OpRule::kMatrixTranspose:
      case OpRule::kMoveAxes: return transposition();
      case OpRule::kExpand:
      case OpRule::kExpandAs:
        if (info.name != "expand") become("expand.default", {{"self", ValueRef{self}}, {"size", result().shape}});
        return;
      case OpRule::kNarrow: return narrow();
      default: return;
    }
  }

  bool is_its_operand() {
    // A view of the very same elements in the same places.
    const ValueId base = node.value("self");
    if (class_of(node.op) == OpClass::kView && node.results.size() == 1 && base != kNoValue &&
        same_place(rewriter.type(base), result())) {
      if (context.sharing.is_output(node.results[0]) && rewriter.type(base) != result()) return false;
      rewriter.replace(node.results[0], base);
      return true;
    }
    return false;
  }
};

}  // namespace

bool canonicalise_view(Node& node, CanonicalContext& context) {
  if (class_of(node.op) != OpClass::kView) return false;
  return Views{node, context}.run();
}

}  // namespace kw
