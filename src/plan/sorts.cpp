#include "plan/sorts.hpp"

#include "ir/op_registry.hpp"
#include "plan/op_table.hpp"

namespace kw::plan {

std::optional<SortSpec> sort_spec(const Graph& graph, const Node& node) {
  const OpRule rule = rule_of(node);
  const bool picks = rule == OpRule::kTopK;
  if ((!picks && rule != OpRule::kSorted) || node.results.size() != 2) return std::nullopt;
  SortSpec spec;
  spec.operand = node.value("self");
  if (spec.operand == kNoValue) return std::nullopt;
  const TensorType& type = graph.type(spec.operand);
  if (type.rank() == 0 || type.elements() == 0 || is_eight_bit_float(type.dtype)) return std::nullopt;
  spec.dim = wrap_dim(node.integer("dim", -1), type.rank());
  if (spec.dim < 0 || spec.dim >= type.rank()) return std::nullopt;
  spec.length = type.shape[spec.dim];
  spec.first = picks ? node.integer("k", 1) : spec.length;
  spec.descending = node.boolean(picks ? "largest" : "descending", picks);
  spec.stable = node.boolean("stable", false);
  if (spec.first < 1 || spec.first > spec.length) return std::nullopt;
  return spec;
}

bool takes_rows(const SortForms& forms, const SortSpec& spec) {
  const bool picks = spec.first < spec.length && spec.first <= forms.few;
  return spec.length <= (picks ? forms.longest_of_few : forms.longest);
}

bool tells_places(const SortForms& forms, const Graph& graph, const SortSpec& spec) {
  return (forms.places_of_wide || size_of(graph.type(spec.operand).dtype) < 8) &&
         (forms.places_of_largest || spec.first == spec.length);
}

}  // namespace kw::plan
