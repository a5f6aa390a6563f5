#include "passes/expand.hpp"

#include <algorithm>
#include <numbers>
#include <optional>
#include <unordered_map>

#include "ir/op_registry.hpp"
#include "passes/expand_attention.hpp"
#include "passes/expand_masked_scatter.hpp"
#include "passes/expand_pools.hpp"
#include "passes/expand_scatters.hpp"
#include "passes/expand_sorts.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

struct Call {
  Rewriter& rewriter;
  const Node& node;
  bool has(std::string_view name) const { return node.value(name) != kNoValue; }
  Term term(std::string_view name) const { return {rewriter, node.value(name)}; }
  double number(std::string_view name, double fallback) const { return node.number(name, fallback); }
};

using Formula = std::optional<Term> (*)(const Call&);  // nullopt: the call stays whole

// --- Losses of each element; run() reduces them ---

std::optional<Term> mse(const Call& call) {
  const Term error = call.term("self") - call.term("target");
  return error * error;
}

std::optional<Term> l1(const Call& call) { return (call.term("self") - call.term("target")).apply("abs"); }

std::optional<Term> smooth_l1(const Call& call) {
  const double beta = call.number("beta", 1.0);
  const Term distance = *l1(call);
  if (beta == 0.0) return distance;
  return where(less(distance, beta), 0.5 * distance * distance / beta, distance - 0.5 * beta);
}

std::optional<Term> huber(const Call& call) {
  const double delta = call.number("delta", 1.0);
  const Term distance = *l1(call);
  return where(less(distance, delta), 0.5 * distance * distance, delta * (distance - 0.5 * delta));
}

std::optional<Term> kl_div(const Call& call) {
  const Term input = call.term("self"), target = call.term("target");
  if (call.node.boolean("log_target", false)) return target.apply("exp") * (target - input);
  return target.call("xlogy.Tensor", {{"other", target}}) - target * input;
}

std::optional<Term> binary_cross_entropy(const Call& call) {
  const Term input = call.term("self"), target = call.term("target");
  const Term loss = (target - 1.0) * at_least((-input).apply("log1p"), -100.0) -
                    target * at_least(input.apply("log"), -100.0);
  return call.has("weight") ? loss * call.term("weight") : loss;
}

std::optional<Term> binary_cross_entropy_with_logits(const Call& call) {
  const Term input = call.term("self"), target = call.term("target");
  Term log_sigmoid = input.call("log_sigmoid.default", {});
  if (call.has("pos_weight")) log_sigmoid = log_sigmoid * ((call.term("pos_weight") - 1.0) * target + 1.0);
  const Term loss = (1.0 - target) * input - log_sigmoid;
  return call.has("weight") ? loss * call.term("weight") : loss;
}

std::optional<Term> hinge_embedding(const Call& call) {
  const Term input = call.term("self"), target = call.term("target");
  const Term margin = at_least(call.number("margin", 1.0) - input, 0.0);
  return where(not_equal(target, 1.0), margin, 0.0) + where(not_equal(target, -1.0), input, 0.0);
}

std::optional<Term> margin_ranking(const Call& call) {
  return at_least(-call.term("target") * (call.term("input1") - call.term("input2")) + call.number("margin", 0.0), 0.0);
}

std::optional<Term> soft_margin(const Call& call) {
  return (-call.term("target") * call.term("self")).apply("exp").apply("log1p");
}

std::optional<Term> poisson_nll(const Call& call) {
  const Term input = call.term("input"), target = call.term("target");
  const bool is_log = call.node.boolean("log_input", true);
  const Term loss = is_log ? input.apply("exp") - target * input
                           : input - target * (input + call.number("eps", 1e-8)).apply("log");
  if (!call.node.boolean("full", false)) return loss;
  if (!is_floating(target.type().dtype)) return std::nullopt;
  const Term stirling = target * target.apply("log") - target + 0.5 * (2.0 * std::numbers::pi * target).apply("log");
  return loss + where(less_equal(target, 1.0), 0.0, stirling);
}

// ‖x − y + ε‖ₚ over the last axis
Term distance(const Term& left, const Term& right, double order, double epsilon, bool keep = false) {
  const Term difference = left - right + epsilon;
  return norm(difference, order, {difference.type().rank() - 1}, keep);
}

std::optional<Term> triplet_margin(const Call& call) {
  const Term anchor = call.term("anchor"), positive = call.term("positive"), negative = call.term("negative");
  if (anchor.type().rank() == 0) return std::nullopt;
  const double order = call.number("p", 2.0), epsilon = call.number("eps", 1e-6);
  const Term near = distance(anchor, positive, order, epsilon);
  Term far = distance(anchor, negative, order, epsilon);
  if (call.node.boolean("swap", false)) {
    const Term swapped = distance(positive, negative, order, epsilon);
    far = far.call("minimum.default", {{"other", swapped}});
  }
  return at_least(call.number("margin", 1.0) + near - far, 0.0);
}

std::optional<Term> cosine_embedding(const Call& call) {
  const Term left = call.term("input1"), right = call.term("input2"), target = call.term("target");
  const IntList axis = {target.type().rank()};
  if (left.type().rank() != axis[0] + 1 || right.type().rank() != axis[0] + 1) return std::nullopt;
  constexpr double kEpsilon = 1e-12;
  const Term scale = ((sum(left * left, axis) + kEpsilon) * (sum(right * right, axis) + kEpsilon)).apply("sqrt");
  const Term cosine = sum(left * right, axis) / scale;
  return where(equal(target, int64_t{1}), 1.0 - cosine, 0.0) +
         where(equal(target, int64_t{-1}), at_least(cosine - call.number("margin", 0.0), 0.0), 0.0);
}

// --- Losses that reduce in their own way ---

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;  // at::Reduction

TensorType of_shape(const TensorType& like, Shape shape) {
  TensorType type{like.dtype, std::move(shape), {}, 0, like.device};
  type.strides = contiguous_strides(type.shape);
  return type;
}

Term floating(const Term& condition, const Term& like) {
  return condition.call("_to_copy.default", {{"dtype", Argument(like.type().dtype)}});
}

// What the losses over classes share: which axis the classes are on, and of each target whether it counts and with
// which weight.
struct Classes {
  const Call& call;
  Term log_probability;
  Term target = call.term("target");
  int64_t axis = log_probability.type().rank() == 1 ? 0 : 1;
  int64_t count = log_probability.type().shape[axis];
  int64_t reduction = call.node.integer("reduction", kMean);
  Term counted = not_equal(target, call.node.integer("ignore_index", -100));

  Shape along_axis() const {
    Shape shape(log_probability.type().shape.size(), 1);
    shape[axis] = count;
    return shape;
  }

  bool fits() const {
    Shape shape = log_probability.type().shape;
    shape[axis] = 1;
    return is_integral(target.type().dtype) && target.type().elements() == product(shape) &&
           target.type().is_contiguous();
  }

  // An ignored target may be anything.
  Term place() const { return where(counted, target, int64_t{0}); }

  Term weights() const {
    const TensorType type = of_shape(call.term("weight").type(), target.type().shape);
    const Term chosen(call.rewriter, call.rewriter.emit("aten.index.Tensor",
                                                        {{"self", ValueRef{call.term("weight").id()}},
                                                         {"indices", ValueList{{place().id()}}}},
                                                        type, "class_weight"));
    return where(counted, chosen, 0.0);
  }

  Term classes() const {
    const TensorType line = of_shape({DType::i64, {}, {}, 0, target.type().device}, {count});
    return {call.rewriter, call.rewriter.emit("aten.arange.start_step",
                                              {{"start", int64_t{0}},
                                               {"end", count},
                                               {"step", int64_t{1}},
                                               {"dtype", DType::i64},
                                               {"device", Keyword{"device", line.device}}},
                                              line, "classes")};
  }

  // Which class each target names: itself, looked up among the classes, so that one that there is not is refused as
  // every index out of range is.
  Term named_class() const {
    Shape shape = target.type().shape;
    shape.push_back(1);
    const TensorType type = of_shape({DType::i64, {}, {}, 0, target.type().device}, shape);
    const ValueId among = view(classes(), {count, 1}).id();
    return {call.rewriter, call.rewriter.emit("aten.embedding.default",
                                              {{"weight", ValueRef{among}}, {"indices", ValueRef{place().id()}}}, type,
                                              "named_class")};
  }

  // Of each target; picked by comparing along the class axis, so that it fuses with what yields log p.
  Term picked() const {
    Shape target_shape = log_probability.type().shape;
    target_shape[axis] = 1;
    const Term named = count > 0 ? named_class() : target;
    return sum(where(equal(view(named, target_shape), view(classes(), along_axis())), log_probability, 0.0), {axis});
  }

  Term weight_along_axis() const { return view(call.term("weight"), along_axis()); }

  // `loss` of each target, ignored ones 0.
  Term reduced(const Term& loss) const {
    if (reduction == kNone) return loss;
    const Term total = sum(loss, all_axes(loss));
    if (reduction == kSum) return total;
    const Term share = call.has("weight") ? weights() : floating(counted, loss);
    return total / sum(share, all_axes(loss));
  }

  Term nll() const {
    const Term loss = where(counted, -picked(), 0.0);
    return reduced(call.has("weight") ? loss * weights() : loss);
  }

  // The loss were every class the target.
  Term smooth() const {
    const Term weighted = call.has("weight") ? log_probability * weight_along_axis() : log_probability;
    return reduced(where(counted, -sum(weighted, {axis}), 0.0));
  }
};

std::optional<Term> nll_loss(const Call& call) {
  if (call.term("self").type().rank() == 0) return std::nullopt;
  const Classes classes{call, call.term("self")};
  if (!classes.fits()) return std::nullopt;
  return classes.nll();
}

std::optional<Term> cross_entropy(const Call& call) {
  const Term input = call.term("self"), target = call.term("target");
  if (input.type().rank() == 0) return std::nullopt;
  const int64_t axis = input.type().rank() == 1 ? 0 : 1;
  const double smoothing = call.number("label_smoothing", 0.0),
               share = smoothing / static_cast<double>(input.type().shape[axis]);
  const bool indices = is_integral(target.type().dtype);
  if (indices ? !target.type().is_contiguous() : target.type().shape != input.type().shape) return std::nullopt;
  const Term log_probability(
      call.rewriter,
      call.rewriter.emit("aten.log_softmax.int", {{"self", ValueRef{input.id()}}, {"dim", axis}}, input.type()));
  const Classes classes{call, log_probability};
  if (indices) {
    if (!classes.fits()) return std::nullopt;
    if (smoothing == 0.0) return classes.nll();
    return (1.0 - smoothing) * classes.nll() + share * classes.smooth();
  }
  Term product = log_probability * (smoothing == 0.0 ? target : (1.0 - smoothing) * target + share);
  if (call.has("weight")) product = product * classes.weight_along_axis();
  if (classes.reduction == kNone) return -sum(product, {axis});
  const Term total = -sum(product, all_axes(product));
  if (classes.reduction == kSum) return total;
  return total / (static_cast<double>(input.type().elements()) / static_cast<double>(classes.count));
}

// Σ over the targets t of a row, up to its first negative one, and over the classes c that are none of them: max(0, 1 −
// x[t] + x[c]) / C. Each row's pairs are compared as one matrix.
std::optional<Term> multilabel_margin(const Call& call) {
  constexpr int64_t kMostClasses = 512;  // the matrices are classes × classes
  const Term given = call.term("self");
  if (given.type().rank() == 0 || given.type().rank() > 2 || given.type().shape.back() > kMostClasses ||
      given.type().elements() == 0)
    return std::nullopt;
  const int64_t classes = given.type().shape.back(), rows = given.type().elements() / classes,
                reduction = call.node.integer("reduction", kMean);
  if (!given.type().is_contiguous() || !call.term("target").type().is_contiguous()) return std::nullopt;
  const Term input = view(given, {rows, classes}), target = view(call.term("target"), {rows, classes});
  const TensorType line = of_shape({DType::i64, {}, {}, 0, target.type().device}, {classes});
  const Term numbers(call.rewriter, call.rewriter.emit("aten.arange.start_step",
                                                       {{"start", int64_t{0}},
                                                        {"end", classes},
                                                        {"step", int64_t{1}},
                                                        {"dtype", DType::i64},
                                                        {"device", Keyword{"device", line.device}}},
                                                       line, "classes"));
  const auto both = [](const Term& left, const Term& right) {
    return left.call("logical_and.default", {{"other", right}});
  };
  const auto any_of_last = [](const Term& term) { return term.call("any.dim", {{"dim", Argument(int64_t{2})}}); };
  const Shape columns = {rows, 1, classes}, down = {rows, classes, 1};
  const Term ends_before = any_of_last(
      both(less(view(target, columns), int64_t{0}),
           less_equal(view(numbers, {1, 1, classes}), view(numbers, {1, classes, 1}))));
  const Term counts = ends_before.apply("logical_not");
  const Term is_target = any_of_last(
      both(view(counts, columns), equal(view(target, columns), view(numbers, {1, classes, 1}))));
  const Term place = where(counts, target, int64_t{0});
  const Term chosen(
      call.rewriter,
      call.rewriter.emit("aten.gather.default",
                         {{"self", ValueRef{input.id()}}, {"dim", int64_t{1}}, {"index", ValueRef{place.id()}}},
                         input.type(), "chosen"));
  const Term margin = at_least(1.0 - view(chosen, down) + view(input, columns), 0.0);
  const Term loss = where(both(view(counts, down), view(is_target.apply("logical_not"), columns)), margin, 0.0);
  const Term of_row = sum(loss, {1, 2}) / static_cast<double>(classes);
  if (reduction == kMean) return mean(of_row, all_axes(of_row));
  if (reduction == kSum) return sum(of_row, all_axes(of_row));
  return given.type().rank() == 1 ? view(of_row, {}) : of_row;
}

// --- Distances ---

std::optional<Term> pairwise_distance(const Call& call) {
  const Term left = call.term("x1"), right = call.term("x2");
  if (std::max(left.type().rank(), right.type().rank()) == 0) return std::nullopt;
  return distance(left, right, call.number("p", 2.0), call.number("eps", 1e-6), call.node.boolean("keepdim", false));
}

std::optional<Term> cosine_similarity(const Call& call) {
  const Term left = call.term("x1"), right = call.term("x2");
  if (left.type().shape != right.type().shape || left.type().rank() == 0) return std::nullopt;
  const IntList axis = {call.node.integer("dim", 1)};
  const double epsilon = call.number("eps", 1e-8);
  const auto unit = [&](const Term& term) { return term / at_least(norm(term, 2.0, axis, true), epsilon); };
  return sum(unit(left) * unit(right), axis);
}

// --- Lookups that reduce ---

// Bags of one size: the rows of each, then their sum, mean or maximum. Bags lie one behind the other where the offsets
// count up by their size.
std::optional<Term> embedding_bag(const Call& call) {
  constexpr int64_t kSumMode = 0, kMeanMode = 1;
  const Node* offsets = call.rewriter.producer(call.node.value("offsets"));
  if (!offsets || base_name(offsets->op) != "arange" || offsets->integer("start", 0) != 0 ||
      call.node.integer("padding_idx", -1) >= 0)
    return std::nullopt;
  if (call.node.boolean("include_last_offset", false)) return std::nullopt;
  const Term weight = call.term("weight"), indices = call.term("indices");
  const int64_t bags = call.rewriter.type(call.node.results[0]).shape[0], mode = call.node.integer("mode", kSumMode);
  const int64_t size = bags > 0 ? indices.type().elements() / bags : 0;
  if (size == 0 || offsets->integer("step", 1) != size || size * bags != indices.type().elements() ||
      !indices.type().is_contiguous())
    return std::nullopt;
  const Term places = view(indices, {bags, size});
  const TensorType type = of_shape(weight.type(), {bags, size, weight.type().shape[1]});
  Term rows(call.rewriter,
            call.rewriter.emit("aten.embedding.default",
                               {{"weight", ValueRef{weight.id()}}, {"indices", ValueRef{places.id()}}}, type, "rows"));
  if (call.has("per_sample_weights")) rows = rows * view(call.term("per_sample_weights"), {bags, size, 1});
  if (mode == kSumMode) return sum(rows, {1});
  if (mode == kMeanMode) return mean(rows, {1});
  return rows.call("amax.default", {{"dim", Argument(IntList{1})}});
}

struct Expansion {
  Formula formula;
  bool reduces;  // the formula is of one element; the call's reduction follows
};

const std::unordered_map<std::string_view, Expansion>& expansions() {
  static const std::unordered_map<std::string_view, Expansion> table = {
      {"mse_loss", {mse, true}},
      {"l1_loss", {l1, true}},
      {"smooth_l1_loss", {smooth_l1, true}},
      {"huber_loss", {huber, true}},
      {"kl_div", {kl_div, true}},
      {"binary_cross_entropy", {binary_cross_entropy, true}},
      {"binary_cross_entropy_with_logits", {binary_cross_entropy_with_logits, true}},
      {"hinge_embedding_loss", {hinge_embedding, true}},
      {"margin_ranking_loss", {margin_ranking, true}},
      {"soft_margin_loss", {soft_margin, true}},
      {"poisson_nll_loss", {poisson_nll, true}},
      {"triplet_margin_loss", {triplet_margin, true}},
      {"cosine_embedding_loss", {cosine_embedding, true}},
      {"nll_loss", {nll_loss, false}},
      {"nll_loss_nd", {nll_loss, false}},
      {"nll_loss2d", {nll_loss, false}},
      {"cross_entropy_loss", {cross_entropy, false}},
      {"pairwise_distance", {pairwise_distance, false}},
      {"cosine_similarity", {cosine_similarity, false}},
      {"multilabel_margin_loss", {multilabel_margin, false}},
      {"_embedding_bag_forward_only", {embedding_bag, false}},
      {"_embedding_bag", {embedding_bag, false}},
  };
  return table;
}

// The formulas promote as PyTorch's kernels do only where all floating operands are of the result's type, and nothing
// but labels and places is whole.
bool has_one_type(const Graph& graph, const Node& node) {
  const DType dtype = graph.type(node.results[0]).dtype;
  bool one = is_floating(dtype);
  for_each_operand(node, [&](ValueId id) {
    const bool may_be_whole = id == node.value("target") || id == node.value("indices") || id == node.value("offsets");
    one = one && (graph.type(id).dtype == dtype || (may_be_whole && is_integral(graph.type(id).dtype)));
  });
  return one;
}

}  // namespace

RewriteCounts expand(Graph& graph, const GraphForms& forms) {
  const auto users = graph.users();
  const auto is_output = graph.is_output();
  const auto is_read = [&](ValueId id) { return id != kNoValue && (is_output[id] || !users[id].empty()); };
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    if (node.results.empty() || node.results[0] == kNoValue || !node.op.starts_with("aten.")) return false;
    if (!forms.sorts.places_of_wide && expand_wide_sort(rewriter, node, is_read)) return true;
    if (forms.windows_fold_rows_first) fold_rows_first(rewriter, node, is_read);
    if (std::any_of(node.results.begin() + 1, node.results.end(), is_read)) return false;
    if (const auto scatter = expand_scatter(rewriter, node)) {
      rewriter.adopt(node.results[0], scatter->id(), NumericTag::kExact);
      return true;
    }
    if (expand_masked_scatter(rewriter, node)) return true;
    if (const auto attention = forms.wide_heads_as_products ? expand_wide_heads(rewriter, node) : std::nullopt) {
      rewriter.adopt(node.results[0], attention->id(), NumericTag::kReassociates);
      return true;
    }
    const auto is_read_once = [&](ValueId id) {
      return static_cast<size_t>(id) < users.size() && users[id].size() == 1 && !is_output[id];
    };
    if (const auto scatter = scatter_into_addend(rewriter, node, is_read_once)) {
      rewriter.adopt(node.results[0], scatter->id(), NumericTag::kReassociates);
      return true;
    }
    const auto expansion = expansions().find(base_name(node.op));
    if (expansion == expansions().end() || !has_one_type(graph, node)) return false;
    std::optional<Term> term = expansion->second.formula({rewriter, node});
    if (!term) return false;
    const int64_t reduction = expansion->second.reduces ? node.integer("reduction", kMean) : kNone;
    if (reduction == kMean) term = mean(*term, all_axes(*term));
    if (reduction == kSum) term = sum(*term, all_axes(*term));
    rewriter.adopt(node.results[0], term->id(), NumericTag::kExact);
    return true;
  });
}

}  // namespace kw
