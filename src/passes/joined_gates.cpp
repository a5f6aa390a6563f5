#include "passes/joined_gates.hpp"

#include <algorithm>

#include "passes/slices.hpp"

namespace kw {

namespace {

// One term of each gate; nullopt of a gate that has fewer.
std::vector<std::vector<std::optional<GateTerm>>> by_place(const std::vector<GateTerms>& gates) {
  std::vector<std::vector<std::optional<GateTerm>>> places;
  for (size_t gate = 0; gate < gates.size(); ++gate)
    for (size_t at = 0; at < gates[gate].size(); ++at) {
      if (at == places.size()) places.emplace_back(gates.size());
      places[at][gate] = gates[gate][at];
    }
  return places;
}

GateTerms given(const std::vector<std::optional<GateTerm>>& terms) {
  GateTerms some;
  for (const auto& term : terms)
    if (term) some.push_back(*term);
  return some;
}

}  // namespace

bool is_vector(const Rewriter& rewriter, const GateTerm& term, int64_t columns) {
  return term.role == TermRole::kSame && term.addend.matrix == kNoValue &&
         rewriter.type(term.addend.value).rank() == 1 && term.addend.columns == columns;
}

ValueId JoinedGates::sums(const std::vector<GateTerms>& gates) {
  // Vectors apart: a gate may have fewer than others.
  std::vector<GateTerms> wide(gates.size()), narrow(gates.size());
  for (size_t at = 0; at < gates.size(); ++at)
    for (const GateTerm& term : gates[at]) (is_vector(rewriter_, term, hidden_) ? narrow : wide)[at].push_back(term);
  const auto places = by_place(wide);
  const auto can_be_one = [&](const auto& terms) {
    return given(terms).size() == gates.size() && can_join(given(terms));
  };
  if (!std::all_of(places.begin(), places.end(), can_be_one)) return sums_of_gates(gates);
  ValueId sum = kNoValue;
  for (const auto& terms : places) sum = added(sum, joined(given(terms)));
  for (const auto& terms : by_place(narrow)) sum = added(sum, vectors(terms));
  return sum;
}

// Each by itself.
ValueId JoinedGates::sums_of_gates(const std::vector<GateTerms>& gates) {
  std::vector<ValueId> sums;
  for (const GateTerms& gate : gates) {
    ValueId sum = kNoValue;
    for (const GateTerm& term : gate) sum = added(sum, value_of(term, term.addend.begin, term.addend.columns));
    sums.push_back(sum);
  }
  return concatenated(std::move(sums), 2);
}

ValueId JoinedGates::weight(const GateTerms& terms) {
  if (are_consecutive(terms)) return rows_of(terms[0].addend, terms[0].addend.begin, hidden_ * std::ssize(terms));
  std::vector<ValueId> parts;
  for (const GateTerm& term : terms) parts.push_back(rows_of(term.addend, term.addend.begin, hidden_));
  return concatenated(std::move(parts), 0);
}

ValueId JoinedGates::vectors(const std::vector<std::optional<GateTerm>>& terms) {
  const GateTerms some = given(terms);
  const Addend& first = some[0].addend;
  if (some.size() == terms.size() && are_consecutive(some))
    return signed_as(first, columns_of(first.value, first.begin, hidden_ * std::ssize(terms)));
  const TensorType like = type(first.value);
  std::vector<ValueId> parts;
  for (const auto& term : terms)
    parts.push_back(term ? signed_as(term->addend, columns_of(term->addend.value, term->addend.begin, hidden_))
                         : zeros(like));
  return concatenated(std::move(parts), 0);
}

ValueId JoinedGates::emit(std::string op, std::vector<NamedArgument> arguments) {
  return rewriter_.emit(std::move(op), std::move(arguments));
}

ValueId JoinedGates::added(ValueId sum, ValueId value) {
  if (sum == kNoValue) return value;
  return emit("aten.add.Tensor", {{"self", ValueRef{sum}}, {"other", ValueRef{value}}});
}

ValueId JoinedGates::concatenated(std::vector<ValueId> parts, int64_t dim) {
  return emit("aten.cat.default", {{"tensors", ValueList{std::move(parts)}}, {"dim", dim}});
}

// A gate's.
ValueId JoinedGates::zeros(const TensorType& like) {
  TensorType made = like;
  made.shape = {hidden_};
  made.strides = {1};
  made.offset = 0;
  return rewriter_.emit(
      "aten.full.default",
      {{"size", made.shape}, {"fill_value", 0.0}, {"dtype", made.dtype}, {"device", Keyword{"device", made.device}}},
      made);
}

ValueId JoinedGates::product(ValueId input, ValueId weight) {
  return emit("aten.linear.default", {{"input", ValueRef{input}}, {"weight", ValueRef{weight}}});
}

ValueId JoinedGates::columns_of(ValueId value, int64_t begin, int64_t count) {
  const int64_t rank = type(value).rank();
  if (rank == 0 || count == type(value).shape.back()) return value;
  return emit("aten.slice.Tensor",
              {{"self", ValueRef{value}}, {"dim", rank - 1}, {"start", begin}, {"end", begin + count}});
}

// Of an addend's matrix what makes some columns of the product, as a linear layer's weight.
ValueId JoinedGates::rows_of(const Addend& addend, int64_t begin, int64_t count) {
  ValueId matrix = addend.matrix;
  if (!addend.transposed) matrix = emit_permuted(rewriter_, matrix, {1, 0});
  matrix = columns_of(matrix, addend.from, addend.depth);
  return signed_as(addend, rows(matrix, begin, count));
}

ValueId JoinedGates::rows(ValueId matrix, int64_t begin, int64_t count) {
  if (count == type(matrix).shape[0]) return matrix;
  return emit("aten.slice.Tensor",
              {{"self", ValueRef{matrix}}, {"dim", int64_t{0}}, {"start", begin}, {"end", begin + count}});
}

ValueId JoinedGates::signed_as(const Addend& addend, ValueId value) {
  return addend.negated ? emit("aten.neg.default", {{"self", ValueRef{value}}}) : value;
}

ValueId JoinedGates::of_all_steps(const GateTerm& term) {
  const ValueId value = term.addend.value;
  return term.role == TermRole::kSlice ? emit_slices(rewriter_, *slice_of(rewriter_, value), steps_) : value;
}

ValueId JoinedGates::value_of(const GateTerm& term, int64_t begin, int64_t count) {
  const ValueId all = of_all_steps(term);
  if (term.addend.matrix == kNoValue) return signed_as(term.addend, columns_of(all, begin, count));
  return product(all, rows_of(term.addend, begin, count));
}

// Columns of one value or product, gate after gate?
bool JoinedGates::are_consecutive(const GateTerms& terms) const {
  Addend next = terms[0].addend;
  for (const GateTerm& term : terms) {
    if (term.role != terms[0].role || term.addend.value != next.value || !term.addend.is_like(next) ||
        (terms.size() > 1 && next.columns != hidden_))
      return false;
    next.begin += hidden_;
  }
  return true;
}

bool JoinedGates::can_join(const GateTerms& terms) const {
  const GateTerm& first = terms[0];
  const auto is_product = [](const GateTerm& term) { return term.addend.matrix != kNoValue; };
  const auto is_row_of = [&](const Shape& shape, const Shape& other) {
    return !shape.empty() && shape.size() == other.size() && std::equal(shape.begin(), shape.end() - 1, other.begin());
  };
  return are_consecutive(terms) || std::all_of(terms.begin(), terms.end(), [&](const GateTerm& term) {
           return term.role == first.role && term.addend.columns == hidden_ && is_product(term) == is_product(first) &&
                  (is_product(term) ? term.addend.value == first.addend.value
                                    : is_row_of(type(term.addend.value).shape, type(first.addend.value).shape));
         });
}

ValueId JoinedGates::joined(const GateTerms& terms) {
  const GateTerm& first = terms[0];
  if (terms.size() == 1) return value_of(first, first.addend.begin, first.addend.columns);
  if (are_consecutive(terms)) return value_of(first, first.addend.begin, hidden_ * std::ssize(terms));
  if (first.addend.matrix != kNoValue) {
    const ValueId all = of_all_steps(first);
    return product(all, weight(terms));
  }
  if (const ValueId layer = joined_layers(terms); layer != kNoValue) return layer;
  std::vector<ValueId> parts;
  for (const GateTerm& term : terms) parts.push_back(value_of(term, term.addend.begin, hidden_));
  return concatenated(parts, type(parts[0]).rank() - 1);
}

// Where the terms are slices of linear layers of one input, or of columns of theirs, one layer in their place; else
// kNoValue.
ValueId JoinedGates::joined_layers(const GateTerms& terms) {
  if (terms[0].role != TermRole::kSlice) return kNoValue;
  Slice slice = *slice_of(rewriter_, terms[0].addend.value);
  std::vector<ValueId> weights, biases;
  ValueId input = kNoValue;
  for (const GateTerm& term : terms) {
    const Slice own = *slice_of(rewriter_, term.addend.value);
    const Node* layer = rewriter_.producer(own.whole);
    if (layer == nullptr || layer->op != "aten.linear.default" || own.dim != slice.dim || own.index != slice.index ||
        own.dim == 2 || (input != kNoValue && layer->value("input") != input))
      return kNoValue;
    input = layer->value("input");
    const ValueId weight = layer->value("weight"), bias = layer->value("bias");
    weights.push_back(signed_as(term.addend, rows(weight, term.addend.begin, hidden_)));
    if (bias != kNoValue) biases.push_back(signed_as(term.addend, columns_of(bias, term.addend.begin, hidden_)));
  }
  if (!biases.empty() && biases.size() != weights.size()) return kNoValue;
  std::vector<NamedArgument> arguments = {{"input", ValueRef{input}},
                                          {"weight", ValueRef{concatenated(std::move(weights), 0)}}};
  if (!biases.empty()) arguments.push_back({"bias", ValueRef{concatenated(std::move(biases), 0)}});
  slice.whole = emit("aten.linear.default", std::move(arguments));
  return emit_slices(rewriter_, slice, steps_);
}

}  // namespace kw
