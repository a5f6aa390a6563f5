#include "plan/domain.hpp"

#include <algorithm>
#include <set>

#include "plan/reduce_points.hpp"
#include "plan/scatters.hpp"
#include "plan/sorts.hpp"
#include "support/error.hpp"

namespace kw::plan {

int64_t Domain::parallel_elements() const {
  int64_t count = 1;
  for (int axis = 0; axis < parallel; ++axis) count *= extents[axis];
  return count;
}

int64_t Domain::reduced_elements() const {
  int64_t count = 1;
  for (size_t axis = parallel; axis < extents.size(); ++axis) count *= extents[axis];
  return count;
}

namespace {

class Analysis {
 public:
  Analysis(const GraphFacts& facts, std::span<const NodeId> nodes)
      : facts_(facts), graph_(facts.graph), nodes_(nodes.begin(), nodes.end()) {}

  std::optional<Domain> run(std::vector<ValueId> outputs) {
    domain_.outputs = std::move(outputs);
    find_views();
    if (!choose_anchor()) return std::nullopt;
    lookups_.start(ranges_);
    propagate();
    if (!place_reductions() || !place_outputs()) return std::nullopt;
    for (ValueId output : domain_.outputs)
      if (!(scatters(output) ? visit_scatter(producer(output)) : visit(output, domain_.seeds.at(output))))
        return std::nullopt;
    return std::move(domain_);
  }

 private:
  bool inside(NodeId node) const { return std::binary_search(nodes_.begin(), nodes_.end(), node); }
  NodeId producer(ValueId value) const { return graph_.values[value].producer; }
  bool computed_inside(ValueId value) const {
    const NodeId node = producer(facts_.roots[value]);
    return node != kNoNode && inside(node);
  }
  bool scatters(ValueId value) const { return facts_.kinds[producer(value)] == NodeKind::kScatter; }
  const Shape& shape(ValueId value) const { return graph_.type(value).shape; }
  SymbolRanges ranges() const {
    return lookups_.ranges().size() >= domain_.extents.size() ? lookups_.ranges() : SymbolRanges(ranges_);
  }

  // The views between what the nodes read and where it is stored.
  void find_views() {
    std::set<NodeId> views;
    for (NodeId node : nodes_)
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        while (operand != facts_.roots[operand] && views.insert(producer(operand)).second)
          operand = graph_.nodes[producer(operand)].value("self");
      });
    members_.assign(views.begin(), views.end());
    members_.insert(members_.end(), nodes_.begin(), nodes_.end());
    std::sort(members_.begin(), members_.end());
  }

  Coords axes_of(const Shape& domain, const std::vector<bool>& reduced) {
    Coords point(domain.size());
    for (bool wanted : {false, true}) {
      for (size_t dim = 0; dim < domain.size(); ++dim)
        if (reduced[dim] == wanted && domain[dim] != 1) {
          point[dim] = kernel::symbol_index(static_cast<int>(domain_.extents.size()));
          domain_.extents.push_back(domain[dim]);
          ranges_.push_back({0, domain[dim] - 1, 1});
        }
      if (!wanted) domain_.parallel = static_cast<int>(domain_.extents.size());
    }
    return point;
  }

  // The largest reduction's domain, or else the largest result's shape.
  bool choose_anchor() {
    NodeId anchor = kNoNode;
    int64_t largest = -1;
    bool reduces = false;
    if (std::any_of(nodes_.begin(), nodes_.end(),
                    [&](NodeId node) { return facts_.kinds[node] == NodeKind::kScatter; }))
      return anchor_at_scatters();
    for (NodeId node : nodes_) {
      if (!folds(node)) continue;
      const bool scan = facts_.kinds[node] == NodeKind::kScan;
      (scan ? domain_.scans : reduces) = true;
      auto spec = scan ? scan_spec(graph_, node) : reduce_spec(graph_, node);
      if (!spec) return false;
      sorts_ = sorts_ || spec->sorted;
      const int64_t elements = product(spec->domain);
      if (elements > largest) {
        largest = elements;
        anchor = node;
      }
      specs_.emplace(node, std::move(*spec));
    }
    if (domain_.scans && reduces) return false;
    if (domain_.scans) return anchor_at_scan(anchor);
    if (anchor != kNoNode) {
      const ReduceSpec& spec = specs_.at(anchor);
      Coords point = axes_of(spec.domain, spec.reduced);
      domain_.reduce_points[anchor] = point;
      if (spec.windowed) {
        offsets_ = offsets_of(spec, point);
        return seed_results(anchor, spec, point);
      }
      return seed(spec.operands[0], reshape(point, spec.domain, shape(spec.operands[0]), ranges()));
    }
    ValueId value = kNoValue;
    for (NodeId node : nodes_)
      for (ValueId result : graph_.nodes[node].results)
        if (result != kNoValue && graph_.type(result).elements() >= largest) {
          largest = graph_.type(result).elements();
          value = result;
        }
    if (value == kNoValue) return false;
    const Coords point = axes_of(shape(value), std::vector<bool>(shape(value).size(), false));
    return seed(value, point);
  }

  // The points of scatters that run over the same ones. Nothing is folded beside them, and what they write into is not
  // made here.
  bool anchor_at_scatters() {
    Shape domain;
    Coords point;
    for (NodeId node : nodes_) {
      if (folds(node)) return false;
      if (facts_.kinds[node] != NodeKind::kScatter) continue;
      const auto spec = scatter_spec(graph_, node);
      if (!spec || computed_inside(spec->into) || !owns_destination(facts_, node)) return false;
      if (domain_.scatter_points.empty()) {
        domain = spec->domain;
        point = axes_of(domain, std::vector<bool>(domain.size(), false));
      }
      if (spec->domain != domain) return false;
      domain_.scatter_points.emplace(node, point);
      if (spec->source != kNoValue && shape(spec->source) == domain) seed(spec->source, point);
    }
    return true;
  }

  // The part of a windowed reduction's point that says where in the window it is.
  static Coords offsets_of(const ReduceSpec& spec, const Coords& point) {
    Coords offsets;
    for (size_t dim = 0; dim < point.size(); ++dim)
      if (spec.reduced[dim]) offsets.push_back(point[dim]);
    return offsets;
  }

  static Shape offset_shape(const ReduceSpec& spec) {
    Shape shape;
    for (size_t dim = 0; dim < spec.domain.size(); ++dim)
      if (spec.reduced[dim]) shape.push_back(spec.domain[dim]);
    return shape;
  }

  bool seed_results(NodeId id, const ReduceSpec& spec, const Coords& point) {
    bool changed = false;
    for (ValueId result : graph_.nodes[id].results)
      if (result != kNoValue && !find_seed(result))
        changed |= seed(result, reduce_result_coords(spec, point, shape(result), ranges()));
    return changed;
  }

  // Windows of one size walk the same offsets; the elements they read are nobody's place in the domain.
  bool propagate_through_window(NodeId id, const ReduceSpec& spec) {
    const auto known = domain_.reduce_points.find(id);
    if (known != domain_.reduce_points.end()) return seed_results(id, spec, known->second);
    const Coords* result = nullptr;
    for (ValueId value : graph_.nodes[id].results)
      if (value != kNoValue && !result) result = find_seed(value);
    if (!result) return false;
    Coords point = *result;
    size_t next = 0;
    const Shape sizes = offset_shape(spec);
    for (int64_t size : sizes) {
      if (next >= offsets_.size() || range_of(offsets_[next], ranges()).high != size - 1) return false;
      point.push_back(offsets_[next++]);
    }
    if (next != offsets_.size()) return false;
    domain_.reduce_points.emplace(id, point);
    seed_results(id, spec, point);
    return true;
  }

  bool folds(NodeId node) const {
    return facts_.kinds[node] == NodeKind::kReduce || facts_.kinds[node] == NodeKind::kScan;
  }

  // The scan's operand, along a longer axis where a result inside the group is a longer tensor: cat((zeros,
  // cumsum(x))).
  bool anchor_at_scan(NodeId anchor) {
    const ReduceSpec& spec = specs_.at(anchor);
    const auto scanned = static_cast<size_t>(std::find(spec.reduced.begin(), spec.reduced.end(), true) -
                                             spec.reduced.begin());
    Shape domain = spec.domain;
    ValueId longest = kNoValue;
    for (NodeId node : nodes_)
      for (ValueId result : graph_.nodes[node].results) {
        if (result == kNoValue || scanned >= domain.size() || shape(result).size() != domain.size() || node < anchor)
          continue;
        Shape other = shape(result);
        const int64_t length = other[scanned];
        other[scanned] = domain[scanned];
        if (other != domain || length <= domain[scanned]) continue;
        domain[scanned] = length;
        longest = result;
      }
    const Coords point = axes_of(domain, spec.reduced);
    if (longest != kNoValue && (spec.reduced_elements() == 1 || !seed(longest, point))) return false;
    domain_.reduce_points[anchor] = point;
    return seed(spec.operands[0], point);
  }

  bool seed(ValueId value, std::optional<Coords> coords) {
    if (!coords) return false;
    const auto [place, added] = domain_.seeds.emplace(value, std::move(*coords));
    if (added) by_shape_.emplace(shape(value), place->second);
    return added;
  }

  const Coords* find_seed(ValueId value) const {
    const auto found = domain_.seeds.find(value);
    return found == domain_.seeds.end() ? nullptr : &found->second;
  }

  // Carries seeds along the members, forwards and backwards, until nothing changes.
  void propagate() {
    bool changed = true;
    for (int round = 0; changed && round < 6; ++round) {
      changed = false;
      for (NodeId node : members_) changed |= propagate_through(node);
      for (size_t i = members_.size(); i-- > 0;) changed |= propagate_through(members_[i]);
    }
  }

  bool propagate_through(NodeId id) {
    const Node& node = graph_.nodes[id];
    switch (facts_.kinds[id]) {
      case NodeKind::kReduce:
      case NodeKind::kScan: return propagate_through_reduce(id);
      case NodeKind::kView: return propagate_through_view(id);
      case NodeKind::kPointwise:
        return is_elementwise(graph_, id) ? propagate_through_elementwise(node) : propagate_through_view(id);
      default: return false;
    }
  }

  bool propagate_through_elementwise(const Node& node) {
    const ValueId result = node.results[0];
    bool changed = false;
    if (!find_seed(result))
      for_each_operand(node, [&](ValueId operand) {
        const Coords* coords = find_seed(operand);
        if (coords && shape(operand) == shape(result)) changed |= seed(result, *coords);
      });
    if (const Coords* coords = find_seed(result)) {
      const Coords known = *coords;
      for_each_operand(node, [&](ValueId operand) {
        if (shape(operand) == shape(result) && !find_seed(operand)) changed |= seed(operand, known);
      });
    }
    return changed;
  }

  bool propagate_through_view(NodeId id) {
    const Node& node = graph_.nodes[id];
    const ValueId source = node.value("self");
    if (source == kNoValue || node.results.size() != 1 || looks_up(node) ||
        graph_.type(source).elements() != graph_.type(node.results[0]).elements())
      return false;
    const Coords *from = find_seed(source), *to = find_seed(node.results[0]);
    if (from && !to) return seed(node.results[0], push_view(graph_, id, *from, ranges()));
    if (to && !from) {
      auto pulls = pull(graph_, id, 0, *to, lookups_);
      return pulls && pulls->size() == 1 && pulls->front().guards.empty() &&
             seed(source, std::move(pulls->front().coords));
    }
    return false;
  }

  bool propagate_through_reduce(NodeId id) {
    const ReduceSpec& spec = specs_.at(id);
    if (spec.windowed) return propagate_through_window(id, spec);
    bool changed = false;
    auto point = domain_.reduce_points.find(id);
    if (point == domain_.reduce_points.end()) {
      std::optional<Coords> found;
      if (const Coords* coords = find_seed(spec.operands[0]))
        found = reshape(*coords, shape(spec.operands[0]), spec.domain, ranges());
      for (ValueId result : graph_.nodes[id].results)
        if (!found && result != kNoValue && find_seed(result) && graph_.type(result).elements() == product(spec.domain))
          found = reshape(*find_seed(result), shape(result), spec.domain, ranges());
      if (!found) return false;
      point = domain_.reduce_points.emplace(id, std::move(*found)).first;
      changed = true;
    }
    for (ValueId operand : spec.operands)
      if (!find_seed(operand)) changed |= seed(operand, reshape(point->second, spec.domain, shape(operand), ranges()));
    for (ValueId result : graph_.nodes[id].results)
      if (result != kNoValue && !find_seed(result))
        changed |= seed(result, reduce_result_coords(spec, point->second, shape(result), ranges()));
    return changed;
  }

  // What an elementwise node reads by broadcasting stands where its result stands.
  void seed_broadcasts() {
    for (NodeId id : members_) {
      const Node& node = graph_.nodes[id];
      if (facts_.kinds[id] != NodeKind::kPointwise || !is_elementwise(graph_, id)) continue;
      const ValueId result = node.results[0];
      const Coords* coords = find_seed(result);
      if (!coords) continue;
      const Coords known = *coords;
      for_each_operand(node, [&](ValueId operand) {
        if (!find_seed(operand) && shape(operand) != shape(result) && shape(operand).size() == shape(result).size())
          seed(operand, broadcast(known, shape(result), shape(operand)));
      });
    }
  }

  // A reduction over the same axes whose rows are shared by neighbouring ones of the domain (the mask of a masked
  // mean): each program folds its row again, once for its whole block of the innermost parallel axis.
  bool is_broadcast(const ReduceSpec& spec, const Coords& point) const {
    if (spec.windowed || domain_.scans || domain_.parallel == 0 ||
        spec.reduced_elements() != domain_.reduced_elements())
      return false;
    if (domain_.extents[domain_.parallel - 1] < 32) return false;
    std::vector<bool> used(domain_.parallel, false);
    int64_t kept = 1;
    for (size_t dim = 0; dim < spec.domain.size(); ++dim) {
      if (spec.reduced[dim]) continue;
      kept *= spec.domain[dim];
      for (const kernel::Digit& digit : kernel::digits_of(point[dim]))
        if (digit.axis < domain_.parallel) used[digit.axis] = true;
    }
    int64_t reached = 1;
    for (int axis = 0; axis < domain_.parallel; ++axis)
      if (used[axis]) reached *= domain_.extents[axis];
    return !used[domain_.parallel - 1] && kept == reached;
  }

  // A fold that waits for a shared row's would have every program walk that row first, by few lanes and with nothing
  // beside it: slower than a kernel of its own.
  bool no_fold_waits_for_broadcast() const {
    std::set<NodeId> after;
    for (NodeId node : nodes_) {
      bool waits = false;
      for_each_operand(graph_.nodes[node], [&](ValueId operand) {
        const NodeId source = producer(facts_.roots[operand]);
        waits = waits || after.contains(source) || broadcast_.contains(source);
      });
      if (waits && folds(node)) return false;
      if (waits) after.insert(node);
    }
    return true;
  }

  // Every reduction must fold exactly the domain's reduce axes.
  bool place_reductions() {
    for (const auto& [node, spec] : specs_) {
      auto point = domain_.reduce_points.find(node);
      if (point == domain_.reduce_points.end()) {
        const ValueId anchor = spec.windowed ? graph_.nodes[node].results[0] : spec.operands[0];
        const auto known = by_shape_.find(shape(anchor));
        if (known != by_shape_.end() && seed(anchor, known->second)) propagate_through_reduce(node);
        else if (!spec.windowed && !domain_.scans && !find_seed(anchor)) seed_broadcasts();
        else return false;
        propagate();
        point = domain_.reduce_points.find(node);
        if (point == domain_.reduce_points.end()) return false;
      }
      const bool longer = domain_.scans && domain_.reduced_elements() > spec.reduced_elements() &&
                          spec.reduced_elements() > 1;
      const int64_t wanted = domain_.parallel_elements() *
                             (longer ? spec.reduced_elements() : domain_.reduced_elements());
      if (longer && spec.sorted) return false;
      if (product(spec.domain) != wanted) {
        if (!is_broadcast(spec, point->second)) return false;
        broadcast_.insert(node);
      }
      if (domain_.scans && !walks_scan_axis(spec, point->second)) return false;
      for (size_t dim = 0; dim < spec.domain.size(); ++dim)
        for (const kernel::Digit& digit : kernel::digits_of(point->second[dim]))
          if ((digit.axis >= domain_.parallel) != spec.reduced[dim]) return false;
    }
    return broadcast_.empty() || no_fold_waits_for_broadcast();
  }

  // Scans of one kernel walk the same axis in the same direction from the same place.
  bool walks_scan_axis(const ReduceSpec& spec, const Coords& point) const {
    if (!domain_.has_reduction()) return true;
    for (size_t dim = 0; dim < spec.domain.size(); ++dim)
      if (spec.reduced[dim] && point[dim] != axis_index(domain_.parallel, ranges())) return false;
    return true;
  }

  // An output must be stored once by each point of the parallel axes, or once by each point of the domain.
  bool place_outputs() {
    for (ValueId output : domain_.outputs) {
      if (scatters(output)) continue;
      if (!find_seed(output)) {
        if (const auto known = place_of_shape(shape(output))) seed(output, known);
        else if (domain_.reduce_points.empty() && graph_.type(output).elements() == domain_.parallel_elements())
          seed(output, delinearise(whole_domain(), shape(output), ranges()));
        if (!find_seed(output)) return false;
      }
      std::vector<bool> used(domain_.extents.size(), false);
      for (const Index& index : domain_.seeds.at(output)) kernel::collect_symbols(index, used);
      const bool all_parallel = std::all_of(used.begin(), used.begin() + domain_.parallel,
                                            [](bool one) { return one; });
      const auto reduced = std::count(used.begin() + domain_.parallel, used.end(), true);
      if (!all_parallel || (reduced != 0 && reduced != static_cast<int64_t>(used.size()) - domain_.parallel))
        return false;
      if (graph_.type(output).elements() != domain_.parallel_elements() * (reduced ? domain_.reduced_elements() : 1) &&
          !(reduced && is_first_places(output)))
        return false;
      const TensorType& type = graph_.type(output);
      for (size_t dim = 0; dim < type.shape.size(); ++dim)
        if (type.shape[dim] > 1 && type.strides[dim] == 0) return false;
    }
    return true;
  }

  // Where the elements of a tensor of that shape stand, or of one that differs in axes of one element alone.
  std::optional<Coords> place_of_shape(const Shape& wanted) const {
    if (const auto known = by_shape_.find(wanted); known != by_shape_.end()) return known->second;
    const auto longer = [](const Shape& shape) {
      Shape sizes = shape;
      std::erase(sizes, 1);
      return sizes;
    };
    for (const auto& [known, coords] : by_shape_)
      if (longer(known) == longer(wanted)) return reshape(coords, known, wanted, ranges());
    return std::nullopt;
  }

  // Of sorted rows, the first places alone.
  bool is_first_places(ValueId output) {
    if (!sorts_) return false;
    const Coords& coords = domain_.seeds.at(output);
    for (size_t dim = 0; dim < coords.size(); ++dim) {
      const int64_t first = shape(output)[dim];
      if (coords[dim] != axis_index(domain_.parallel, ranges()) ||
          graph_.type(output).elements() != domain_.parallel_elements() * first)
        continue;
      domain_.first_places[output] = first;
      return true;
    }
    return false;
  }

  Index whole_domain() const {
    Coords axes;
    for (size_t axis = 0; axis < domain_.extents.size(); ++axis)
      axes.push_back(axis_index(static_cast<int>(axis), ranges()));
    return linearise(axes, domain_.extents, ranges());
  }

  bool visit_scatter(NodeId node) {
    const auto spec = scatter_spec(graph_, node);
    const auto point = spec ? scatter_point(graph_, node, *spec, domain_.scatter_points.at(node), lookups_)
                            : std::nullopt;
    return point && std::all_of(point->operands.begin(), point->operands.end(),
                                [&](const Pull& one) { return visit(one.value, one.coords); });
  }

  bool visit(ValueId value, const Coords& coords) {
    if (!computed_inside(value))
      return !sorts_ || has_element(value, coords);  // a load through the value's own strides
    auto& seen = visited_[value];
    for (const Coords& earlier : seen)
      if (earlier == coords) return true;
    seen.push_back(coords);
    // Recomputing a value at many places is dearer than storing it.
    if (seen.size() > 4) return false;
    const NodeId node = producer(value);
    const int result = graph_.values[value].result_index;
    std::optional<std::vector<Pull>> pulls;
    if (facts_.kinds[node] == NodeKind::kScan) {
      const ReduceSpec& spec = specs_.at(node);
      const auto shift = scan_shift(spec, domain_.reduce_points.at(node), coords);
      if (!shift || (*shift != 0 && spec.sorted)) return false;
      pulls = pull_reduce(graph_, node, spec, coords, lookups_);
    } else if (facts_.kinds[node] == NodeKind::kReduce) {
      const Coords* expected = find_seed(value);
      if (!expected || *expected != coords) return false;
      pulls = pull_reduce(graph_, node, specs_.at(node), domain_.reduce_points.at(node), lookups_);
    } else if (facts_.kinds[node] == NodeKind::kFactory) {
      return true;
    } else if (facts_.kinds[node] == NodeKind::kScatter) {
      return false;  // complete only when the kernel ends
    } else {
      pulls = pull(graph_, node, result, coords, lookups_);
    }
    if (!pulls) return false;
    return std::all_of(pulls->begin(), pulls->end(), [&](const Pull& one) { return visit(one.value, one.coords); });
  }

  // What is as short as a topk's result has no element beside the places that nobody asked for.
  bool has_element(ValueId value, const Coords& coords) const {
    for (size_t dim = 0; dim < coords.size(); ++dim)
      if (const Interval range = range_of(coords[dim], ranges()); range.low < 0 || range.high >= shape(value)[dim])
        return false;
    return true;
  }

  const GraphFacts& facts_;
  const Graph& graph_;
  bool sorts_ = false;
  std::vector<NodeId> nodes_;
  std::vector<NodeId> members_;  // nodes and the views between them
  std::map<NodeId, ReduceSpec> specs_;
  std::set<NodeId> broadcast_;  // reductions over the same axes for fewer rows
  Lookups lookups_;
  Coords offsets_;                    // of the largest reduction, if it is windowed
  std::map<Shape, Coords> by_shape_;  // first seed of each shape
  std::map<ValueId, std::vector<Coords>> visited_;
  Domain domain_;
  std::vector<kernel::SymbolRange> ranges_;  // of its axes
};

}  // namespace

std::vector<ValueId> outputs_of(const GraphFacts& facts, std::span<const NodeId> nodes) {
  const auto outside = [&](NodeId reader) { return !std::binary_search(nodes.begin(), nodes.end(), reader); };
  std::vector<ValueId> outputs;
  for (NodeId node : nodes)
    for (ValueId result : facts.graph.nodes[node].results) {
      if (result == kNoValue) continue;
      const auto& readers = facts.readers[result];
      if (facts.escapes[result] || std::any_of(readers.begin(), readers.end(), outside)) outputs.push_back(result);
    }
  return outputs;
}

std::optional<Domain> analyse(const GraphFacts& facts, std::span<const NodeId> nodes,
                              const std::vector<ValueId>* outputs) {
  return Analysis(facts, nodes).run(outputs ? *outputs : outputs_of(facts, nodes));
}

}  // namespace kw::plan
