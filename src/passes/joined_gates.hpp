// What the gates of all steps of a loop add up, gate after gate in one tensor.
#pragma once

#include <vector>

#include "passes/recurrent_steps.hpp"

namespace kw {

// What an addend's value is from one step to the next.
enum class TermRole { kSame, kSlice, kState };

// An addend of a loop's first step.
struct GateTerm {
  Addend addend;
  TermRole role = TermRole::kSame;
};
using GateTerms = std::vector<GateTerm>;

// Is it so many elements, the same in all steps and samples?
bool is_vector(const Rewriter& rewriter, const GateTerm& term, int64_t columns);

class JoinedGates {
 public:
  JoinedGates(Rewriter& rewriter, int64_t steps, int64_t hidden)
      : rewriter_(rewriter), steps_(steps), hidden_(hidden) {}

  // The sums of all gates, for all steps: [steps, batch, rows]. Each gate has a slice of that size.
  ValueId sums(const std::vector<GateTerms>& gates);
  // The matrices of products, as a linear layer's weight.
  ValueId weight(const GateTerms& terms);
  // Vectors, end to end; of nullopt zeros. One is no nullopt.
  ValueId vectors(const std::vector<std::optional<GateTerm>>& terms);

 private:
  // Terms are one of each gate.
  const TensorType& type(ValueId id) const { return rewriter_.type(id); }
  ValueId sums_of_gates(const std::vector<GateTerms>& gates);
  ValueId emit(std::string op, std::vector<NamedArgument> arguments);
  ValueId added(ValueId sum, ValueId value);
  ValueId concatenated(std::vector<ValueId> parts, int64_t dim);
  ValueId zeros(const TensorType& like);
  ValueId product(ValueId input, ValueId weight);
  ValueId columns_of(ValueId value, int64_t begin, int64_t count);
  ValueId rows_of(const Addend& addend, int64_t begin, int64_t count);
  ValueId rows(ValueId matrix, int64_t begin, int64_t count);
  ValueId signed_as(const Addend& addend, ValueId value);
  ValueId of_all_steps(const GateTerm& term);
  ValueId value_of(const GateTerm& term, int64_t begin, int64_t count);
  bool are_consecutive(const GateTerms& terms) const;
  bool can_join(const GateTerms& terms) const;
  ValueId joined(const GateTerms& terms);
  ValueId joined_layers(const GateTerms& terms);

  Rewriter& rewriter_;
  int64_t steps_, hidden_;
};

}  // namespace kw
