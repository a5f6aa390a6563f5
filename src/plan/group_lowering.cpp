#include "plan/group_lowering.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "plan/attention.hpp"
#include "plan/linear_attention.hpp"
#include "plan/bag_lowering.hpp"
#include "plan/convolution_lowering.hpp"
#include "plan/group_names.hpp"
#include "plan/group_builder.hpp"
#include "plan/lookup_values.hpp"
#include "plan/product_lowering.hpp"
#include "plan/reduce_points.hpp"
#include "plan/reductions.hpp"
#include "plan/resize.hpp"
#include "plan/scalar_forms.hpp"
#include "plan/scan_ops.hpp"
#include "plan/scatters.hpp"
#include "plan/window_lowering.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::BufferRole;

struct NotLowerable {};

class Lowering {
 public:
  Lowering(const GraphFacts& facts, std::span<const NodeId> nodes, Domain domain)
      : facts_(facts),
        graph_(facts.graph),
        nodes_(nodes.begin(), nodes.end()),
        domain_(std::move(domain)),
        build_(lowered_.kernel, &lookups_, [this](int axis) { return coordinate(axis); }) {
    lookups_.start(ranges_of_axes(domain_.extents));
  }

  LoweredGroup run() {
    for (size_t axis = 0; axis < domain_.extents.size(); ++axis)
      lowered_.kernel.symbols.push_back(axis_of("axis" + std::to_string(axis), domain_.extents[axis]));
    lowered_.kernel.parallel = domain_.parallel;
    for (ValueId output : domain_.outputs) {
      if (const NodeId producer = graph_.values[output].producer; facts_.kinds[producer] == NodeKind::kScatter) {
        lowered_.kernel.stores.push_back(scattered(producer));
        continue;
      }
      const Coords& coords = domain_.seeds.at(output);
      const ExprId value = expr_at(output, coords, {});
      const TensorType& type = graph_.type(output);
      Store store;
      store.access = element_at(buffer_of(output, BufferRole::kOutput),
                                dot(coords, type.strides, 0, lookups_.ranges()));
      if (const auto first = domain_.first_places.find(output); first != domain_.first_places.end())
        store.access.mask = build_.mask_of({{axis_index(domain_.parallel, lookups_.ranges()), 0, first->second}});
      store.value = build_.cast(type.dtype, value);
      lowered_.kernel.stores.push_back(std::move(store));
    }
    share_loads();
    kernel::drop_unused(lowered_.kernel);
    drop_unfolded_axes();
    move_outputs_last();
    lowered_.kernel.name = kernel_name(graph_, nodes_);
    lowered_.kernel.doc = kernel_doc(graph_, nodes_, domain_.outputs);
    lowered_.is_rounded = std::all_of(domain_.outputs.begin(), domain_.outputs.end(),
                                      [&](ValueId output) { return facts_.rounded[output]; });
    return std::move(lowered_);
  }

 private:
  using Guards = std::vector<Guard>;

  struct MemoKey {
    ValueId value;
    Coords coords;
    Guards guards;
    bool operator<(const MemoKey& other) const {
      if (value != other.value) return value < other.value;
      if (less(coords, other.coords)) return true;
      if (less(other.coords, coords)) return false;
      return std::lexicographical_compare(guards.begin(), guards.end(), other.guards.begin(), other.guards.end(),
                                          [](const Guard& a, const Guard& b) {
                                            if (a.lower != b.lower) return a.lower < b.lower;
                                            if (a.upper != b.upper) return a.upper < b.upper;
                                            return kernel::compare(a.index, b.index) < 0;
                                          });
    }
  };

  SymbolRanges ranges() const { return lookups_.ranges(); }

  bool computed_inside(ValueId value) const {
    const NodeId producer = graph_.values[facts_.roots[value]].producer;
    return producer != kNoNode && std::binary_search(nodes_.begin(), nodes_.end(), producer);
  }

  int buffer_of(ValueId root, BufferRole role) {
    const auto [place, added] = buffer_ids_.emplace(root, static_cast<int>(lowered_.buffers.size()));
    if (!added) return place->second;
    const TensorType& type = graph_.type(root);
    int64_t elements = 1;
    for (int64_t dim = 0; dim < type.rank(); ++dim) elements += (type.shape[dim] - 1) * type.strides[dim];
    kernel::Buffer buffer = row_of_elements(unique_buffer_name(graph_.values[root].name), type.dtype, elements, role);
    if (type.offset * size_of(type.dtype) % buffer.alignment != 0) buffer.alignment = size_of(type.dtype);
    lowered_.kernel.buffers.push_back(std::move(buffer));
    lowered_.buffers.push_back(root);
    return place->second;
  }

  std::string unique_buffer_name(std::string name) {
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "t" + name;
    std::string unique = name;
    for (int count = 2; !buffer_names_.insert(unique).second; ++count) unique = name + "_" + std::to_string(count);
    return unique;
  }

  // Where each sum picked one element (picked.hpp) and nothing else varies along the reduce axes, the kernel is
  // pointwise.
  void drop_unfolded_axes() {
    auto& kernel = lowered_.kernel;
    const auto varies = kernel::dependences(kernel);
    const auto needs = [&](size_t axis) -> bool {
      for (size_t id = 0; id < kernel.exprs.size(); ++id)
        if (varies[id][axis] || kernel.exprs[id].kind == ExprKind::kReduce) return true;
      return std::any_of(kernel.stores.begin(), kernel.stores.end(), [&](const Store& store) -> bool {
        return uses_axis(kernel, store.access, static_cast<int>(axis));
      });
    };
    while (!domain_.scans && axis_count(kernel) > kernel.parallel && !needs(kernel.symbols.size() - 1))
      kernel.symbols.pop_back();
  }

  // Parameters read: inputs first, then what the kernel writes; buffers that nothing uses any more go.
  void move_outputs_last() {
    auto& kernel = lowered_.kernel;
    std::vector<bool> used(kernel.buffers.size(), false);
    for (const auto& expr : kernel.exprs)
      if (is_load(expr)) used[expr.access.buffer] = true;
    for (const auto& store : kernel.stores) used[store.access.buffer] = true;
    std::vector<int> order(kernel.buffers.size()), place(kernel.buffers.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_partition(order.begin(), order.end(),
                          [&](int id) { return kernel.buffers[id].role == BufferRole::kInput; });
    std::vector<kernel::Buffer> buffers;
    std::vector<ValueId> values;
    for (int old : order) {
      if (!used[old]) continue;
      place[old] = static_cast<int>(buffers.size());
      buffers.push_back(kernel.buffers[old]);
      values.push_back(lowered_.buffers[old]);
    }
    for (auto& expr : kernel.exprs)
      if (is_load(expr)) expr.access.buffer = place[expr.access.buffer];
    for (auto& store : kernel.stores) store.access.buffer = place[store.access.buffer];
    kernel.buffers = std::move(buffers);
    lowered_.buffers = std::move(values);
  }

  ExprId load(ValueId value, const Coords& coords, const Guards& guards, double otherwise) {
    const TensorType& type = graph_.type(value);
    const ValueId root = facts_.roots[value];
    Access access = element_at(buffer_of(root, BufferRole::kInput),
                               dot(coords, type.strides, type.offset - graph_.type(root).offset, ranges()));
    access.otherwise = otherwise;
    kernel::Buffer& buffer = lowered_.kernel.buffers[access.buffer];
    if (guards.empty() && !lookups_.is_lookup(index_of(access)))
      buffer.shape = {std::max(elements_of(buffer), range_of(index_of(access), ranges()).high + 1)};
    return build_.cast(compute_dtype(type.dtype), build_.load(std::move(access), guards));
  }

  ExprId load_of(ExprId loaded) const {
    return build_.expr(loaded).kind == ExprKind::kOp ? build_.expr(loaded).operands[0] : loaded;
  }

  // A load that brings `otherwise` itself outside its guards.
  ExprId filled(ValueId value, const Coords& coords, const Guards& guards, double otherwise) {
    const ExprId loaded = load(value, coords, guards, otherwise);
    filled_.insert(load_of(loaded));
    chosen_.erase(load_of(loaded));
    return loaded;
  }

  // One element that is read under several guards, each of which chooses what is made of it (the two halves of a byte
  // side by side), is read once for all.
  void share_loads() {
    auto& kernel = lowered_.kernel;
    std::vector<ExprId> instead(kernel.exprs.size());
    for (ExprId id = 0; id < static_cast<ExprId>(instead.size()); ++id) {
      instead[id] = id;
      Expr& expr = kernel.exprs[id];
      if (!is_load(expr) || looks_up(expr) || !chosen_.contains(id)) continue;
      const Interval range = range_of(index_of(expr.access), lookups_.ranges());
      if (range.low < 0 || range.high >= elements_of(kernel.buffers[expr.access.buffer])) continue;
      for (ExprId other = 0; other < id; ++other) {
        Expr& first = kernel.exprs[other];
        if (!is_load(first) || looks_up(first) || !chosen_.contains(other) ||
            first.access.buffer != expr.access.buffer || !(first.access.coordinates == expr.access.coordinates))
          continue;
        first.access.mask = kNoExpr;
        instead[id] = other;
        break;
      }
    }
    for (Expr& expr : kernel.exprs) kernel::renumber(expr, instead);
    for (Store& store : kernel.stores) {
      store.value = instead[store.value];
      kernel::renumber(store.access, instead);
    }
  }

  ExprId expr_at(ValueId value, const Coords& coords, const Guards& guards) {
    if (!computed_inside(value)) {
      const ExprId loaded = load(value, coords, guards, 0.0);
      if (!filled_.contains(load_of(loaded))) chosen_.insert(load_of(loaded));
      return loaded;
    }
    MemoKey key{value, coords, guards};
    if (const auto found = memo_.find(key); found != memo_.end()) return found->second;
    const ExprId result = compute(value, coords, guards);
    if (result == kNoExpr) throw NotLowerable{};
    memo_.emplace(std::move(key), result);
    return result;
  }

  ExprId compute(ValueId value, const Coords& coords, const Guards& guards) {
    const NodeId id = graph_.values[value].producer;
    const Node& node = graph_.nodes[id];
    const int result = graph_.values[value].result_index;
    switch (facts_.kinds[id]) {
      case NodeKind::kReduce: return reduce_result(id, value, coords);
      case NodeKind::kScan: return scan_result(id, result, coords);
      case NodeKind::kFactory: return factory(node, coords);
      case NodeKind::kScatter:
      case NodeKind::kExtern: throw NotLowerable{};
      default: break;
    }
    lookups_.guards = guards;
    const auto pulls = pull(graph_, id, result, coords, lookups_);
    if (!pulls) throw NotLowerable{};
    if (const auto axes = resize_axes(graph_, node); axes && pulls->size() > 1)
      return interpolated(node, *axes, *pulls, coords, guards);
    if (looks_up(node)) return expr_at(pulls->front().value, pulls->front().coords, guards);
    if (facts_.kinds[id] == NodeKind::kView ||
        (!is_elementwise(graph_, id) && pulls->size() == 1 && pulls->front().guards.empty()))
      return expr_at(pulls->front().value, pulls->front().coords, guards);
    if (!is_elementwise(graph_, id)) return guarded(node, *pulls, coords, guards);
    if (!has_form(node)) throw NotLowerable{};
    std::map<ValueId, ExprId> operands;
    for (const Pull& one : *pulls) operands[one.value] = expr_at(one.value, one.coords, guards);
    const DType dtype = compute_dtype(graph_.type(value).dtype);
    ExprId answer = build_.cast(dtype, element_by_form({build_, graph_, node, operands, coords, dtype}));
    // Rounding to 16 bits on the way is noise that PyTorch adds; rounding to 8 is what a module that quantises is
    // about.
    if (is_eight_bit_float(graph_.type(value).dtype))
      answer = build_.cast(dtype, build_.cast(graph_.type(value).dtype, answer));
    name_result(node, answer);
    return answer;
  }

  void name_result(const Node& node, ExprId value) {
    if (const std::string_view name = op_info(node.op).yields; !name.empty()) build_.name(value, std::string(name));
  }

  // cat, stack, pad and scatters of slices: which operand an element comes from depends on where it stands.
  ExprId guarded(const Node& node, const std::vector<Pull>& pulls, const Coords& coords, const Guards& outer) {
    const DType dtype = compute_dtype(graph_.type(node.results[0]).dtype);
    const OpRule rule = rule_of(node);
    auto within = [&](const Pull& one) {
      Guards guards = outer;
      guards.insert(guards.end(), one.guards.begin(), one.guards.end());
      return guards;
    };
    if (rule == OpRule::kPad || rule == OpRule::kIm2col || rule == OpRule::kDiagEmbed) {
      const Pull& one = pulls.front();
      const double fill = node.number("value", 0.0);
      if (!computed_inside(one.value) && outer.empty()) return filled(one.value, one.coords, one.guards, fill);
      const ExprId inside = expr_at(one.value, one.coords, within(one));
      return build_.select(build_.all_of(one.guards), inside, build_.constant(dtype, fill));
    }
    if (rule == OpRule::kSliceScatter || rule == OpRule::kSelectScatter) {
      const ExprId patch = build_.cast(dtype, expr_at(pulls[1].value, pulls[1].coords, within(pulls[1])));
      const ExprId rest = build_.cast(dtype, expr_at(pulls[0].value, pulls[0].coords, outer));
      return build_.select(build_.all_of(pulls[1].guards), patch, rest);
    }
    (void)coords;
    ExprId value = kNoExpr;
    for (size_t i = pulls.size(); i-- > 0;) {
      if (!pulls[i].guards.empty()) {
        const Interval range = range_of(pulls[i].guards[0].index, ranges());
        if (range.high < pulls[i].guards[0].lower || range.low >= pulls[i].guards[0].upper) continue;  // never this one
      }
      const ExprId part = build_.cast(dtype, expr_at(pulls[i].value, pulls[i].coords, within(pulls[i])));
      if (value == kNoExpr) {
        value = part;
        continue;
      }
      // Those before it have been chosen already: only the upper end decides.
      Guard upper = pulls[i].guards[0];
      upper.lower = std::numeric_limits<int64_t>::min();
      value = build_.select(build_.all_of({upper}), part, value);
    }
    return value;
  }

  // Innermost axis first, as PyTorch adds up: Σ weight_y · (Σ weight_x · element).
  ExprId interpolated(const Node& node, const std::vector<ResizeAxis>& axes, const std::vector<Pull>& pulls,
                      const Coords& coords, const Guards& guards) {
    const DType dtype = compute_dtype(graph_.type(node.results[0]).dtype);
    std::vector<ExprId> values;
    for (const Pull& one : pulls) values.push_back(build_.cast(dtype, expr_at(one.value, one.coords, guards)));
    for (size_t axis = axes.size(); axis-- > 0;) {
      const std::vector<Lookup> taps = taps_of(axes[axis], coords[axis + 2]);
      std::vector<ExprId> sums;
      for (size_t first = 0; first < values.size(); first += taps.size()) {
        ExprId sum = kNoExpr;
        for (size_t tap = 0; tap < taps.size(); ++tap) {
          const ExprId part = build_.mul(build_.cast(dtype, weight_of_tap(build_, taps[tap])), values[first + tap]);
          sum = tap == 0 ? part : build_.add(sum, part);
        }
        sums.push_back(sum);
      }
      values = std::move(sums);
    }
    return values[0];
  }

  // The value of a looked-up coordinate. What a caller may have wrong stays out of the algebra until it has been
  // checked here.
  ExprId coordinate(int axis) {
    if (const auto found = coordinates_.find(axis); found != coordinates_.end()) return found->second;
    const Lookup lookup = lookups_.of_axis(axis);
    if (lookup.index == kNoValue) return coordinates_.emplace(axis, computed_coordinate(build_, lookup)).first->second;
    if (lookup.kind == LookupKind::kFractionalStart)
      return coordinates_
          .emplace(axis, fractional_start(build_, lookup, expr_at(lookup.index, lookup.coords, lookup.guards)))
          .first->second;
    const ExprId size = build_.constant(DType::i64, lookup.extent);
    ExprId place = lookup.kind == LookupKind::kElementOr
                       ? element_or(lookup)
                       : build_.cast(DType::i64, expr_at(lookup.index, lookup.coords, lookup.guards));
    if (lookup.kind == LookupKind::kWrappedElement)
      place = build_.select(build_.op(ScalarOp::kLess, {place, build_.constant(DType::i64, 0)}),
                            build_.add(place, size), place);
    // Where the guards fail, a loaded index is 0; a computed one may be anything, and nobody asked for it.
    if (!lookup.guards.empty() && computed_inside(lookup.index))
      place = build_.select(build_.all_of(lookup.guards), place, build_.constant(DType::i64, 0));
    place = build_.op(ScalarOp::kBounded, {place, size});
    if (lookup.extent <= std::numeric_limits<int32_t>::max()) place = build_.cast(DType::i32, place);
    coordinates_.emplace(axis, place);
    return place;
  }

  ExprId element_or(const Lookup& lookup) {
    if (!computed_inside(lookup.index))
      return build_.cast(DType::i64,
                         filled(lookup.index, lookup.coords, lookup.guards, static_cast<double>(lookup.shift)));
    const ExprId element = build_.cast(DType::i64, expr_at(lookup.index, lookup.coords, lookup.guards));
    return build_.select(build_.all_of(lookup.guards), element, build_.constant(DType::i64, lookup.shift));
  }

  // The argument in the type, whole numbers as they are.
  ExprId number_of(const Node& node, std::string_view name, int64_t fallback, DType dtype) {
    if (node.value(name) != kNoValue) throw NotLowerable{};
    const Argument* argument = node.find(name);
    if (argument && std::holds_alternative<double>(*argument)) return build_.constant(dtype, node.number(name, 0.0));
    return build_.constant(dtype, node.integer(name, fallback));
  }

  // From the nearer end.
  ExprId evenly_spaced(const Node& node, const ExprId position, DType dtype) {
    const int64_t steps = node.integer("steps", 0);
    const double start = node.number("start", 0.0), end = node.number("end", 0.0);
    const auto rounded = [&](double value) {
      return dtype == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
    };
    const ExprId step = build_.constant(dtype,
                                        rounded((end - start) / static_cast<double>(std::max<int64_t>(steps - 1, 1))));
    const auto steps_of = [&](ExprId count) { return build_.mul(step, build_.cast(dtype, count)); };
    const ExprId from_start = build_.add(build_.constant(dtype, start), steps_of(position));
    const ExprId from_end = build_.sub(build_.constant(dtype, end),
                                       steps_of(build_.sub(build_.constant(DType::i64, steps - 1), position)));
    return build_.select(build_.op(ScalarOp::kLess, {position, build_.constant(DType::i64, steps / 2)}), from_start,
                         from_end);
  }

  ExprId factory(const Node& node, const Coords& coords) {
    const DType dtype = compute_dtype(graph_.type(node.results[0]).dtype);
    switch (rule_of(node)) {
      case OpRule::kZeros: return build_.constant(dtype, 0);
      case OpRule::kOnes: return build_.constant(dtype, 1);
      case OpRule::kEye:
        return build_.cast(dtype, build_.op(ScalarOp::kEqual, {build_.index(coords[0], DType::i64),
                                                               build_.index(coords[1], DType::i64)}));
      case OpRule::kLinspace: return evenly_spaced(node, build_.index(coords.at(0), DType::i64), dtype);
      case OpRule::kArange: {
        const ExprId position = build_.cast(dtype, build_.index(coords.at(0), DType::i64));
        return build_.add(build_.mul(position, number_of(node, "step", 1, dtype)), number_of(node, "start", 0, dtype));
      }
      case OpRule::kScalarTensor: return number_of(node, "s", 0, dtype);
      default: return number_of(node, "fill_value", 0, dtype);
    }
  }

  ExprId reduce_result(NodeId id, ValueId value, const Coords& coords) {
    if (domain_.seeds.at(value) != coords) throw NotLowerable{};
    auto done = reductions_.find(id);
    if (done == reductions_.end()) {
      const auto spec = reduce_spec(graph_, id);
      if (const auto window = spec ? window_of(graph_, graph_.nodes[id]) : std::nullopt)
        return pooled(id, value, *window, *spec);
      if (const auto bags = spec ? bags_of(graph_, graph_.nodes[id]) : std::nullopt) return bag(id, value, *bags);
      const auto pulls = spec ? pull_reduce(graph_, id, *spec, domain_.reduce_points.at(id), lookups_) : std::nullopt;
      if (!pulls) throw NotLowerable{};
      std::map<ValueId, ExprId> operands;
      for (const Pull& one : *pulls) operands[one.value] = expr_at(one.value, one.coords, {});
      auto results = lower_reduction({build_, graph_, id, *spec, operands, spec->reduced_elements()});
      if (!results.empty()) name_result(graph_.nodes[id], results[0]);
      done = reductions_.emplace(id, std::move(results)).first;
    }
    return reduced(done->second, value);
  }

  ExprId reduced(const std::vector<ExprId>& results, ValueId value) {
    const ExprId result = results.at(graph_.values[value].result_index);
    return result == kNoExpr ? result : build_.cast(compute_dtype(graph_.type(value).dtype), result);
  }

  ExprId pooled(NodeId id, ValueId value, const Window& window, const ReduceSpec& spec) {
    Coords point = domain_.reduce_points.at(id);
    // A window of the whole input has the input's dimensions for a domain.
    if (!spec.windowed)
      point.insert(point.end() - static_cast<int64_t>(window.dims.size()), window.dims.size(), Index{});
    lowered_.windowed = lowered_.windowed || (spec.windowed && product(window.kernel_shape()) > 1);
    lookups_.guards.clear();
    WindowElement element = element_at(window, point, lookups_);
    ExprId operand = computed_inside(window.operand)
                         ? expr_at(window.operand, element.coords, element.guards)
                         : filled(window.operand, element.coords, element.guards, value_outside(window));
    // A fold has no guards that are looked up: beyond the end of such a window it folds what changes nothing.
    const auto looked_up = std::stable_partition(element.guards.begin(), element.guards.end(),
                                                 [&](const Guard& guard) { return !lookups_.is_lookup(guard.index); });
    const Guards ends(looked_up, element.guards.end());
    element.guards.erase(looked_up, element.guards.end());
    if (!ends.empty() && computed_inside(window.operand))
      operand = build_.select(build_.all_of(ends), operand,
                              build_.constant(build_.dtype(operand), value_outside(window)));
    const Node& node = graph_.nodes[id];
    auto results = lower_window({build_, window, point, element, operand,
                                 compute_dtype(graph_.type(node.results[0]).dtype), node.results.size(), lookups_});
    return reduced(reductions_.emplace(id, std::move(results)).first->second, value);
  }

  ExprId bag(NodeId id, ValueId value, const Bags& bags) {
    lowered_.windowed = lowered_.bags = true;
    const Coords& point = domain_.reduce_points.at(id);
    const BagElement element = bag_element_at(bags, point, lookups_);
    build_.name(build_.index(element.start, DType::i32), "first");
    const Coords place = {element.row, point[1]};
    const double outside = value_outside(bags);
    ExprId operand = computed_inside(bags.table) ? expr_at(bags.table, place, element.guards)
                                                 : filled(bags.table, place, element.guards, outside);
    if (computed_inside(bags.table))
      operand = build_.select(build_.all_of(element.guards), operand, build_.constant(build_.dtype(operand), outside));
    const ExprId weight = bags.weights == kNoValue ? kNoExpr : expr_at(bags.weights, {element.place}, element.guards);
    return reduced(
        reductions_.emplace(id, std::vector<ExprId>{lower_bag({build_, bags, element, operand, weight})}).first->second,
        value);
  }

  // Further back, or along a longer axis than its own, a scan walks its operand with the identity where that has no
  // element.
  ExprId scan_result(NodeId id, int result, const Coords& coords) {
    const auto spec = scan_spec(graph_, id);
    const Coords& point = domain_.reduce_points.at(id);
    const auto shift = spec ? scan_shift(*spec, point, coords) : std::nullopt;
    if (!shift) throw NotLowerable{};
    const ValueId operand = spec->operands[0];
    const auto sort = sort_spec(graph_, graph_.nodes[id]);
    if (spec->reduced_elements() == 1) return scan_of_one(build_, graph_, id, result, expr_at(operand, coords, {}));
    Guards guards;
    Index position;
    for (size_t dim = 0; dim < coords.size(); ++dim)
      if (spec->reduced[dim]) {
        position = coords[dim];
        const Interval range = range_of(position, ranges());
        if (range.low < 0 || range.high >= spec->domain[dim]) guards.push_back({position, 0, spec->domain[dim]});
      }
    if (sort) return sorted(id, result, *sort, expr_at(operand, coords, guards), position);
    // A load can bring the identity itself.
    const std::optional<double> otherwise = guards.empty() || computed_inside(operand) ? std::nullopt
                                                                                       : scan_identity(graph_, id);
    const ExprId value = otherwise ? filled(operand, coords, guards, *otherwise) : expr_at(operand, coords, guards);
    if (otherwise) guards.clear();
    const auto& results = graph_.nodes[id].results;
    const bool with_positions = results.size() > 1 && results[1] != kNoValue &&
                                (facts_.escapes[results[1]] || !facts_.readers[results[1]].empty());
    return lower_scan({build_, graph_, id, result, value, guards.empty() ? kNoExpr : build_.all_of(guards), position,
                       with_positions});
  }

  ExprId sorted(NodeId id, int result, const SortSpec& sort, ExprId operand, const Index& position) {
    // PyTorch compares what it has rounded.
    std::vector<ExprId> operands = {build_.cast(graph_.type(sort.operand).dtype, operand)};
    if (facts_.reads_places(id, sort)) operands.push_back(build_.index(position, DType::i32));
    const DType dtype = build_.dtype(operands.at(result));
    const ExprId made = build_.scan(sort.descending ? ReduceOp::kSortDown : ReduceOp::kSortUp, operands, result,
                                    sort.first < sort.length ? sort.first : 0);
    return build_.cast(result == 1 ? DType::i64 : compute_dtype(dtype), made);
  }

  // Into what holds the node's operand.
  Store scattered(NodeId id) {
    const auto spec = scatter_spec(graph_, id);
    lookups_.guards.clear();
    const auto point = spec ? scatter_point(graph_, id, *spec, domain_.scatter_points.at(id), lookups_) : std::nullopt;
    if (!point) throw NotLowerable{};
    const TensorType& type = graph_.type(spec->into);
    const DType dtype = compute_dtype(type.dtype);
    ExprId value = spec->source == kNoValue ? build_.constant(dtype, spec->number)
                                            : expr_at(spec->source, point->operands[0].coords, {});
    if (spec->alpha != 1.0) value = build_.mul(value, build_.constant(dtype, spec->alpha));
    const int buffer = buffer_of(spec->into, BufferRole::kOutput);
    return build_.scatter(buffer, dot(point->place, type.strides, 0, ranges()), spec->fold,
                          build_.cast(type.dtype, value));
  }

  const GraphFacts& facts_;
  const Graph& graph_;
  std::vector<NodeId> nodes_;
  Domain domain_;
  LoweredGroup lowered_;
  Lookups lookups_;
  std::map<int, ExprId> coordinates_;
  GroupBuilder build_;
  std::map<ValueId, int> buffer_ids_;
  std::set<std::string> buffer_names_;
  std::map<MemoKey, ExprId> memo_;
  std::map<NodeId, std::vector<ExprId>> reductions_;
  std::set<ExprId> filled_;  // loads whose value outside their guards counts
  std::set<ExprId> chosen_;  // loads whose value outside their guards nothing reads
};

std::optional<LoweredGroup> lower_recurrence(const GraphFacts& facts, NodeId node,
                                             const std::vector<ValueId>& outputs) {
  LoweredGroup group;
  group.recurrence = recurrence_of(facts, node);
  if (!group.recurrence) return std::nullopt;
  Recurrence& made = *group.recurrence;
  for (StridedResult* result : {&made.sequence, &made.last_hidden, &made.last_cell, &made.cell_sequence})
    if (std::find(outputs.begin(), outputs.end(), result->value) == outputs.end()) result->value = kNoValue;
  group.kernel.name = kernel_name(facts.graph, {&node, 1});
  group.kernel.doc = kernel_doc(facts.graph, {&node, 1}, outputs);
  return group;
}

}  // namespace

std::optional<LoweredGroup> lower_group(const GraphFacts& facts, std::span<const NodeId> nodes,
                                        const std::vector<ValueId>& outputs) {
  if (outputs.empty()) return std::nullopt;
  if (nodes.size() == 1 && is_recurrence(facts.graph.nodes[nodes[0]]))
    return lower_recurrence(facts, nodes[0], outputs);
  if (auto linear = lower_linear_attention(facts, nodes, outputs)) return linear;
  if (attention_among(facts, nodes)) return lower_attention(facts, nodes, outputs);
  if (const NodeId product = product_among(facts, nodes); product != kNoNode)
    return lower_with_product(facts, nodes, product, outputs);
  if (const NodeId convolution = convolution_among(facts, nodes); convolution != kNoNode)
    return lower_with_convolution(facts, nodes, convolution, outputs);
  auto domain = analyse(facts, nodes, &outputs);
  if (!domain) return std::nullopt;
  try {
    return Lowering(facts, nodes, std::move(*domain)).run();
  } catch (const NotLowerable&) { return std::nullopt; }
}

}  // namespace kw::plan
