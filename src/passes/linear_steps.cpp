#include "passes/linear_steps.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "passes/slices.hpp"

namespace kw {
namespace {

constexpr size_t kFewestSteps = 8;

// decay · state + input
struct Step {
  ValueId state = kNoValue, input = kNoValue;
  ValueId decay = kNoValue;  // kNoValue: the number
  double factor = 1.0;
};

class LinearSteps {
 public:
  explicit LinearSteps(Graph& graph) : rewriter_(graph), reads_(graph) {
    for (const Node& node : graph.nodes) add(node);
    for (const GraphOutput& output : graph.outputs)
      if (output.value != kNoValue) outputs_.push_back(output.value);
    find_concatenations(graph);
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      if (!is_worth_it(chains_[chain])) continue;
      for (size_t at = 0; at < chains_[chain].states.size(); ++at) places_[chains_[chain].states[at]] = {chain, at};
    }
  }

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      const auto found = node.results.size() == 1 ? places_.find(node.results[0]) : places_.end();
      if (found == places_.end()) return false;
      Chain& chain = chains_[found->second.first];
      const size_t at = found->second.second, last = chain.states.size() - 1;
      const ValueId state = node.results[0];
      if (at == 0) emit(chain, node);
      if (chain.made == kNoValue || (!chain.every && at != last)) return false;
      rewriter_.replace(state, chain.every ? emit_slice(rewriter_, chain.made, static_cast<int64_t>(at)) : chain.made,
                        NumericTag::kReassociates);
      return true;
    });
  }

 private:
  struct Chain {
    std::vector<ValueId> states;
    std::vector<Step> steps;
    bool every = true;  // is more than the last state read?
    int64_t dim = 0;    // of the concatenation that has all states, where there is one
    ValueId made = kNoValue;
  };

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  // --- Which steps follow each other ---

  // The ways to read a sum as a step.
  std::vector<Step> steps_of(const Node& node) const {
    std::vector<Step> steps;
    if (node.op != "aten.add.Tensor" || node.number("alpha", 1.0) != 1.0) return steps;
    const ValueId result = node.results[0], self = node.value("self"), other = node.value("other");
    if (self == kNoValue || other == kNoValue || type(result).dtype != DType::f32) return steps;
    for (const auto& [scaled, input] : {std::pair{self, other}, std::pair{other, self}}) {
      if (type(input).dtype != DType::f32) continue;
      const Node* product = rewriter_.producer(scaled);
      if (product != nullptr && product->op == "aten.mul.Tensor") {
        const ValueId left = product->value("self"), right = product->value("other");
        if (left != kNoValue && right != kNoValue) {
          steps.push_back({left, input, right});
          steps.push_back({right, input, left});
        } else if (left != kNoValue) {
          steps.push_back({left, input, kNoValue, product->number("other", 1.0)});
        }
      }
      steps.push_back({scaled, input});
    }
    std::erase_if(steps, [&](const Step& step) {
      return type(step.state).shape != type(result).shape || type(step.state).dtype != DType::f32 ||
             (step.decay != kNoValue && type(step.decay).dtype != DType::f32) || !is_broadcast(step, result);
    });
    return steps;
  }

  // Do the operands become the result's shape as they are, and nothing else does?
  bool is_broadcast(const Step& step, ValueId result) const {
    const Shape& shape = type(result).shape;
    const auto fits = [&](ValueId operand) {
      const Shape& own = type(operand).shape;
      if (own.size() > shape.size()) return false;
      for (size_t back = 1; back <= own.size(); ++back)
        if (own[own.size() - back] != shape[shape.size() - back] && own[own.size() - back] != 1) return false;
      return true;
    };
    return !shape.empty() && product(shape) > 0 && fits(step.input) && (step.decay == kNoValue || fits(step.decay));
  }

  bool follows(ValueId then, ValueId now) const {
    if (then == now) return true;
    if (then == kNoValue || now == kNoValue) return false;
    const auto last = slice_of(rewriter_, then), slice = slice_of(rewriter_, now);
    return last && slice && last->is_before(*slice);
  }

  bool follows(const Step& then, const Step& now) const {
    return follows(then.decay, now.decay) && then.factor == now.factor && follows(then.input, now.input);
  }

  void add(const Node& node) {
    if (node.results.size() != 1 || node.results[0] == kNoValue) return;
    const ValueId result = node.results[0];
    const std::vector<Step> steps = steps_of(node);
    if (steps.empty()) return;
    for (const Step& step : steps)
      if (steps_.contains(step.state) && extend(step, result)) break;
    steps_[result] = steps;
  }

  bool extend(const Step& step, ValueId result) {
    if (const auto found = chain_of_.find(step.state); found != chain_of_.end()) {
      Chain& chain = chains_[found->second];
      // What all steps have alike they go on having alike.
      if (chain.states.back() != step.state || !follows(chain.steps.back(), step) ||
          (chain.steps[0].input == chain.steps[1].input) != (chain.steps[0].input == step.input) ||
          (chain.steps[0].decay == chain.steps[1].decay) != (chain.steps[0].decay == step.decay))
        return false;
      chain_of_[result] = found->second;
      chain.states.push_back(result);
      chain.steps.push_back(step);
      return true;
    }
    for (const Step& before : steps_.at(step.state)) {
      if (!follows(before, step)) continue;
      chain_of_[step.state] = chain_of_[result] = chains_.size();
      chains_.push_back({{step.state, result}, {before, step}});
      return true;
    }
    return false;
  }

  // Of which states is one concatenation made?
  void find_concatenations(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      const auto* parts = node.op == "aten.cat.default" ? std::get_if<ValueList>(node.find("tensors")) : nullptr;
      if (parts == nullptr || parts->ids.empty()) continue;
      const auto found = chain_of_.find(parts->ids.back());
      if (found == chain_of_.end()) continue;
      const int64_t dim = node.integer("dim", 0);
      chains_[found->second].dim = dim < 0 ? dim + type(parts->ids.back()).rank() : dim;
    }
  }

  bool is_output(ValueId value) const { return std::find(outputs_.begin(), outputs_.end(), value) != outputs_.end(); }

  bool is_worth_it(Chain& chain) const {
    if (chain.states.size() < kFewestSteps) return false;
    // A step reads the state before once; one that is nobody else's is not stored.
    const auto is_inner = [&](ValueId state) { return reads_.is_once(state) && !is_output(state); };
    chain.every = !std::all_of(chain.states.begin(), chain.states.end() - 1, is_inner);
    if (!is_read_by_its_own(chain)) chain.dim = 0;
    const Step& first = chain.steps[0];
    const bool adds_up = first.decay == kNoValue && first.factor == 1.0;
    return chain.every || !adds_up;
  }

  // Do the next step and one concatenation alone read a state? Others, as views, may count on its strides.
  bool is_read_by_its_own(const Chain& chain) const {
    return std::all_of(chain.states.begin(), chain.states.end(), [&](ValueId state) {
      const int own = state == chain.states.back() ? 1 : 2;
      return reads_.of(state) - static_cast<int>(std::count(outputs_.begin(), outputs_.end(), state)) <= own;
    });
  }

  // --- What takes their place ---

  // All of a role's operands as one tensor, time first.
  ValueId of_all(ValueId first, ValueId second, const Shape& shape) {
    ValueId all = first;
    if (first != second) {
      const auto slice = slice_of(rewriter_, first);
      if (!slice) return kNoValue;
      all = emit_slices(rewriter_, *slice, shape[0]);
      if (const auto missing = std::ssize(shape) - type(all).rank(); missing > 0) {
        Shape longer = type(all).shape;
        longer.insert(longer.begin() + 1, missing, 1);
        all = rewriter_.emit("aten.view.default", {{"self", ValueRef{all}}, {"size", longer}});
      }
    }
    if (type(all).shape == shape) return all;
    return rewriter_.emit("aten.expand.default", {{"self", ValueRef{all}}, {"size", shape}});
  }

  // The first step as it reads by now, if it is still one.
  std::optional<Step> first_step(const Chain& chain, const Node& node) const {
    const Step& found = chain.steps[0];
    for (const Step& step : steps_of(node))
      if ((step.decay == kNoValue) == (found.decay == kNoValue) && step.factor == found.factor &&
          same_slice(step.decay, found.decay) && same_slice(step.input, found.input))
        return step;
    return std::nullopt;
  }

  bool same_slice(ValueId now, ValueId found) const {
    if (now == found) return true;
    return now != kNoValue && found != kNoValue && slice_of(rewriter_, now) == slice_of(rewriter_, found) &&
           slice_of(rewriter_, now).has_value();
  }

  void emit(Chain& chain, const Node& node) {
    const auto first = first_step(chain, node);
    if (!first) return;
    const TensorType& state = type(chain.states[0]);
    Shape shape = state.shape;
    shape.insert(shape.begin(), static_cast<int64_t>(chain.states.size()));
    const auto role = [&](ValueId Step::* of) {
      return of_all((*first).*of, chain.steps[0].*of == chain.steps[1].*of ? (*first).*of : kNoValue, shape);
    };
    const ValueId input = role(&Step::input), decay = first->decay == kNoValue ? kNoValue : role(&Step::decay);
    if (input == kNoValue || (first->decay != kNoValue && decay == kNoValue)) return;
    TensorType made = type(chain.states[0]);
    if (chain.every) {
      made.shape = shape;
      made.strides = strides_of(shape, chain.dim);
    } else {
      made.strides = contiguous_strides(made.shape);
    }
    made.offset = 0;
    chain.made = rewriter_.emit("kw.linear_steps.default",
                                {{"input", ValueRef{input}},
                                 {"first", ValueRef{first->state}},
                                 {"decay", decay == kNoValue ? Argument(first->factor) : Argument(ValueRef{decay})},
                                 {"every", chain.every}},
                                std::move(made), "states");
  }

  // Steps lie where a concatenation of all along `dim` would have them.
  static Shape strides_of(const Shape& shape, int64_t dim) {
    Shape moved(shape.begin() + 1, shape.end());
    moved.insert(moved.begin() + dim, shape[0]);
    Shape strides = contiguous_strides(moved);
    std::rotate(strides.begin(), strides.begin() + dim, strides.begin() + dim + 1);
    return strides;
  }

  Rewriter rewriter_;
  Reads reads_;  // of the values of the graph as it was
  std::map<ValueId, std::vector<Step>> steps_;
  std::map<ValueId, size_t> chain_of_;
  std::vector<Chain> chains_;
  std::vector<ValueId> outputs_;
  std::map<ValueId, std::pair<size_t, size_t>> places_;  // of a state: its chain, and which step made it
};

}  // namespace

RewriteCounts linear_steps(Graph& graph) { return LinearSteps(graph).run(); }

}  // namespace kw
