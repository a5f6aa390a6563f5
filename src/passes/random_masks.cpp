#include "passes/random_masks.hpp"

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"
#include "plan/domain.hpp"

namespace kw {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 30;  // the kernel counts in 32 bits

bool takes_mask(const TensorType& type) {
  const bool narrow = type.dtype == DType::f32 || type.dtype == DType::f16 || type.dtype == DType::bf16;
  return narrow && type.device.starts_with("cuda") && type.elements() > 0 && type.elements() <= kMostElements &&
         type.is_contiguous();
}

bool is_ours(const plan::GraphFacts& facts, NodeId node) { return facts.kinds[node] != plan::NodeKind::kExtern; }

bool is_read_by_ours(const plan::GraphFacts& facts, ValueId value) {
  const auto& readers = facts.readers[facts.roots[value]];
  return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) { return is_ours(facts, reader); });
}

// A dropout alone takes the library one pass over its tensor.
bool is_worth_it(const plan::GraphFacts& facts, const Node& node) {
  const Graph& graph = facts.graph;
  if (node.op == "aten.bernoulli.p") {
    const double keep = node.number("p", 0.0);
    return keep > 0.0 && keep < 1.0 && takes_mask(graph.type(node.results[0])) &&
           is_read_by_ours(facts, node.results[0]);
  }
  if (node.op != "aten.native_dropout.default" || !node.boolean("train", false)) return false;
  const ValueId input = node.value("input"), result = node.results[0];
  const double drop = node.number("p", 0.0);
  if (!(drop > 0.0 && drop < 1.0) || result == kNoValue || !takes_mask(graph.type(input)) ||
      !takes_mask(graph.type(result)))
    return false;
  const NodeId producer = graph.values[facts.roots[input]].producer;
  if (producer != kNoNode && graph.type(input).offset != 0)
    return false;  // of what the caller passes, the address is looked at
  return (producer != kNoNode && is_ours(facts, producer)) || is_read_by_ours(facts, result);
}

// `beside`: a tensor that the caller passes, whose address decides how PyTorch's kernel shares the elements out.
ValueId mask_of(Rewriter& rewriter, TensorType type, double keep, bool whole, ValueId beside) {
  const DType dtype = type.dtype;
  type.dtype = DType::b1;
  type.offset = 0;
  std::vector<NamedArgument> arguments;
  if (beside != kNoValue) arguments.push_back({"self", ValueRef{beside}});
  arguments.insert(arguments.end(),
                   {{"size", IntList(type.shape)}, {"keep", keep}, {"dtype", dtype}, {"dropout", whole}});
  return rewriter.emit("kw.keep_mask.default", std::move(arguments), type, "kept");
}

}  // namespace

RewriteCounts random_masks(Graph& graph, const GraphForms& forms) {
  if (!forms.draws_masks) return {};
  // Most graphs have no random numbers, and looking at the whole of a large one takes its time.
  const auto is_random = [](const Node& node) {
    return node.op == "aten.bernoulli.p" || node.op == "aten.native_dropout.default";
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_random)) return {};
  std::vector<bool> wanted(graph.nodes.size(), false), passed(graph.nodes.size(), false);
  bool any = false;
  {
    const plan::GraphFacts facts(graph, forms);
    for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node) {
      wanted[node] = is_worth_it(facts, graph.nodes[node]);
      const ValueId input = graph.nodes[node].value("input");
      passed[node] = input != kNoValue && graph.values[facts.roots[input]].producer == kNoNode;
      any = any || wanted[node];
    }
  }
  if (!any) return {};
  Rewriter rewriter(graph);
  size_t next = 0;
  return rewriter.run([&](Node& node) {
    const size_t here = next++;
    if (!wanted[here]) return false;
    const TensorType type = rewriter.type(node.results[0]);
    const auto as_number = [&](ValueId mask) {
      return Term(rewriter, mask).call("_to_copy.default", {{"dtype", Argument(type.dtype)}});
    };
    if (node.op == "aten.bernoulli.p") {
      rewriter.adopt(node.results[0], as_number(mask_of(rewriter, type, node.number("p", 0.0), false, kNoValue)).id(),
                     NumericTag::kExact);
      return true;
    }
    const ValueId input = node.value("input"), result = node.results[0];
    const double keep = 1.0 - node.number("p", 0.0);
    const ValueId mask = mask_of(rewriter, type, keep, true, passed[here] ? input : kNoValue);
    // The scale is a quotient in double precision, of the probability as a float.
    const auto scale = static_cast<double>(static_cast<float>(1.0 / static_cast<double>(static_cast<float>(keep))));
    const Term kept = Term(rewriter, input) * as_number(mask);
    rewriter.adopt(result, rewriter.emit("aten.mul.Tensor", {{"self", ValueRef{kept.id()}}, {"other", scale}}, type),
                   NumericTag::kExact);
    if (node.results.size() > 1 && node.results[1] != kNoValue) rewriter.replace(node.results[1], mask);
    return true;
  });
}

}  // namespace kw
