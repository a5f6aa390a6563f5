#include <algorithm>
#include <numeric>
#include <optional>

#include "passes/canonicalise.hpp"

namespace kw {
namespace {

int64_t elements_before(const Shape& shape, int64_t dim) {
  return std::accumulate(shape.begin(), shape.begin() + dim, int64_t{1}, std::multiplies<>());
}

// What the parts are views of, where each is a tensor without gaps.
std::optional<ValueList> origins_of(const Rewriter& rewriter, const ValueList& parts) {
  ValueList origins;
  for (const ValueId part : parts.ids) {
    const Node* view = part == kNoValue ? nullptr : rewriter.producer(part);
    if (view == nullptr || view->op != "aten.view.default") return std::nullopt;
    const ValueId origin = view->value("self");
    if (!rewriter.type(origin).is_contiguous() || rewriter.type(origin).elements() == 0) return std::nullopt;
    origins.ids.push_back(origin);
  }
  return origins;
}

// Along which dimension they are concatenated, so that as many elements as `outer` lie before it, if there is one.
std::optional<int64_t> dim_of(const Rewriter& rewriter, const ValueList& origins, int64_t outer) {
  const Shape& first = rewriter.type(origins.ids[0]).shape;
  const auto agrees = [&](const Shape& shape, int64_t dim) {
    if (shape.size() != first.size()) return false;
    Shape same = shape;
    same[dim] = first[dim];
    return same == first;
  };
  for (int64_t dim = 0; dim < std::ssize(first); ++dim)
    if (elements_before(first, dim) == outer &&
        std::all_of(origins.ids.begin(), origins.ids.end(),
                    [&](ValueId origin) { return agrees(rewriter.type(origin).shape, dim); }))
      return dim;
  return std::nullopt;
}

}  // namespace

bool canonicalise_concatenation(Node& node, CanonicalContext& context) {
  Rewriter& rewriter = context.rewriter;
  const Argument* tensors = node.find("tensors");
  const auto* parts = tensors ? std::get_if<ValueList>(tensors) : nullptr;
  if (node.op != "aten.cat.default" || parts == nullptr || parts->ids.size() < 2) return false;
  const ValueId result = node.results[0];
  if (result == kNoValue || !rewriter.type(result).is_contiguous()) return false;
  const auto origins = origins_of(rewriter, *parts);
  if (!origins) return false;
  TensorType type = rewriter.type(result);
  const Shape shape = type.shape;
  int64_t dim = node.integer("dim", 0);
  if (dim < 0) dim += type.rank();
  const auto inner = dim_of(rewriter, *origins, elements_before(shape, dim));
  if (!inner) return false;
  type.shape = rewriter.type(origins->ids[0]).shape;
  type.shape[*inner] = 0;
  for (const ValueId origin : origins->ids) type.shape[*inner] += rewriter.type(origin).shape[*inner];
  type.strides = contiguous_strides(type.shape);
  const ValueId joined = rewriter.emit("aten.cat.default", {{"tensors", *origins}, {"dim", *inner}}, std::move(type));
  rewriter.define(result, "aten.view.default", {{"self", ValueRef{joined}}, {"size", shape}});
  rewriter.count(NumericTag::kExact);
  return true;
}

}  // namespace kw
