#include "plan/bags.hpp"

#include <limits>

#include "plan/op_table.hpp"

namespace kw::plan {

std::optional<Bags> bags_of(const Graph& graph, const Node& node) {
  if (rule_of(node) != OpRule::kBag) return std::nullopt;
  Bags bags;
  bags.table = node.value("weight");
  bags.indices = node.value("indices");
  bags.offsets = node.value("offsets");
  bags.weights = node.value("per_sample_weights");
  if (bags.table == kNoValue || bags.indices == kNoValue || bags.offsets == kNoValue || node.results.empty() ||
      node.results[0] == kNoValue)
    return std::nullopt;
  const int64_t mode = node.integer("mode", 0);
  if (mode < 0 || mode > 2 || (mode != 0 && bags.weights != kNoValue)) return std::nullopt;
  bags.mode = mode == 0 ? Bags::Mode::kSum : mode == 1 ? Bags::Mode::kMean : Bags::Mode::kMax;
  const TensorType &table = graph.type(bags.table), &indices = graph.type(bags.indices),
                   &offsets = graph.type(bags.offsets), &result = graph.type(node.results[0]);
  if (!is_floating(table.dtype) || !is_integral(indices.dtype) || !is_integral(offsets.dtype) ||
      indices.dtype == DType::b1)
    return std::nullopt;
  if (table.rank() != 2 || indices.rank() != 1 || offsets.rank() != 1 || result.rank() != 2 ||
      result.dtype != table.dtype)
    return std::nullopt;
  if (bags.weights != kNoValue &&
      (graph.type(bags.weights).rank() != 1 || graph.type(bags.weights).shape != indices.shape))
    return std::nullopt;
  bags.count = result.shape[0];
  bags.entries = indices.shape[0];
  bags.rows = table.shape[0];
  bags.padding = node.integer("padding_idx", -1);
  bags.has_last_offset = node.boolean("include_last_offset", false);
  if (bags.entries < 2 || bags.entries > std::numeric_limits<int32_t>::max() ||
      offsets.shape[0] != bags.count + (bags.has_last_offset ? 1 : 0))
    return std::nullopt;
  return bags;
}

BagElement bag_element_at(const Bags& bags, const Coords& point, Lookups& lookups) {
  lookups.guards.clear();
  BagElement element;
  Lookup lookup;
  lookup.kind = LookupKind::kElement;
  lookup.extent = bags.entries + 1;
  lookup.index = bags.offsets;
  lookup.coords = {point[0]};
  element.start = lookups.add(lookup);
  lookup.coords[0].constant += 1;
  if (!bags.has_last_offset) {
    lookup.kind = LookupKind::kElementOr;
    lookup.shift = bags.entries;
    lookups.guards = {{lookup.coords[0], 0, bags.count}};
  }
  element.end = bags.count == 1 && !bags.has_last_offset ? Index(bags.entries) : lookups.add(lookup);
  element.place = add(element.start, point[2], lookups.ranges());
  const Index beyond = add(element.place, element.end * -1, lookups.ranges());
  element.guards = {{beyond, std::numeric_limits<int64_t>::min(), 0}};
  Lookup row;
  row.kind = LookupKind::kElement;
  row.extent = bags.rows;
  row.index = bags.indices;
  row.coords = {element.place};
  lookups.guards = element.guards;
  element.row = lookups.add(std::move(row));
  lookups.guards.clear();
  return element;
}

std::vector<Pull> BagElement::pulls(const Bags& bags, const Coords& point) const {
  std::vector<Pull> pulls = {
      {bags.table, {row, point[1]}, guards}, {bags.indices, {place}, guards}, {bags.offsets, {point[0]}, {}}};
  if (bags.weights != kNoValue) pulls.push_back({bags.weights, {place}, guards});
  return pulls;
}

}  // namespace kw::plan
