#include "plan/pull.hpp"

#include "plan/resize.hpp"

#include <numeric>

namespace kw::plan {

namespace {

// One call of pull(): the node, the wanted element and what the handlers share.
struct Request {
  const Graph& graph;
  const Node& node;
  int result;
  const Coords& coords;
  Lookups& lookups;
  OpRule rule = rule_of(node);

  SymbolRanges ranges() const { return lookups.ranges(); }

  const Shape& shape_of(ValueId value) const { return graph.type(value).shape; }
  const Shape& result_shape() const { return shape_of(node.results[result]); }
  ValueId self() const { return node.value("self"); }
  int64_t rank() const { return static_cast<int64_t>(shape_of(self()).size()); }
  int64_t dim(std::string_view name, int64_t fallback, int64_t rank_of) const {
    return wrap_dim(node.integer(name, fallback), rank_of);
  }
};

using Pulls = std::optional<std::vector<Pull>>;

Pulls one(const Request& request, std::optional<Coords> coords) {
  if (!coords) return std::nullopt;
  return std::vector<Pull>{{request.self(), std::move(*coords), {}}};
}

Pulls pull_reshape(const Request& request) {
  return one(request,
             reshape(request.coords, request.result_shape(), request.shape_of(request.self()), request.ranges()));
}

Pulls pull_broadcast(const Request& request) {
  return one(request, broadcast(request.coords, request.result_shape(), request.shape_of(request.self())));
}

// result dimension i shows operand dimension order[i].
std::optional<std::vector<int64_t>> permutation_of(const Request& request) {
  const int64_t rank = request.rank();
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (request.rule == OpRule::kPermute) {
    order = request.node.integers("dims");
    for (auto& dim : order) dim = wrap_dim(dim, rank);
  } else if (request.rule == OpRule::kReverseAxes) {
    std::reverse(order.begin(), order.end());
  } else if (request.rule == OpRule::kMatrixTranspose) {
    if (rank < 2) return std::nullopt;
    std::swap(order[rank - 1], order[rank - 2]);
  } else if (rank > 0) {
    const bool axes = request.node.find("axis0");
    std::swap(order[request.dim(axes ? "axis0" : "dim0", 0, rank)],
              order[request.dim(axes ? "axis1" : "dim1", 0, rank)]);
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
  coords[dim] = coords[dim] * request.node.integer("step", 1);
  coords[dim].constant += start;
  return one(request, std::move(coords));
}

Pulls pull_select(const Request& request) {
  const int64_t dim = request.dim("dim", 0, request.rank());
  int64_t index = request.node.integer("index", 0);
  if (index < 0) index += request.shape_of(request.self())[dim];
  Coords coords = request.coords;
  coords.insert(coords.begin() + dim, Index(index));
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
  coords.insert(coords.begin() + request.dim("dim", 0, request.rank()), Index(request.result));
  return one(request, std::move(coords));
}

Pulls pull_cat(const Request& request) {
  const auto* list = std::get_if<ValueList>(request.node.find("tensors"));
  if (!list) return std::nullopt;
  const bool stack = request.rule == OpRule::kStack;
  const int64_t dim = request.dim("dim", 0, static_cast<int64_t>(request.result_shape().size()));
  std::vector<Pull> pulls;
  int64_t offset = 0;
  for (ValueId operand : list->ids) {
    const int64_t size = stack ? 1 : request.shape_of(operand)[dim];
    Pull pull{operand, request.coords, {}};
    const Interval range = range_of(request.coords[dim], request.ranges());
    if (range.low < offset || range.high >= offset + size)
      pull.guards.push_back({request.coords[dim], offset, offset + size});
    if (stack) pull.coords.erase(pull.coords.begin() + dim);
    else if (size == 1)
      pull.coords[dim] = Index(0);  // all that the guard leaves; as a difference it would stand in the way of
                                    // views
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

// The diagonal's elements where row + offset = column; zero elsewhere.
Pulls pull_diag_embed(const Request& request) {
  const auto rank = static_cast<int64_t>(request.coords.size());
  const int64_t rows = request.dim("dim1", -2, rank), columns = request.dim("dim2", -1, rank),
                offset = request.node.integer("offset", 0);
  const Index beyond = add(request.coords[columns], request.coords[rows] * -1, request.ranges());
  Pull pull{request.self(), {}, {{beyond, offset, offset + 1}}};
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != rows && dim != columns) pull.coords.push_back(request.coords[dim]);
  pull.coords.push_back(request.coords[offset >= 0 ? rows : columns]);
  return std::vector<Pull>{std::move(pull)};
}

Pulls pull_flip(const Request& request) {
  Coords coords = request.coords;
  if (coords.empty()) return one(request, std::move(coords));  // PyTorch lets a number have a dimension 0 to flip
  for (int64_t dim : request.node.integers("dims")) {
    dim = wrap_dim(dim, request.rank());
    coords[dim] = coords[dim] * -1;
    coords[dim].constant += request.shape_of(request.self())[dim] - 1;
  }
  return one(request, std::move(coords));
}

Pulls pull_repeat(const Request& request) {
  const Shape& shape = request.shape_of(request.self());
  const size_t added = request.coords.size() - shape.size();
  Coords coords(shape.size());
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    auto wrapped = modulo(request.coords[dim + added], shape[dim], request.ranges());
    if (!wrapped) return std::nullopt;
    coords[dim] = std::move(*wrapped);
  }
  return one(request, std::move(coords));
}

// Row (channel, window row, window column) and column (row, column) of the unfolded image; the padding around it is
// zero.
Pulls pull_unfold(const Request& request) {
  const IntList kernel = request.node.integers("kernel_size"), dilation = request.node.integers("dilation"),
                padding = request.node.integers("padding"), stride = request.node.integers("stride");
  const Shape& input = request.shape_of(request.self());
  const size_t leading = input.size() - 3, last = input.size() - 1;
  if (kernel.size() != 2 || dilation.size() != 2 || padding.size() != 2 || stride.size() != 2) return std::nullopt;
  Shape counts;
  for (size_t dim = 0; dim < 2; ++dim)
    counts.push_back((input[last - 1 + dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1) / stride[dim] +
                     1);
  const auto offsets = delinearise(request.coords[leading], {input[leading], kernel[0], kernel[1]}, request.ranges());
  const auto windows = delinearise(request.coords[leading + 1], counts, request.ranges());
  if (!offsets || !windows) return std::nullopt;
  Pull pull{request.self(), Coords(request.coords.begin(), request.coords.begin() + static_cast<int64_t>(leading)), {}};
  pull.coords.push_back((*offsets)[0]);
  for (size_t dim = 0; dim < 2; ++dim) {
    Index position = add((*windows)[dim] * stride[dim], (*offsets)[dim + 1] * dilation[dim], request.ranges());
    position.constant -= padding[dim];
    if (padding[dim] > 0) pull.guards.push_back({position, 0, input[last - 1 + dim]});
    pull.coords.push_back(std::move(position));
  }
  return std::vector<Pull>{std::move(pull)};
}

Pulls pull_slice_scatter(const Request& request) {
  const ValueId source = request.node.value("src");
  const bool select = request.rule == OpRule::kSelectScatter;
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
  const bool channelwise = request.rule == OpRule::kBatchNorm || request.rule == OpRule::kInstanceNorm ||
                           request.rule == OpRule::kPerChannel;
  for_each_operand(request.node, [&](ValueId operand) {
    const Shape& shape = request.shape_of(operand);
    if (channelwise && shape.size() == 1 && request.result_shape().size() > 1) {  // a vector over the channels
      pulls.push_back({operand, {shape[0] == 1 ? Index{} : request.coords[1]}, {}});
      return;
    }
    if (shape.size() > request.coords.size()) good = false;
    else pulls.push_back({operand, broadcast(request.coords, request.result_shape(), shape), {}});
  });
  if (!good) return std::nullopt;
  return pulls;
}

// --- Lookups ---

Index element_of(const Request& request, LookupKind kind, ValueId index, Coords coords, int64_t extent) {
  Lookup lookup;
  lookup.kind = kind;
  lookup.extent = extent;
  lookup.index = index;
  lookup.coords = std::move(coords);
  return request.lookups.add(std::move(lookup));
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

// x[i, :, j]: the indices broadcast to dimensions of their own, which stand where they do if they are neighbours, and
// in front if not.
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
  const auto begin = request.coords.begin() + static_cast<std::ptrdiff_t>(first),
             end = begin + static_cast<std::ptrdiff_t>(added);
  const Coords place(begin, end);
  const Shape place_shape(request.result_shape().begin() + static_cast<std::ptrdiff_t>(first),
                          request.result_shape().begin() + static_cast<std::ptrdiff_t>(first + added));
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
    table.coords.push_back(
        element_of(request, LookupKind::kWrappedElement, index, at, request.shape_of(request.self())[dim]));
    pulls.push_back({index, std::move(at), {}});
  }
  pulls[0] = std::move(table);
  return pulls;
}

Index computed_of(const Request& request, LookupKind kind, const Index& position, int64_t shift, int64_t extent) {
  Lookup lookup;
  lookup.kind = kind;
  lookup.extent = extent;
  lookup.position = position;
  lookup.shift = shift;
  return request.lookups.add(std::move(lookup));
}

// Circular padding by `left` and `right`, of which a negative one takes elements away: what is left goes round.
std::optional<Index> around(const Request& request, const Index& position, int64_t left, int64_t right,
                            int64_t extent) {
  const int64_t cut = std::max<int64_t>(-left, 0), kept = extent - cut - std::max<int64_t>(-right, 0);
  if (left > kept || right > kept) return std::nullopt;  // more than once round
  Index place = computed_of(request, LookupKind::kAround, position, std::max<int64_t>(left, 0), kept);
  place.constant += cut;
  return place;
}

// Borders that repeat the tensor's own elements.
Pulls pull_bordered(const Request& request) {
  const LookupKind kind = request.rule == OpRule::kReflect     ? LookupKind::kReflected
                          : request.rule == OpRule::kReplicate ? LookupKind::kClamped
                                                               : LookupKind::kAround;
  const IntList widths = request.node.integers(kind == LookupKind::kAround ? "pad" : "padding");
  const Shape& shape = request.shape_of(request.self());
  Coords coords = request.coords;
  for (size_t pair = 0; pair * 2 + 1 < widths.size(); ++pair) {
    const size_t dim = shape.size() - 1 - pair;
    const int64_t left = widths[pair * 2], right = widths[pair * 2 + 1];
    if (left <= 0 && right <= 0) {
      coords[dim].constant -= left;
    } else if (kind == LookupKind::kAround) {
      const std::optional<Index> place = around(request, coords[dim], left, right, shape[dim]);
      if (!place) return std::nullopt;
      coords[dim] = *place;
    } else {
      coords[dim] = computed_of(request, kind, coords[dim], left, shape[dim]);
    }
  }
  return one(request, std::move(coords));
}

Pulls pull_roll(const Request& request) {
  const IntList shifts = request.node.integers("shifts"), dims = request.node.integers("dims");
  const Shape& shape = request.shape_of(request.self());
  const auto rolled = [&](const Index& position, int64_t shift, int64_t extent) {
    return computed_of(request, LookupKind::kRolled, position, ((shift % extent) + extent) % extent, extent);
  };
  if (dims.empty()) {  // as one row
    if (shifts.size() != 1) return std::nullopt;
    const Index place = rolled(linearise(request.coords, shape, request.ranges()), shifts[0], product(shape));
    return one(request, delinearise(place, shape, request.ranges()));
  }
  if (shifts.size() != dims.size()) return std::nullopt;
  Coords coords = request.coords;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = wrap_dim(dims[i], request.rank());
    if (shape[dim] > 1) coords[dim] = rolled(coords[dim], shifts[i], shape[dim]);
  }
  return one(request, std::move(coords));
}

// All elements that an interpolated one is made of, the last axis's taps varying fastest.
Pulls pull_resized(const Request& request) {
  const auto axes = resize_axes(request.graph, request.node);
  if (!axes) return std::nullopt;
  const ValueId input = request.node.value("input") != kNoValue ? request.node.value("input") : request.self();
  std::vector<Coords> places = {{request.coords[0], request.coords[1]}};
  for (size_t axis = 0; axis < axes->size(); ++axis) {
    const ResizeAxis& resized = (*axes)[axis];
    const Index& position = request.coords[axis + 2];
    std::vector<Index> taps;
    const bool nearest = resized.kind == LookupKind::kNearest || resized.kind == LookupKind::kNearestExact;
    if (auto affine = nearest ? affine_nearest(resized, position, request.ranges()) : std::nullopt)
      taps = {std::move(*affine)};
    else
      for (Lookup& tap : taps_of(resized, position)) taps.push_back(request.lookups.add(std::move(tap)));
    std::vector<Coords> longer;
    for (const Coords& place : places)
      for (const Index& tap : taps) {
        longer.push_back(place);
        longer.back().push_back(tap);
      }
    places = std::move(longer);
  }
  std::vector<Pull> pulls;
  for (Coords& place : places) pulls.push_back({input, std::move(place), {}});
  return pulls;
}

Pulls pull_by_rule(const Request& request) {
  switch (request.rule) {
    case OpRule::kSame:
    case OpRule::kReshape:
    case OpRule::kReshapeAs:
    case OpRule::kFlatten:
    case OpRule::kUnflatten:
    case OpRule::kSqueeze:
    case OpRule::kUnsqueeze: return pull_reshape(request);
    case OpRule::kExpand:
    case OpRule::kExpandAs: return pull_broadcast(request);
    case OpRule::kPermute:
    case OpRule::kTranspose:
    case OpRule::kReverseAxes:
    case OpRule::kMatrixTranspose: return pull_permute(request);
    case OpRule::kSlice:
    case OpRule::kNarrow: return pull_slice(request);
    case OpRule::kSelect: return pull_select(request);
    case OpRule::kSplit: return pull_split(request);
    case OpRule::kUnbind: return pull_unbind(request);
    case OpRule::kCat:
    case OpRule::kStack: return pull_cat(request);
    case OpRule::kPad: return pull_pad(request);
    case OpRule::kDiagEmbed: return pull_diag_embed(request);
    case OpRule::kFlip: return pull_flip(request);
    case OpRule::kRepeat: return pull_repeat(request);
    case OpRule::kIm2col: return pull_unfold(request);
    case OpRule::kSliceScatter:
    case OpRule::kSelectScatter: return pull_slice_scatter(request);
    case OpRule::kEmbedding: return pull_embedding(request);
    case OpRule::kIndexSelect: return pull_index_select(request);
    case OpRule::kGather: return pull_gather(request);
    case OpRule::kIndex: return pull_index(request);
    case OpRule::kReflect:
    case OpRule::kReplicate:
    case OpRule::kWrapAround: return pull_bordered(request);
    case OpRule::kRoll: return pull_roll(request);
    case OpRule::kNearest:
    case OpRule::kNearestExact:
    case OpRule::kLinear:
    case OpRule::kCubic: return pull_resized(request);
    default: return moves_elements(request.rule) ? std::nullopt : pull_elementwise(request);
  }
}

}  // namespace

Coords broadcast(const Coords& coords, const Shape& from, const Shape& to) {
  Coords result(to.size());
  const size_t added = from.size() - to.size();
  for (size_t dim = 0; dim < to.size(); ++dim)
    if (to[dim] != 1) result[dim] = coords[dim + added];
  return result;
}

bool is_elementwise(const Graph& graph, NodeId node) { return !moves_elements(rule_of(graph.nodes[node])); }

bool looks_up(const Node& node) { return is_lookup(rule_of(node)); }

// Operands that only lend their shape (expand_as, view_as) are not read.
std::optional<std::vector<Pull>> pull(const Graph& graph, NodeId id, int result, const Coords& coords,
                                      Lookups& lookups) {
  return pull_by_rule({graph, graph.nodes[id], result, coords, lookups});
}

std::optional<Coords> push_view(const Graph& graph, NodeId id, const Coords& coords, SymbolRanges ranges) {
  const Node& node = graph.nodes[id];
  const ValueId source = node.value("self");
  if (node.results.size() != 1 || source == kNoValue) return std::nullopt;
  const TensorType &from = graph.type(source), &to = graph.type(node.results[0]);
  const OpRule rule = rule_of(node);
  if (!moves_elements(rule) || is_lookup(rule) || is_by_strides(rule) || from.elements() != to.elements())
    return std::nullopt;
  Lookups none;
  none.start(ranges);
  if (permutes_axes(rule)) {
    const auto order = permutation_of({graph, node, 0, coords, none});
    if (!order) return std::nullopt;
    Coords result(order->size());
    for (size_t i = 0; i < order->size(); ++i) result[i] = coords[(*order)[i]];
    return result;
  }
  if (rule == OpRule::kFlip) {  // its own inverse
    auto pulls = pull_flip({graph, node, 0, coords, none});
    return std::move(pulls->front().coords);
  }
  // Every other view that keeps all elements keeps their row-major order too.
  return reshape(coords, from.shape, to.shape, ranges);
}

}  // namespace kw::plan
