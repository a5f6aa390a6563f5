#include "passes/layout.hpp"

#include "ir/op_registry.hpp"
#include "ir/promote.hpp"

namespace kw {
namespace {

constexpr int kLongestChain = 16;  // looked through for one node, so that the pass stays linear

struct Chain {
  Rewriter& rewriter;
  const Sharing& sharing;
  Node& node;

  ValueId base() const { return node.value("self"); }
  const Node* view_of(ValueId id) const {
    const Node* producer = rewriter.producer(id);
    const bool is_view = producer && class_of(producer->op) == OpClass::kView && producer->results.size() == 1 &&
                         producer->value("self") != kNoValue;
    return is_view ? producer : nullptr;
  }

  // transpose(transpose(x)) = x, squeeze(unsqueeze(x)) = x
  bool back_to_an_earlier_place() {
    const ValueId result = node.results[0];
    ValueId earlier = base();
    for (int step = 0; step < kLongestChain && earlier != kNoValue; ++step) {
      const bool returned_as_it_is = !sharing.is_output(result) || rewriter.type(earlier) == rewriter.type(result);
      if (same_place(rewriter.type(earlier), rewriter.type(result)) && returned_as_it_is) {
        rewriter.replace(result, earlier);
        return true;
      }
      const Node* view = view_of(earlier);
      earlier = view ? view->value("self") : kNoValue;
    }
    return false;
  }

  void become(std::vector<NamedArgument> arguments) {
    node.arguments = std::move(arguments);
    rewriter.count(NumericTag::kExact);
  }

  // permute(permute(x, p), q) = permute(x, p∘q)
  void compose_permutations(const Node& inner) {
    const IntList first = inner.integers("dims"), second = node.integers("dims");
    const auto rank = static_cast<int64_t>(first.size());
    IntList both(second.size());
    for (size_t i = 0; i < second.size(); ++i) both[i] = *normalise_axis(first[*normalise_axis(second[i], rank)], rank);
    become({{"self", ValueRef{inner.value("self")}}, {"dims", both}});
  }

  // view(view(x, s), t) = view(x, t);  expand(expand(x, s), t) = expand(x, t)
  bool compose() {
    const Node* inner = view_of(base());
    if (!inner || inner->op != node.op) return false;
    const ValueId origin = inner->value("self");
    const Shape& shape = rewriter.type(node.results[0]).shape;
    if (node.op == "aten.permute.default") compose_permutations(*inner);
    else if (node.op == "aten.view.default" || node.op == "aten.expand.default")
      become({{"self", ValueRef{origin}}, {"size", shape}});
    return false;
  }
};

}  // namespace

RewriteCounts layout(Graph& graph) {
  const Sharing sharing(graph);
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    if (class_of(node.op) != OpClass::kView || node.results.size() != 1 || node.results[0] == kNoValue ||
        node.value("self") == kNoValue)
      return false;
    Chain chain{rewriter, sharing, node};
    return chain.back_to_an_earlier_place() || chain.compose();
  });
}

}  // namespace kw
