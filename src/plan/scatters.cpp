#include "plan/scatters.hpp"

#include <algorithm>

#include "ir/memory.hpp"
#include "plan/domain.hpp"

namespace kw::plan {

namespace {

const ValueList* indices_of(const Node& node) {
  const Argument* indices = node.find("indices");
  return indices ? std::get_if<ValueList>(indices) : nullptr;
}

// Where the dimensions that the indices broadcast to stand in x[i, :, j], and where the others do.
struct Indexed {
  std::vector<size_t> dims;
  Shape shape;
  size_t first = 0;
};

std::optional<Indexed> indexed_of(const Graph& graph, const Node& node) {
  const ValueList* list = indices_of(node);
  if (!list || static_cast<int64_t>(list->ids.size()) > graph.type(node.value("self")).rank()) return std::nullopt;
  Indexed indexed;
  for (size_t dim = 0; dim < list->ids.size(); ++dim) {
    if (list->ids[dim] == kNoValue) continue;
    if (!is_index(graph, list->ids[dim])) return std::nullopt;
    indexed.dims.push_back(dim);
    const Shape& shape = graph.type(list->ids[dim]).shape;
    if (shape.size() > indexed.shape.size())
      indexed.shape.insert(indexed.shape.begin(), shape.size() - indexed.shape.size(), 1);
    for (size_t at = 0; at < shape.size(); ++at) {
      int64_t& size = indexed.shape[indexed.shape.size() - shape.size() + at];
      if (size == 1) size = shape[at];
    }
  }
  if (indexed.dims.empty()) return std::nullopt;
  const bool neighbours = indexed.dims.back() - indexed.dims.front() + 1 == indexed.dims.size();
  indexed.first = neighbours ? indexed.dims.front() : 0;
  return indexed;
}

std::optional<ReduceOp> named_fold(const std::string& name) {
  if (name == "sum" || name == "add") return ReduceOp::kSum;
  if (name == "prod" || name == "multiply") return ReduceOp::kProd;
  if (name == "amax") return ReduceOp::kMax;
  if (name == "amin") return ReduceOp::kMin;
  return std::nullopt;
}

// A GPU exchanges no single bytes.
bool is_foldable(DType dtype) { return size_of(dtype) >= 2; }

struct Reader {
  const Graph& graph;
  const Node& node;
  ScatterSpec spec;

  const TensorType& type(ValueId value) const { return graph.type(value); }
  bool has_dim(std::string_view index) const {
    return type(spec.into).rank() > 0 && is_index(graph, node.value(index));
  }

  // One index for each slice along `dim`.
  bool slices() {
    spec.source = node.value("source");
    if (spec.source == kNoValue || !has_dim("index") || type(node.value("index")).rank() > 1 ||
        type(spec.source).rank() != type(spec.into).rank())
      return false;
    spec.domain = type(spec.source).shape;
    return true;
  }

  // One index for each element.
  bool elements() {
    if (!has_dim("index") || type(node.value("index")).rank() != type(spec.into).rank()) return false;
    spec.domain = type(node.value("index")).shape;
    spec.source = node.value("src");
    if (spec.source == kNoValue) {
      if (!node.find("value") || node.value("value") != kNoValue) return false;
      spec.number = node.number("value", 0.0);
      return true;
    }
    return type(spec.source).rank() == type(spec.into).rank();
  }

  bool put() {
    const auto indexed = indexed_of(graph, node);
    spec.source = node.value("values");
    if (!indexed || spec.source == kNoValue) return false;
    const Shape& shape = type(spec.into).shape;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      if (std::find(indexed->dims.begin(), indexed->dims.end(), dim) == indexed->dims.end())
        spec.domain.push_back(shape[dim]);
    spec.domain.insert(spec.domain.begin() + static_cast<std::ptrdiff_t>(indexed->first), indexed->shape.begin(),
                       indexed->shape.end());
    return type(spec.source).shape.size() <= spec.domain.size();
  }

  bool read() {
    spec.into = node.value("self");
    if (spec.into == kNoValue) return false;
    if (node.find("reduce") && !(spec.fold = named_fold(node.text("reduce")))) return false;
    switch (rule_of(node)) {
      case OpRule::kIndexSum:
        spec.fold = ReduceOp::kSum;
        spec.alpha = node.number("alpha", 1.0);
        return slices();
      case OpRule::kScatterSum: spec.fold = ReduceOp::kSum; return elements();
      case OpRule::kScatterElements: return elements();
      case OpRule::kScatterFold: return spec.fold && node.boolean("include_self", true) && elements();
      case OpRule::kIndexFold: return spec.fold && node.boolean("include_self", true) && slices();
      case OpRule::kIndexPut:
        if (node.boolean("accumulate", false)) spec.fold = ReduceOp::kSum;
        return put();
      case OpRule::kSliceScatter:
      case OpRule::kSelectScatter:
        spec.source = node.value("src");
        spec.domain = type(spec.source).shape;
        return true;
      default: return false;
    }
  }
};

// Of slice_scatter and select_scatter: where along `dim` the source lies. One with a step is no scatter of ours.
struct Slice {
  int64_t dim = 0, start = 0;
};

Slice slice_of(const Graph& graph, const Node& node) {
  const bool selects = rule_of(node) == OpRule::kSelectScatter;
  const Shape& shape = graph.type(node.value("self")).shape;
  Slice slice;
  slice.dim = wrap_dim(node.integer("dim", 0), static_cast<int64_t>(shape.size()));
  const int64_t size = shape[static_cast<size_t>(slice.dim)], start = node.integer(selects ? "index" : "start", 0);
  slice.start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  return slice;
}

}  // namespace

std::optional<ScatterSpec> scatter_spec(const Graph& graph, NodeId id) {
  Reader reader{graph, graph.nodes[id], {}};
  if (!reader.read()) return std::nullopt;
  const ScatterSpec& spec = reader.spec;
  const TensorType& result = graph.type(graph.nodes[id].results[0]);
  if (spec.source != kNoValue && graph.type(spec.source).dtype != result.dtype) return std::nullopt;
  if (!result.is_dense() || (spec.fold && !is_foldable(result.dtype))) return std::nullopt;
  return std::move(reader.spec);
}

bool is_slice(const Node& node) {
  return rule_of(node) == OpRule::kSliceScatter || rule_of(node) == OpRule::kSelectScatter;
}

std::optional<ScatterPoint> scatter_point(const Graph& graph, NodeId id, const ScatterSpec& spec, const Coords& point,
                                          Lookups& lookups) {
  const Node& node = graph.nodes[id];
  const Shape& shape = graph.type(spec.into).shape;
  ScatterPoint result;
  if (spec.source != kNoValue) result.operands.push_back({spec.source, point, {}});
  if (is_slice(node)) {
    const Slice slice = slice_of(graph, node);
    result.place = point;
    if (point.size() < shape.size()) result.place.insert(result.place.begin() + slice.dim, Index(0));
    Index& along = result.place[static_cast<size_t>(slice.dim)];
    along = along + Index(slice.start);
    return result;
  }
  const auto look_up = [&](LookupKind kind, ValueId index, Coords coords, size_t dim) {
    Lookup lookup;
    lookup.kind = kind;
    lookup.extent = shape[dim];
    lookup.index = index;
    lookup.coords = coords;
    result.operands.push_back({index, std::move(coords), {}});
    return lookups.add(std::move(lookup));
  };
  if (const auto indexed = indices_of(node) ? indexed_of(graph, node) : std::nullopt) {
    if (spec.source != kNoValue)
      result.operands[0].coords = broadcast(point, spec.domain, graph.type(spec.source).shape);
    const auto begin = point.begin() + static_cast<std::ptrdiff_t>(indexed->first),
               end = begin + static_cast<std::ptrdiff_t>(indexed->shape.size());
    const Coords place(begin, end);
    Coords kept(point.begin(), begin);
    kept.insert(kept.end(), end, point.end());
    size_t next = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      if (std::find(indexed->dims.begin(), indexed->dims.end(), dim) == indexed->dims.end()) {
        result.place.push_back(kept[next++]);
        continue;
      }
      const ValueId index = indices_of(node)->ids[dim];
      result.place.push_back(
          look_up(LookupKind::kWrappedElement, index, broadcast(place, indexed->shape, graph.type(index).shape), dim));
    }
    return result;
  }
  const ValueId index = node.value("index");
  const auto dim = static_cast<size_t>(wrap_dim(node.integer("dim", 0), static_cast<int64_t>(shape.size())));
  const auto rank = graph.type(index).rank();
  const bool by_slice = rule_of(node) == OpRule::kIndexSum || rule_of(node) == OpRule::kIndexFold;
  result.place = point;
  result.place[dim] = look_up(LookupKind::kElement, index,
                              !by_slice   ? point
                              : rank == 0 ? Coords{}
                                          : Coords{point[dim]},
                              dim);
  return result;
}

bool owns_destination(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph;
  const auto spec = scatter_spec(graph, id);
  if (!spec) return false;
  const ValueId into = spec->into;
  const NodeId producer = graph.values[into].producer;
  if (facts.roots[into] != into || facts.escapes[into] || facts.readers[into] != std::vector<NodeId>{id}) return false;
  if (producer == kNoNode) {
    const std::map<ValueId, ValueId> updates = updates_of(graph);
    if (const auto update = updates.find(graph.nodes[id].results[0]); update == updates.end() || update->second != into)
      return false;
  } else {
    const NodeKind made_by = facts.kinds[producer];
    if (made_by == NodeKind::kExtern || made_by == NodeKind::kView || may_be_its_operand(graph.nodes[producer]))
      return false;
  }
  int reads = 0;
  for_each_operand(graph.nodes[id], [&](ValueId operand) { reads += facts.roots[operand] == into; });
  return reads == 1 && graph.type(into) == graph.type(graph.nodes[id].results[0]);
}

}  // namespace kw::plan
