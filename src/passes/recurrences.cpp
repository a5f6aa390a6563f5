#include "passes/recurrences.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "passes/joined_gates.hpp"
#include "passes/recurrent_steps.hpp"
#include "passes/slices.hpp"

namespace kw {
namespace {

constexpr int64_t kFewestSteps = 4;

// Of each gate's addends.
using Roles = std::vector<std::vector<TermRole>>;

class Recurrences {
 public:
  explicit Recurrences(Graph& graph) : rewriter_(graph), reads_(graph) {
    for (const Node& node : graph.nodes)
      if (auto step = recurrent_step_of(rewriter_, node)) add(node.results[0], std::move(*step));
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      const std::vector<ValueId>& states = chains_[chain].states;
      if (!is_worth_it(chains_[chain])) continue;
      for (size_t at = 0; at < states.size(); ++at) {
        places_[states[at]] = {chain, at};
        if (const ValueId cell = steps_.at(states[at]).cell; cell != kNoValue) add_cell(cell, chain, at);
      }
    }
  }

  RewriteCounts run() {
    return rewriter_.run([&](Node& node) {
      if (node.results.size() != 1) return false;
      if (const auto found = cells_.find(node.results[0]); found != cells_.end()) return replace_cell(found->first);
      const auto found = places_.find(node.results[0]);
      if (found == places_.end()) return false;
      Chain& chain = chains_[found->second.first];
      const size_t at = found->second.second;
      const ValueId state = node.results[0];
      if (at == 0) {
        emit(chain, recurrent_step_of(rewriter_, node), rewriter_.type(state));
        // The first cell's node stands before this one: what reads it in between goes on doing so.
        if (const ValueId cell = steps_.at(state).cell; cell != kNoValue) replace_cell(cell);
      }
      if (chain.sequence == kNoValue) return false;
      rewriter_.replace(state, emit_slice(rewriter_, chain.sequence, static_cast<int64_t>(at)),
                        NumericTag::kReassociates);
      return true;
    });
  }

 private:
  struct Chain {
    std::vector<ValueId> states;
    Roles roles;             // of each gate's addends
    bool has_cells = false;  // are more cells than the last read by others?
    ValueId sequence = kNoValue, last_cell = kNoValue, cells = kNoValue;
  };

  const TensorType& type(ValueId id) const { return rewriter_.type(id); }

  // --- Which steps follow each other ---

  // The roles of a step's addends, where it follows the one that made `state`. Each gate reads that once, in a product.
  std::optional<Roles> roles_of(const RecurrentStep& before, const RecurrentStep& step, ValueId state) const {
    if (before.kind != step.kind || step.cell_before != before.cell) return std::nullopt;
    if (step.state_before != kNoValue && step.state_before != state) return std::nullopt;
    Roles roles(step.gates.size());
    for (size_t gate = 0; gate < roles.size(); ++gate) {
      if (before.gates[gate].size() != step.gates[gate].size()) return std::nullopt;
      for (size_t at = 0; at < step.gates[gate].size(); ++at) {
        const auto role = role_of(before.gates[gate][at], step.gates[gate][at], state);
        if (!role) return std::nullopt;
        roles[gate].push_back(*role);
      }
      const auto states = std::count(roles[gate].begin(), roles[gate].end(), TermRole::kState);
      if (states != (step.takes_state(gate) ? 1 : 0)) return std::nullopt;
    }
    return roles;
  }

  std::optional<TermRole> role_of(const Addend& then, const Addend& now, ValueId state) const {
    if (!now.is_like(then) || type(now.value).dtype != DType::f32) return std::nullopt;
    if (now.value == state && now.matrix != kNoValue) return TermRole::kState;
    if (now.value == then.value) return TermRole::kSame;
    const auto slice = slice_of(rewriter_, now.value), last = slice_of(rewriter_, then.value);
    if (slice && last && last->is_before(*slice) && type(slice->whole).rank() == 3) return TermRole::kSlice;
    return std::nullopt;
  }

  void add(ValueId result, RecurrentStep step) {
    for (const auto& gate : step.gates)
      for (const Addend& addend : gate) {
        const ValueId state = addend.value;
        if (const auto before = steps_.find(state); before != steps_.end() && type(state).shape == type(result).shape)
          if (const auto roles = roles_of(before->second, step, state)) extend(state, result, *roles);
      }
    steps_.emplace(result, std::move(step));
  }

  void extend(ValueId state, ValueId result, const Roles& roles) {
    if (chain_of_.contains(result)) return;
    const auto found = chain_of_.find(state);
    if (found == chain_of_.end()) {
      if (first_state(steps_.at(state), roles, type(state).shape) == kNoValue) return;
      chain_of_[state] = chain_of_[result] = chains_.size();
      chains_.push_back({{state, result}, roles});
      return;
    }
    Chain& chain = chains_[found->second];
    if (chain.states.back() != state || chain.roles != roles) return;
    chain_of_[result] = found->second;
    chain.states.push_back(result);
  }

  // What all gates of a loop's first step read where those of others read the state before; kNoValue where they differ.
  ValueId first_state(const RecurrentStep& step, const Roles& roles, const Shape& shape) const {
    ValueId first = step.state_before;
    for (size_t gate = 0; gate < roles.size(); ++gate)
      for (size_t at = 0; at < roles[gate].size(); ++at) {
        if (roles[gate][at] != TermRole::kState) continue;
        const ValueId own = step.gates[gate][at].value;
        if (first == kNoValue) first = own;
        if (own != first) return kNoValue;
      }
    return first != kNoValue && type(first).shape == shape ? first : kNoValue;
  }

  // Something of all of a step's elements comes for each step, to every gate that takes an input.
  bool is_worth_it(const Chain& chain) const {
    if (std::ssize(chain.states) < kFewestSteps) return false;
    const RecurrentStep& step = steps_.at(chain.states[0]);
    const Shape& shape = type(chain.states[0]).shape;
    const auto is_full = [&](const GateTerm& term) {
      return term.role == TermRole::kSlice && type(term.addend.value).shape[0] == shape[0] &&
             term.addend.columns == shape[1];
    };
    const auto fits = [&](const GateTerm& term) {
      return term.role != TermRole::kState || term.addend.columns == shape[1];
    };
    for (size_t at = 0; at < step.gates.size(); ++at) {
      const GateTerms gate = gate_of(step, chain.roles, at);
      if (!std::all_of(gate.begin(), gate.end(), fits)) return false;
      if (step.takes_input(at) ? std::none_of(gate.begin(), gate.end(), is_full)
                               : !is_product_and_vector(gate, shape[1]))
        return false;
    }
    return true;
  }

  bool is_product_and_vector(const GateTerms& gate, int64_t columns) const {
    const auto is_one = [&](const GateTerm& term) { return is_vector(rewriter_, term, columns); };
    return gate.size() == 1 || (gate.size() == 2 && std::any_of(gate.begin(), gate.end(), is_one));
  }

  static GateTerms gate_of(const RecurrentStep& step, const Roles& roles, size_t gate) {
    GateTerms terms;
    for (size_t at = 0; at < roles[gate].size(); ++at) terms.push_back({step.gates[gate][at], roles[gate][at]});
    return terms;
  }

  void add_cell(ValueId cell, size_t chain, size_t at) {
    cells_[cell] = {chain, at};
    // Its own step reads it, and the next one.
    if (at + 1 < chains_[chain].states.size() && reads_.of(cell) > 2) chains_[chain].has_cells = true;
  }

  // --- What takes their place ---

  // Whether it did: cells that only their loop reads are not stored.
  bool replace_cell(ValueId cell) {
    const auto [place, at] = cells_.at(cell);
    const Chain& chain = chains_[place];
    const bool is_last = at + 1 == chain.states.size();
    if (chain.sequence == kNoValue || (!chain.has_cells && !is_last)) return false;
    rewriter_.replace(cell,
                      chain.has_cells ? emit_slice(rewriter_, chain.cells, static_cast<int64_t>(at)) : chain.last_cell,
                      NumericTag::kReassociates);
    return true;
  }

  // A step's terms by what becomes of them.
  struct Sorted {
    std::vector<GateTerms> inputs;
    std::vector<GateTerm> products;               // with the state
    std::vector<std::optional<GateTerm>> biases;  // of those, if any, where a gate scales one with its product
  };

  static std::optional<GateTerm> take(GateTerms& gate, GateTerms::iterator place) {
    if (place == gate.end()) return std::nullopt;
    const GateTerm term = *place;
    gate.erase(place);
    return term;
  }

  Sorted sorted(const RecurrentStep& step, const Roles& roles, int64_t hidden) const {
    const auto is_product = [](const GateTerm& term) { return term.role == TermRole::kState; };
    const auto is_bias = [&](const GateTerm& term) { return is_vector(rewriter_, term, hidden); };
    Sorted terms;
    const bool has_bias = !step.takes_input(step.gates.size() - 1) && roles.back().size() == 2;
    for (size_t at = 0; at < step.gates.size(); ++at) {
      GateTerms gate = gate_of(step, roles, at);
      if (step.takes_state(at)) {
        const auto product = std::find_if(gate.begin(), gate.end(), is_product);
        // A layer's bias stands behind its product. The scaled gate has no other.
        const auto behind = step.takes_input(at) ? product - gate.begin() : 0;
        terms.products.push_back(*take(gate, product));
        if (has_bias) terms.biases.push_back(take(gate, std::find_if(gate.begin() + behind, gate.end(), is_bias)));
      }
      if (step.takes_input(at)) terms.inputs.push_back(std::move(gate));
    }
    return terms;
  }

  // Nothing where what the step reads has been rewritten since the loop was found: the next walk finds it again.
  void emit(Chain& chain, const std::optional<RecurrentStep>& first, TensorType type) {
    if (!first || !is_as_found(*first, chain.roles)) return;
    const ValueId state = first_state(*first, chain.roles, type.shape);
    if (state == kNoValue) return;
    const auto steps = static_cast<int64_t>(chain.states.size());
    const Sorted terms = sorted(*first, chain.roles, type.shape[1]);
    JoinedGates gates(rewriter_, steps, type.shape[1]);
    const ValueId products = gates.sums(terms.inputs), weight = gates.weight(terms.products);
    type.shape.insert(type.shape.begin(), steps);
    type.strides = contiguous_strides(type.shape);
    type.offset = 0;
    std::vector<NamedArgument> arguments = {{"products", ValueRef{products}},
                                            {"first", ValueRef{state}},
                                            {"weight", ValueRef{weight}},
                                            {"kind", first->kind}};
    if (!terms.biases.empty()) arguments.push_back({"bias", ValueRef{gates.vectors(terms.biases)}});
    if (first->cell == kNoValue) {
      chain.sequence = rewriter_.emit("kw.rnn_steps.default", std::move(arguments), std::move(type), "states");
      return;
    }
    arguments.push_back({"cell", ValueRef{first->cell_before}});
    TensorType cell = rewriter_.type(first->cell_before);
    cell.strides = contiguous_strides(cell.shape);
    cell.offset = 0;
    std::vector<std::pair<std::string, TensorType>> made = {{"states", type}, {"last_cell", std::move(cell)}};
    if (chain.has_cells) made.emplace_back("cells", std::move(type));
    const auto results = rewriter_.emit_all("kw.rnn_steps.default", std::move(arguments), std::move(made));
    chain.sequence = results[0];
    chain.last_cell = results[1];
    if (chain.has_cells) chain.cells = results[2];
  }

  static bool is_as_found(const RecurrentStep& step, const Roles& roles) {
    return std::equal(step.gates.begin(), step.gates.end(), roles.begin(), roles.end(),
                      [](const auto& gate, const auto& own) { return gate.size() == own.size(); });
  }

  Rewriter rewriter_;
  Reads reads_;                             // of the values of the graph as it was
  std::map<ValueId, RecurrentStep> steps_;  // by its result
  std::map<ValueId, size_t> chain_of_;
  std::vector<Chain> chains_;
  std::map<ValueId, std::pair<size_t, size_t>> places_;  // of a state: its chain, and which step made it
  std::map<ValueId, std::pair<size_t, size_t>> cells_;   // the same of a cell
};

}  // namespace

RewriteCounts recurrences(Graph& graph) { return Recurrences(graph).run(); }

}  // namespace kw
