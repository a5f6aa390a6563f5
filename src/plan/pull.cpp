#include "plan/pull.hpp"

#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace kw::plan {

namespace {

// One call of pull(): the node, the wanted element and what the handlers share.
struct Request {
  const Graph& graph;
  const Node& node;
  int result;
  const Coords& coords;
  Lookups& lookups;

  Extents extents() const { return lookups.extents(); }

  const Shape& shape_of(ValueId value) const { return graph.type(value).shape; }
  const Shape& result_shape() const { return shape_of(node.results[result]); }
  ValueId self() const { return node.value("self"); }
  int64_t rank() const { return static_cast<int64_t>(shape_of(self()).size()); }
  int64_t dim(std::string_view name, int64_t fallback, int64_t rank_of) const { return wrap_dim(node.integer(name, fallback), rank_of); }
};

using Pulls = std::optional<std::vector<Pull>>;

Pulls one(const Request& request, std::optional<Coords> coords) {
  if (!coords) return std::nullopt;
  return std::vector<Pull>{{request.self(), std::move(*coords), {}}};
}

Pulls pull_reshape(const Request& request) {
  return one(request, reshape(request.coords, request.result_shape(), request.shape_of(request.self()), request.extents()));
}

Pulls pull_broadcast(const Request& request) {
  return one(request, broadcast(request.coords, request.result_shape(), request.shape_of(request.self())));
}

// result dimension i shows operand dimension order[i].
std::optional<std::vector<int64_t>> permutation_of(const Request& request) {
  const int64_t rank = request.rank();
  const std::string_view base = base_name(request.node);
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (base == "permute") {
    order = request.node.integers("dims");
    for (auto& dim : order) dim = wrap_dim(dim, rank);
  } else if (base == "t" || base == "numpy_T") {
    std::reverse(order.begin(), order.end());
  } else if (base == "mT") {
    if (rank < 2) return std::nullopt;
    std::swap(order[rank - 1], order[rank - 2]);
  } else if (rank > 0) {
    const bool swapaxes = base == "swapaxes";
    std::swap(order[request.dim(swapaxes ? "axis0" : "dim0", 0, rank)], order[request.dim(swapaxes ? "axis1" : "dim1", 0, rank)]);
  }
  if (static_cast<int64_t>(order.size()) != rank) return std::nullopt;
  return order;
}

Pulls pull_permute(const Request& request) {
  const auto order = permutation_of(request);
  if (!order) return std::nullopt;
  Coords coords(order->size());
  for (size_t i = 0; i < order->size(); ++i) coords[(*order)[i]] = request.coords[i];
  return one(request, std::move(coords));
}

Pulls pull_slice(const Request& request) {
  const int64_t dim = request.dim("dim", 0, request.rank());
  const int64_t size = request.shape_of(request.self())[dim];
  int64_t start = request.node.integer("start", 0);
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  Coords coords = request.coords;
  coords[dim] = scale(coords[dim], request.node.integer("step", 1), request.extents());
  coords[dim].constant += start;
  return one(request, std::move(coords));
}

Pulls pull_select(const Request& request) {
  const int64_t dim = request.dim("dim", 0, request.rank());
  int64_t index = request.node.integer("index", 0);
  if (index < 0) index += request.shape_of(request.self())[dim];
  Coords coords = request.coords;
  coords.insert(coords.begin() + dim, constant_index(index));
  return one(request, std::move(coords));
}

// Results of split, chunk and split_with_sizes lie behind each other along `dim`.
Pulls pull_split(const Request& request) {
  const int64_t dim = request.dim("dim", 0, request.rank());
  Coords coords = request.coords;
  for (int earlier = 0; earlier < request.result; ++earlier) {
    if (request.node.results[earlier] == kNoValue) return std::nullopt;
    coords[dim].constant += request.shape_of(request.node.results[earlier])[dim];
  }
  return one(request, std::move(coords));
}

Pulls pull_unbind(const Request& request) {
  Coords coords = request.coords;
  coords.insert(coords.begin() + request.dim("dim", 0, request.rank()), constant_index(request.result));
  return one(request, std::move(coords));
}

Pulls pull_cat(const Request& request) {
  const auto* list = std::get_if<ValueList>(request.node.find("tensors"));
  if (!list) return std::nullopt;
  const bool stack = base_name(request.node) == "stack";
  const int64_t dim = request.dim("dim", 0, static_cast<int64_t>(request.result_shape().size()));
  std::vector<Pull> pulls;
  int64_t offset = 0;
  for (ValueId operand : list->ids) {
    const int64_t size = stack ? 1 : request.shape_of(operand)[dim];
    Pull pull{operand, request.coords, {}};
    const Range range = range_of(request.coords[dim], request.extents());
    if (range.low < offset || range.high >= offset + size) pull.guards.push_back({request.coords[dim], offset, offset + size});
    if (stack) pull.coords.erase(pull.coords.begin() + dim);
    else pull.coords[dim].constant -= offset;
    offset += size;
    pulls.push_back(std::move(pull));
  }
  return pulls;
}

Pulls pull_pad(const Request& request) {
  const IntList pad = request.node.integers("pad");
  const Shape& shape = request.shape_of(request.self());
  Pull pull{request.self(), request.coords, {}};
  for (size_t pair = 0; pair * 2 + 1 < pad.size(); ++pair) {
    const size_t dim = shape.size() - 1 - pair;
    const int64_t before = pad[pair * 2], after = pad[pair * 2 + 1];
    pull.coords[dim].constant -= before;
    if (before > 0 || after > 0) pull.guards.push_back({pull.coords[dim], 0, shape[dim]});
  }
  return std::vector<Pull>{std::move(pull)};
}

Pulls pull_flip(const Request& request) {
  Coords coords = request.coords;
  for (int64_t dim : request.node.integers("dims")) {
    dim = wrap_dim(dim, request.rank());
    coords[dim] = scale(coords[dim], -1, request.extents());
    coords[dim].constant += request.shape_of(request.self())[dim] - 1;
  }
  return one(request, std::move(coords));
}

Pulls pull_repeat(const Request& request) {
  const Shape& shape = request.shape_of(request.self());
  const size_t added = request.coords.size() - shape.size();
  Coords coords(shape.size());
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    auto wrapped = modulo(request.coords[dim + added], shape[dim], request.extents());
    if (!wrapped) return std::nullopt;
    coords[dim] = std::move(*wrapped);
  }
  return one(request, std::move(coords));
}

Pulls pull_slice_scatter(const Request& request) {
  const ValueId source = request.node.value("src");
  const bool select = base_name(request.node) == "select_scatter";
  const int64_t dim = request.dim("dim", 0, request.rank());
  const int64_t size = request.shape_of(request.self())[dim];
  int64_t start = request.node.integer(select ? "index" : "start", 0);
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  const int64_t length = select ? 1 : request.shape_of(source)[dim];
  Pull patch{source, request.coords, {{request.coords[dim], start, start + length}}};
  if (select) patch.coords.erase(patch.coords.begin() + dim);
  else patch.coords[dim].constant -= start;
  return std::vector<Pull>{{request.self(), request.coords, {}}, std::move(patch)};
}

Pulls pull_elementwise(const Request& request) {
  std::vector<Pull> pulls;
  bool good = true;
  const std::string_view base = base_name(request.node);
  const bool channelwise = base == "batch_norm" || base == "instance_norm" || base == "_native_batch_norm_legit_no_training" || base == "prelu" ||
                           base == "_prelu_kernel";
  for_each_operand(request.node, [&](ValueId operand) {
    const Shape& shape = request.shape_of(operand);
    if (channelwise && shape.size() == 1 && request.result_shape().size() > 1) {   // a vector over the channels
      pulls.push_back({operand, {shape[0] == 1 ? Index{} : request.coords[1]}, {}});
      return;
    }
    if (shape.size() > request.coords.size()) good = false;
    else pulls.push_back({operand, broadcast(request.coords, request.result_shape(), shape), {}});
  });
  if (!good) return std::nullopt;
  return pulls;
}

// --- Lookups --------------------------------------------------------------------------------------------------------------------

Index element_of(const Request& request, LookupKind kind, ValueId index, Coords coords, int64_t extent) {
  return request.lookups.add({kind, extent, index, std::move(coords), {}});
}

Pulls pull_embedding(const Request& request) {
  const ValueId weight = request.node.value("weight"), indices = request.node.value("indices");
  const Coords place(request.coords.begin(), request.coords.end() - 1);
  const Index row = element_of(request, LookupKind::kElement, indices, place, request.shape_of(weight)[0]);
  return std::vector<Pull>{{weight, {row, request.coords.back()}, {}}, {indices, place, {}}};
}

Pulls pull_index_select(const Request& request) {
  const ValueId index = request.node.value("index");
  const int64_t dim = request.dim("dim", 0, request.rank());
  Coords place, coords = request.coords;
  if (request.rank() == 0) return std::nullopt;
  if (!request.shape_of(index).empty()) place = {request.coords[dim]};
  coords[dim] = element_of(request, LookupKind::kElement, index, place, request.shape_of(request.self())[dim]);
  return std::vector<Pull>{{request.self(), std::move(coords), {}}, {index, place, {}}};
}

Pulls pull_gather(const Request& request) {
  const ValueId index = request.node.value("index");
  if (request.rank() == 0 || request.shape_of(index).size() != request.coords.size()) return std::nullopt;
  const int64_t dim = request.dim("dim", 0, request.rank());
  Coords coords = request.coords;
  coords[dim] = element_of(request, LookupKind::kElement, index, request.coords, request.shape_of(request.self())[dim]);
  return std::vector<Pull>{{request.self(), std::move(coords), {}}, {index, request.coords, {}}};
}

// x[i, :, j]: the indices broadcast to dimensions of their own, which stand where they do if they are neighbours, and in front if not.
Pulls pull_index(const Request& request) {
  const auto* list = std::get_if<ValueList>(request.node.find("indices"));
  const auto rank = static_cast<size_t>(request.rank());
  if (!list || list->ids.size() > rank) return std::nullopt;
  std::vector<size_t> indexed;
  size_t added = 0;
  for (size_t dim = 0; dim < list->ids.size(); ++dim)
    if (list->ids[dim] != kNoValue) {
      indexed.push_back(dim);
      added = std::max(added, request.shape_of(list->ids[dim]).size());
    }
  if (indexed.empty() || request.coords.size() != rank - indexed.size() + added) return std::nullopt;
  const bool neighbours = indexed.back() - indexed.front() + 1 == indexed.size();
  const size_t first = neighbours ? indexed.front() : 0;
  const auto begin = request.coords.begin() + static_cast<std::ptrdiff_t>(first), end = begin + static_cast<std::ptrdiff_t>(added);
  const Coords place(begin, end);
  const Shape place_shape(request.result_shape().begin() + static_cast<std::ptrdiff_t>(first), request.result_shape().begin() + static_cast<std::ptrdiff_t>(first + added));
  Coords kept(request.coords.begin(), begin);
  kept.insert(kept.end(), end, request.coords.end());
  Pull table{request.self(), {}, {}};
  std::vector<Pull> pulls(1);
  size_t next = 0;
  for (size_t dim = 0; dim < rank; ++dim) {
    const ValueId index = dim < list->ids.size() ? list->ids[dim] : kNoValue;
    if (index == kNoValue) {
      table.coords.push_back(kept[next++]);
      continue;
    }
    Coords at = broadcast(place, place_shape, request.shape_of(index));
    table.coords.push_back(element_of(request, LookupKind::kWrappedElement, index, at, request.shape_of(request.self())[dim]));
    pulls.push_back({index, std::move(at), {}});
  }
  pulls[0] = std::move(table);
  return pulls;
}

using Handler = Pulls (*)(const Request&);

bool is_lookup_handler(Handler handler) {
  return handler == pull_embedding || handler == pull_index_select || handler == pull_gather || handler == pull_index;
}

const std::unordered_map<std::string_view, Handler> kHandlers = {
    {"view", pull_reshape}, {"_unsafe_view", pull_reshape}, {"reshape", pull_reshape}, {"flatten", pull_reshape}, {"unflatten", pull_reshape},
    {"squeeze", pull_reshape}, {"unsqueeze", pull_reshape}, {"view_as", pull_reshape}, {"reshape_as", pull_reshape}, {"_reshape_alias", pull_reshape},
    {"alias", pull_reshape}, {"detach", pull_reshape}, {"contiguous", pull_reshape},
    {"expand", pull_broadcast}, {"expand_as", pull_broadcast}, {"broadcast_to", pull_broadcast},
    {"permute", pull_permute}, {"transpose", pull_permute}, {"swapaxes", pull_permute}, {"t", pull_permute}, {"numpy_T", pull_permute}, {"mT", pull_permute},
    {"slice", pull_slice}, {"narrow", pull_slice}, {"select", pull_select},
    {"split", pull_split}, {"split_with_sizes", pull_split}, {"chunk", pull_split}, {"unsafe_split", pull_split}, {"unsafe_chunk", pull_split},
    {"tensor_split", pull_split}, {"unbind", pull_unbind},
    {"cat", pull_cat}, {"concat", pull_cat}, {"stack", pull_cat}, {"constant_pad_nd", pull_pad}, {"pad", pull_pad}, {"flip", pull_flip},
    {"repeat", pull_repeat}, {"slice_scatter", pull_slice_scatter}, {"select_scatter", pull_slice_scatter},
    {"embedding", pull_embedding}, {"index_select", pull_index_select}, {"gather", pull_gather}, {"index", pull_index}, {"_unsafe_index", pull_index},
};

const std::unordered_set<std::string_view> kUnknownViews = {"movedim", "diagonal", "unfold", "as_strided"};

}  // namespace

Coords broadcast(const Coords& coords, const Shape& from, const Shape& to) {
  Coords result(to.size());
  const size_t added = from.size() - to.size();
  for (size_t dim = 0; dim < to.size(); ++dim)
    if (to[dim] != 1) result[dim] = coords[dim + added];
  return result;
}

bool is_elementwise(const Graph& graph, NodeId node) {
  const std::string_view base = base_name(graph.nodes[node]);
  return !kHandlers.contains(base) && !kUnknownViews.contains(base);
}

bool looks_up(const Node& node) {
  const auto handler = kHandlers.find(base_name(node));
  return handler != kHandlers.end() && is_lookup_handler(handler->second);
}

std::optional<std::vector<Pull>> pull(const Graph& graph, NodeId id, int result, const Coords& coords, Lookups& lookups) {
  const Node& node = graph.nodes[id];
  const std::string_view base = base_name(node);
  if (kUnknownViews.contains(base)) return std::nullopt;
  const Request request{graph, node, result, coords, lookups};
  const auto handler = kHandlers.find(base);
  if (handler == kHandlers.end()) return pull_elementwise(request);
  auto pulls = handler->second(request);
  if (!pulls) return std::nullopt;
  // Operands that only lend their shape (expand_as, view_as) are not read.
  return pulls;
}

std::optional<Coords> push_view(const Graph& graph, NodeId id, const Coords& coords, Extents extents) {
  const Node& node = graph.nodes[id];
  const ValueId source = node.value("self");
  if (node.results.size() != 1 || source == kNoValue) return std::nullopt;
  const TensorType &from = graph.type(source), &to = graph.type(node.results[0]);
  const auto handler = kHandlers.find(base_name(node));
  if (handler == kHandlers.end() || is_lookup_handler(handler->second) || from.elements() != to.elements()) return std::nullopt;
  Lookups none;
  none.start({extents.begin(), extents.end()});
  if (handler->second == pull_permute) {
    const auto order = permutation_of({graph, node, 0, coords, none});
    if (!order) return std::nullopt;
    Coords result(order->size());
    for (size_t i = 0; i < order->size(); ++i) result[i] = coords[(*order)[i]];
    return result;
  }
  if (handler->second == pull_flip) {   // its own inverse
    auto pulls = pull_flip({graph, node, 0, coords, none});
    return std::move(pulls->front().coords);
  }
  // Every other view that keeps all elements keeps their row-major order too.
  return reshape(coords, from.shape, to.shape, extents);
}

}  // namespace kw::plan
