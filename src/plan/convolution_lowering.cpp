#include "plan/convolution_lowering.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "plan/axes.hpp"
#include "plan/embedding.hpp"
#include "plan/product_lowering.hpp"
#include "support/error.hpp"

namespace kw::plan {
namespace {

// The nodes of a group on either side of its convolution. What both sides need, and no kernel stores, both compute.
struct Sides {
  std::vector<NodeId> before, after;
};

class Divider {
 public:
  Divider(const GraphFacts& facts, std::span<const NodeId> nodes, const Convolution& convolution,
          const std::vector<ValueId>& outputs)
      : facts_(facts), nodes_(nodes), convolution_(convolution), outputs_(outputs.begin(), outputs.end()) {}

  Sides run() {
    for (NodeId node : nodes_)  // operands come before what reads them
      if (node != convolution_.node && any_operand(node, [&](NodeId maker) { return follows(maker); }))
        after_.insert(node);
    const NodeId image = maker_of(convolution_.image.root);
    if (is_inside(image)) before_.insert(image);
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (*node == convolution_.node || after_.contains(*node)) continue;
      const bool for_image = before_.contains(*node) || is_read_by(*node, before_),
                 for_rest = !is_inside(image) || (is_read_by(*node, after_) && !(for_image && is_stored(*node)));
      if (for_image || !for_rest) before_.insert(*node);
      if (for_rest) after_.insert(*node);
    }
    return {{before_.begin(), before_.end()}, {after_.begin(), after_.end()}};
  }

 private:
  NodeId maker_of(ValueId value) const { return facts_.graph.values[facts_.roots[value]].producer; }
  bool is_inside(NodeId node) const {
    return node != kNoNode && std::binary_search(nodes_.begin(), nodes_.end(), node);
  }
  bool follows(NodeId maker) const { return maker == convolution_.node || after_.contains(maker); }

  template <typename Condition>
  bool any_operand(NodeId node, Condition condition) const {
    bool any = false;
    for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) {
      const NodeId maker = maker_of(operand);
      any = any || (is_inside(maker) && condition(maker));
    });
    return any;
  }

  bool is_read_by(NodeId node, const std::set<NodeId>& readers) const {
    return std::any_of(readers.begin(), readers.end(),
                       [&](NodeId reader) { return any_operand(reader, [&](NodeId maker) { return maker == node; }); });
  }

  bool is_stored(NodeId node) const {
    const std::vector<ValueId>& results = facts_.graph.nodes[node].results;
    return std::any_of(results.begin(), results.end(), [&](ValueId result) { return outputs_.contains(result); });
  }

  const GraphFacts& facts_;
  std::span<const NodeId> nodes_;
  const Convolution& convolution_;
  std::set<ValueId> outputs_;
  std::set<NodeId> before_, after_;
};

bool is_pointwise(const GroupKernel& kernel) { return can_make_image(kernel) && !folds(kernel); }

// Of which the image is a view that has every element once, in whatever order.
std::optional<ImageProducer> producer_of(const GraphFacts& facts, const std::vector<NodeId>& nodes,
                                         const Convolution& convolution, const std::vector<ValueId>& outputs) {
  const ValueId image = convolution.image.root;
  const TensorType& type = facts.graph.type(image);
  int64_t elements = convolution.samples * convolution.groups * convolution.channels;
  for (const ConvolutionDim& dim : convolution.dims) elements *= dim.input;
  if (convolution.image.offset != 0 || type.elements() != elements || type.dtype != convolution.image.dtype ||
      (convolution.samples > 1 && convolution.image_strides[0] * convolution.samples != elements))
    return std::nullopt;
  ImageProducer made;
  made.is_stored = std::find(outputs.begin(), outputs.end(), image) != outputs.end();
  std::vector<ValueId> stored = outputs;
  if (!made.is_stored) stored.push_back(image);
  std::optional<LoweredGroup> group = lower_group(facts, nodes, stored);
  if (!group || group->product || group->recurrence || !is_pointwise(group->kernel)) return std::nullopt;
  coalesce(group->kernel);
  made.group = std::make_shared<const LoweredGroup>(*std::move(group));
  return covers(made.group->kernel, made.image_store(image).access, elements) ? std::optional(made) : std::nullopt;
}

// Of which a block has several whole: tiles have powers of two. A thread of a depthwise convolution has places of its
// own.
std::optional<std::vector<int64_t>> windows_of(const LoweredGroup& group, const Convolution& convolution,
                                               const Shape& lengths) {
  constexpr int64_t kLargest = 64;
  if (!folds(group.kernel) || convolution.is_direct()) return std::nullopt;
  const auto windows = folded_windows(group, lengths);
  const int64_t points = windows ? product(*windows) : 0;
  return points > 1 && points <= kLargest && std::has_single_bit(static_cast<uint64_t>(points)) ? windows
                                                                                                : std::nullopt;
}

// [expr] What a number of the product that is not finite makes of it, wherever that stands in a row.
struct Reach {
  std::vector<bool> is_unbounded;  // not finite in its place
  std::vector<bool> is_nan;        // NaN in all of the row
};

// Squared deviations of what is not finite anywhere are NaN, which sums, products, quotients and roots keep.
Reach reach_of(const GroupKernel& kernel, int product) {
  Reach reach{std::vector<bool>(kernel.exprs.size()), std::vector<bool>(kernel.exprs.size())};
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    const auto first = [&](const std::vector<bool>& of) { return of[expr.operands[0]]; };
    const auto any = [&](const std::vector<bool>& of) { return first(of) || of[expr.operands[1]]; };
    if (is_load(expr)) reach.is_unbounded[id] = expr.access.buffer == product;
    if (expr.kind == ExprKind::kReduce)
      reach.is_nan[id] = expr.reduce == ReduceOp::kMoments && expr.component == 1 && first(reach.is_unbounded);
    if (expr.kind != ExprKind::kOp) continue;
    switch (expr.op) {
      case ScalarOp::kAdd:
      case ScalarOp::kSub:
      case ScalarOp::kMul:
      case ScalarOp::kDiv:
        reach.is_unbounded[id] = expr.op == ScalarOp::kDiv ? first(reach.is_unbounded) : any(reach.is_unbounded);
        reach.is_nan[id] = any(reach.is_nan);
        break;
      case ScalarOp::kNeg: reach.is_unbounded[id] = first(reach.is_unbounded); [[fallthrough]];
      case ScalarOp::kSqrt:
      case ScalarOp::kRsqrt: reach.is_nan[id] = first(reach.is_nan); break;
      default: break;
    }
  }
  return reach;
}

// Does one number of a row that is not finite make all that is stored of the row NaN? As a norm of it does, with what
// follows, and what is added to that.
bool spreads_nan(const LoweredGroup& group) {
  const GroupKernel& kernel = group.kernel;
  const int product = product_buffer(group);
  const std::vector<bool> is_nan = reach_of(kernel, product).is_nan;
  std::vector<bool> asked(kernel.exprs.size());
  for (const Store& store : kernel.stores) asked[store.value] = true;
  for (size_t id = asked.size(); id-- > 0;) {  // operands stand before what is made of them
    const Expr& expr = kernel.exprs[id];
    if (!asked[id] || is_nan[id]) continue;
    if (is_load(expr) && expr.access.buffer == product) return false;
    for (const ExprId part : made_of(kernel, expr)) asked[part] = true;
  }
  return true;
}

// With such windows behind it. Phases lie among each other: a window has all of some places, or none of it fits. Of
// dimensions without windows, the first ones, phases are blocks of their own.
bool take_windows(Convolution& convolution, const std::vector<int64_t>& windows) {
  const size_t count = windows.size();
  size_t folded = 0;  // dimensions, from the last
  for (; folded < count && (windows[count - 1 - folded] > 1 || convolution.dims[count - 1 - folded].phases == 1);)
    ++folded;
  for (size_t at = 0; at < count; ++at) {
    ConvolutionDim& dim = convolution.dims[at];
    const bool is_folded = at + folded >= count;
    if (dim.phases > 1 && (is_folded ? windows[at] % dim.phases != 0 : windows[at] > 1)) return false;
    dim.window = windows[at] / (is_folded ? dim.phases : 1);
    if (dim.phases == 1) continue;
    dim.least_padded = dim.padded();  // one image is laid out for this group and others
    if (!is_folded) continue;
    if (dim.crop > 0) drop_crop(dim);
    dim.places = dim.output / dim.phases;  // of others no window has all phases
    // The kernel that computes again has all phases in a block, too: zeros for taps that one lacks.
    if (convolution.keeps_windows && !reaches_all(dim)) return false;
  }
  if (convolution.phases() == 1) return true;
  convolution.folded_dims = static_cast<int64_t>(folded);
  return convolution.stacked_dims() > 0 && convolution.rows_of_filter() > 1;
}

}  // namespace

const Store& ImageProducer::image_store(ValueId image) const {
  const auto store = std::find_if(group->kernel.stores.begin(), group->kernel.stores.end(),
                                  [&](const Store& one) { return group->buffers[one.access.buffer] == image; });
  KW_ASSERT(store != group->kernel.stores.end(), "what makes an image does not store it");
  return *store;
}

std::optional<LoweredGroup> lower_with_convolution(const GraphFacts& facts, std::span<const NodeId> nodes, NodeId node,
                                                   const std::vector<ValueId>& outputs) {
  std::optional<Convolution> convolution = convolution_of(facts, node);
  if (!convolution) return std::nullopt;
  if (makes_operand(facts, nodes, node, convolution->image.root)) return std::nullopt;
  Sides sides = Divider(facts, nodes, *convolution, outputs).run();
  std::vector<ValueId> of_image, of_rest;
  for (ValueId output : outputs) {
    const NodeId maker = facts.graph.values[output].producer;
    (std::binary_search(sides.before.begin(), sides.before.end(), maker) ? of_image : of_rest).push_back(output);
  }
  std::optional<ImageProducer> producer;
  if (!sides.before.empty()) {
    producer = producer_of(facts, sides.before, *convolution, of_image);
    // Depthwise, nothing lays the image out, and several windows share an element.
    if (!producer || (convolution->is_direct() && !of_image.empty())) return std::nullopt;
  }
  sides.after.insert(std::upper_bound(sides.after.begin(), sides.after.end(), node), node);
  Shape lengths;
  for (const ConvolutionDim& dim : convolution->dims) lengths.push_back(dim.output);
  std::optional<LoweredGroup> group = lower_with(facts, sides.after, convolution->product(), of_rest, lengths, true);
  if (!group || (group->statistics && convolution->phases() > 1 && convolution->is_direct())) return std::nullopt;
  constexpr size_t kFilters = 1;  // behind samples
  const auto folded = folded_dimension(*group);
  const auto windows = group->statistics || folded == kFilters ? std::nullopt
                                                               : windows_of(*group, *convolution, lengths);
  if (windows) {
    convolution->keeps_windows = stores_over_reduce_axes(group->kernel);
    if (!take_windows(*convolution, *windows)) return std::nullopt;
    if (convolution->keeps_windows && convolution->folds_phases() && !spreads_nan(*group)) return std::nullopt;
  } else if (folded) {
    if (folded != kFilters || convolution->groups > 1 || convolution->filters > kMostFolded) return std::nullopt;
    convolution->folds_filters = true;
    convolution->keeps_filters = stores_over_reduce_axes(group->kernel);
    // Phases that are blocks of their own would store every other element of what is stored whole.
    if (convolution->keeps_filters && convolution->phases() > 1 && convolution->stacked_dims() == 0)
      return std::nullopt;
  } else if (!group->statistics && folds(group->kernel)) {
    return std::nullopt;
  }
  if (!of_image.empty())
    for (ConvolutionDim& dim : convolution->dims) {
      if (dim.padding < 0) return std::nullopt;
      dim.least_padded = std::max(dim.least_padded, dim.padding + dim.input);
    }
  group->convolution = std::move(convolution);
  group->producer = std::move(producer);
  return group;
}

}  // namespace kw::plan
