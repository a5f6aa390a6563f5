#include "plan/halves_by_producers.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "plan/axes.hpp"
#include "plan/estimate.hpp"
#include "plan/group_kinds.hpp"
#include "plan/kernel_schedules.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using Role = OperandDimension::Role;

// Beyond every exponent of a number in single precision that is not infinite.
constexpr double kBeyondExponents = 200.0;

bool is_of_elements(const LoweredGroup& group) {
  return !group.product && !group.attention && !group.convolution && !group.producer && !group.statistics &&
         !group.recurrence && !group.windowed && !group.bags && scan_axis_of(group.kernel) < 0 &&
         !scatters(group.kernel) && !sorts(group.kernel);
}

// Where the dimensions' coordinates stand in an index, or that of a tensor with such strides. nullopt: the index cannot
// be taken apart into them.
std::optional<std::vector<Index>> coordinates_of(const Index& position, const std::vector<OperandDimension>& dimensions,
                                                 kernel::SymbolRanges ranges) {
  std::vector<Index> coordinates;
  for (const OperandDimension& one : dimensions) {
    const auto above = kernel::divide_digits(position, one.stride, ranges);
    const auto within = above ? kernel::divide_digits(above->quotient, one.extent, ranges) : std::nullopt;
    if (!within) return std::nullopt;
    coordinates.push_back(within->remainder);
  }
  return coordinates;
}

Index joined(const std::vector<Index>& coordinates, const Shape& strides, kernel::SymbolRanges ranges) {
  Index index = 0;
  for (size_t dim = 0; dim < coordinates.size(); ++dim)
    index = kernel::joined_digits(index, coordinates[dim] * strides[dim], ranges);
  return index;
}

std::vector<bool> axes_in(const Index& index, size_t count) {
  std::vector<bool> axes(count);
  kernel::collect_symbols(index, axes);
  return axes;
}

// Do the dimensions meet every element of a tensor with no gaps once?
bool tile_exactly(std::vector<OperandDimension> dimensions) {
  std::erase_if(dimensions, [](const OperandDimension& one) { return one.extent == 1; });
  std::sort(dimensions.begin(), dimensions.end(),
            [](const OperandDimension& one, const OperandDimension& other) { return one.stride < other.stride; });
  int64_t next = 1;
  for (const OperandDimension& one : dimensions) {
    if (one.stride != next) return false;
    next *= one.extent;
  }
  return true;
}

// Are those of the kernel's axes with more than one point that lie along rows the ones that it folds, and no others?
bool folds_along(const GroupKernel& kernel, const Index& depth, const std::vector<Index>& others) {
  const auto count = static_cast<size_t>(axis_count(kernel));
  const std::vector<bool> along = axes_in(depth, count);
  std::vector<bool> across(count);
  for (const Index& other : others) kernel::collect_symbols(other, across);
  for (size_t axis = 0; axis < count; ++axis) {
    const bool is_folded = is_serial(kernel, static_cast<int>(axis));
    if (extent_of(kernel, static_cast<int>(axis)) > 1 && (along[axis] != is_folded || across[axis] == is_folded))
      return false;
  }
  return true;
}

// Walks a tensor that the kernel stores at `position`, once at each point, by these dimensions, which meet every
// element once, and folds its rows. The kernel has folded nothing before.
bool walk_by(GroupKernel& kernel, const Index& position, std::vector<OperandDimension> dimensions) {
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const OperandDimension& one, const OperandDimension& other) {
                     const bool is_outer = one.role != Role::kDepth, other_is = other.role != Role::kDepth;
                     return is_outer != other_is ? is_outer : one.stride > other.stride;
                   });
  std::vector<kernel::SymbolInfo> axes;
  std::vector<kernel::SymbolRange> ranges;
  for (const OperandDimension& one : dimensions) {
    axes.push_back(axis_of("", one.extent));
    ranges.push_back(axes.back().range);
  }
  Index place = 0;
  for (size_t dim = 0; dim < dimensions.size(); ++dim)
    place = place + axis_index(static_cast<int>(dim), ranges) * dimensions[dim].stride;
  std::vector<Index> replacement(kernel.symbols.size(), Index(0));
  for (const kernel::Digit& digit : kernel::digits_of(position)) {
    if (!digit.is_plain()) return false;
    const auto above = kernel::divide_digits(place, digit.coefficient, ranges);
    const auto within = above ? kernel::divide_digits(above->quotient, extent_of(kernel, digit.axis), ranges)
                              : std::nullopt;
    if (!within) return false;
    replacement[digit.axis] = within->remainder;
  }
  return replace_axes(kernel, std::move(axes), static_cast<int>(dimensions.size()) - 1, replacement);
}

std::string unused_prefix(const GroupKernel& kernel) {
  const auto is_used = [&](const std::string& prefix) {
    return std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                       [&](const Expr& expr) { return expr.name.starts_with(prefix); });
  };
  std::string prefix = "halves_";
  for (int count = 2; is_used(prefix); ++count) prefix = "halves_" + std::to_string(count) + "_";
  return prefix;
}

class Extension {
 public:
  Extension(LoweredGroup group, const StoredHalves& halves) : group_(std::move(group)), halves_(halves) {}

  std::optional<LoweredGroup> run() {
    GroupKernel& kernel = group_.kernel;
    const auto store = std::find_if(kernel.stores.begin(), kernel.stores.end(), [&](const Store& one) {
      return group_.buffers[one.access.buffer] == halves_.layout.root;
    });
    if (!is_of_elements(group_) || store == kernel.stores.end() || store->combines || store->access.mask != kNoExpr ||
        !store->over.empty() || kernel.buffers[store->access.buffer].dtype != DType::f32 ||
        !lies_as_it_is_split(*store))
      return std::nullopt;
    const auto place = store - kernel.stores.begin();
    if (!fold_rows(place)) return std::nullopt;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(kernel);
    const auto coordinates = coordinates_of(index_of(kernel.stores[place].access), dimensions(), ranges);
    if (!coordinates) return std::nullopt;
    add(place, *coordinates, ranges);
    return std::move(group_);
  }

 private:
  const std::vector<OperandDimension>& dimensions() const { return halves_.layout.dimensions; }

  // Rows that end within a vector of halves are filled up by the kernel that splits, whose blocks have them whole.
  bool lies_as_it_is_split(const Store& store) const {
    const Shape extents = extents_of(dimensions());
    return halves_.layout.offset == 0 && tile_exactly(dimensions()) &&
           product(extents) == elements_of(group_.kernel.buffers[store.access.buffer]) &&
           extents == extents_of(padded(dimensions()));
  }

  // The value's rows are then what the kernel folds.
  bool fold_rows(std::ptrdiff_t store) {
    GroupKernel& kernel = group_.kernel;
    const auto position = [&] { return index_of(kernel.stores[store].access); };
    if (is_pointwise(group_) && !walk_by(kernel, position(), dimensions())) return false;
    const auto coordinates = coordinates_of(position(), dimensions(), kernel::ranges_of(kernel));
    if (!coordinates) return false;
    Index depth = 0;
    std::vector<Index> others;
    int64_t length = 1;
    for (size_t dim = 0; dim < coordinates->size(); ++dim) {
      if (dimensions()[dim].role != Role::kDepth) {
        others.push_back((*coordinates)[dim]);
        continue;
      }
      depth = (*coordinates)[dim];
      length = dimensions()[dim].extent;
    }
    return length > 1 && reduce_points(kernel) == length && folds_along(kernel, depth, others);
  }

  int buffer(const std::string& name, DType dtype, int64_t elements, int tensor) {
    group_.kernel.buffers.push_back(row_of_elements(name, dtype, elements, kernel::BufferRole::kOutput));
    group_.buffers.push_back(tensor);
    return static_cast<int>(group_.buffers.size()) - 1;
  }

  void add(int64_t place, const std::vector<Index>& coordinates, kernel::SymbolRanges ranges) {
    GroupKernel& kernel = group_.kernel;
    const std::string name = kernel.buffers[kernel.stores[place].access.buffer].name;
    const bool two = halves_.layout.halves == Halves::kTwo;
    kernel.doc += "; " + name + (two ? " as sums of halves" : " as halves");
    std::vector<kernel::Symbol> rows;
    for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis) rows.push_back(axis);
    const int64_t count = reduce_points(kernel), elements = product(extents_of(dimensions()));

    kernel::Builder build(kernel);
    const HalvesOfRow row = halves_of_row(build, kernel.stores[place].value, rows, count, unused_prefix(kernel),
                                          halves_.layout.halves);
    const SplitNumbers numbers = split_numbers(build, row, count, halves_.layout.halves);
    const Index all = joined(coordinates, padded_strides(dimensions()), ranges);
    const auto store = [&](const std::string& what, DType dtype, int64_t size, int tensor, const Index& index,
                           ExprId value) {
      const int made = buffer(name + what, dtype, size, tensor);
      kernel.stores.push_back({element_at(made, index), value});
    };
    store("_high", DType::f16, elements, halves_.high, all, numbers.high);
    if (two) store("_low", DType::f16, elements, halves_.low, all, numbers.low);

    std::vector<Index> outer;
    for (size_t dim = 0; dim < coordinates.size(); ++dim)
      if (dimensions()[dim].role != Role::kDepth) outer.push_back(coordinates[dim]);
    const Shape shape = extents_of(without_depth(dimensions()));
    const Index of_row = joined(outer, contiguous_strides(shape), ranges);
    store("_scale", DType::f32, product(shape), halves_.scale, of_row, numbers.scale);
    store("_large", DType::i32, product(shape), halves_.large, of_row, numbers.near);
    store("_needs", DType::i32, product(shape), halves_.needs, of_row, numbers.needs);
    if (halves_.whole < 0) return;
    // A single small number, an infinity or a NaN: the row cannot be had from its halves.
    const auto number = [&](double value) { return build.constant(DType::f32, value); };
    const ExprId held = build.op(ScalarOp::kLogicalAnd,
                                 {build.op(ScalarOp::kLessEqual, {row.small, number(0.0)}),
                                  build.op(ScalarOp::kLess, {row.exponent, number(kBeyondExponents)})});
    const ExprId whole = build.op(
        ScalarOp::kSelect, {held, build.constant(DType::i32, int64_t{0}), build.constant(DType::i32, int64_t{1})});
    store("_whole", DType::i32, product(shape), halves_.whole, of_row, whole);
    kernel.stores[place].access.mask = build.op(ScalarOp::kLogicalNot, {held});
  }

  LoweredGroup group_;
  const StoredHalves& halves_;
};

// Numbers of a block's tile while rows' scales are found and rows are split: a quarter of a multiprocessor's registers.
// A LayerNorm of 32 rows of 768 at a time, tiles of 32,768, spilled 616 bytes a thread and lost a tenth of its module's
// time on an H200; a row of 16,384 gains.
constexpr int64_t kMostOfBlock = 1 << 14;

int64_t largest_tile(const tile::Program& program) {
  int64_t largest = 0;
  for (const tile::ValueInfo& value : program.values) {
    int64_t points = 1;
    for (const tile::Symbol lane : value.type.lanes) points *= tile::width_of(program, lane);
    largest = std::max(largest, points);
  }
  return largest;
}

class Chooser {
 public:
  Chooser(const GraphFacts& facts, const Schedule& schedule, const std::vector<std::vector<ValueId>>& outputs,
          const std::map<ValueId, Place>& places, const DeviceDescription& device)
      : facts_(facts), schedule_(schedule), outputs_(outputs), places_(places), device_(device) {}

  HalvesByProducers run() {
    for (size_t group = 0; group < schedule_.groups.size(); ++group) find_splits(group);
    for (size_t group = 0; group < schedule_.groups.size(); ++group)
      for (const ValueId value : outputs_[group])
        if (splits_.contains(value) && !places_.contains(value)) choose(group, value);
    return std::move(made_);
  }

 private:
  struct Reader {
    size_t group = 0;
    SplitByKernel split;
    double seconds = 0;  // of the kernel that splits, with its launch
  };

  std::optional<LoweredGroup> lowered(size_t group) const {
    return lower_group(facts_, schedule_.groups[group].nodes, outputs_[group]);
  }

  // Does some node read what other groups make in single precision? Most products read weights and inputs alone.
  bool may_split(const std::vector<NodeId>& nodes) const {
    bool found = false;
    for (const NodeId node : nodes)
      for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) {
        const ValueId root = facts_.roots[operand];
        const NodeId maker = facts_.graph.values[root].producer;
        found = found || (maker != kNoNode && !std::binary_search(nodes.begin(), nodes.end(), maker) &&
                          facts_.graph.type(root).dtype == DType::f32);
      });
    return found;
  }

  // Of a product in single precision, the kernels that split its operands.
  void find_splits(size_t group) {
    const GroupSchedule& one = schedule_.groups[group];
    const Scheduler* scheduler = find_scheduler(one.scheduler, device_);
    const bool multiplies = one.scheduler == kContractionScheduler.name || one.scheduler == kAttentionScheduler.name;
    if (!multiplies || !scheduler || outputs_[group].empty() || !may_split(one.nodes)) return;
    auto kernels = lowered(group);
    if (!kernels || !takes(*scheduler, *kernels)) return;
    const auto made = lowered_by(*scheduler, *std::move(kernels), one.parameters, device_);
    if (!made) return;
    for (const SplitByKernel& split : made->splits) {
      const tile::Program& program = made->tiles[split.tile].program;
      const NodeId maker = facts_.graph.values[split.layout.root].producer;
      if (maker == kNoNode || one.kernels.contains(program.name)) continue;
      splits_[split.layout.root].push_back({group, split, device_.launch_seconds + kw::seconds_of(program, device_)});
    }
  }

  // That of most readers; of the first where several are.
  const SplitLayout& usual_layout(const std::vector<Reader>& readers) const {
    const auto count = [&](const Reader& one) {
      return std::count_if(readers.begin(), readers.end(),
                           [&](const Reader& other) { return other.split.layout == one.split.layout; });
    };
    return std::max_element(readers.begin(), readers.end(),
                            [&](const Reader& one, const Reader& other) { return count(one) < count(other); })
        ->split.layout;
  }

  // Does something read the value other than those readers, which do so only where halves do not hold it?
  bool is_read_whole(ValueId value, const std::vector<Reader>& readers) const {
    if (facts_.escapes[value]) return true;
    for (size_t group = 0; group < schedule_.groups.size(); ++group) {
      const std::vector<NodeId>& nodes = schedule_.groups[group].nodes;
      if (std::binary_search(nodes.begin(), nodes.end(), facts_.graph.values[value].producer)) continue;
      int64_t reads = 0;
      for (const NodeId node : nodes)
        for_each_operand(facts_.graph.nodes[node],
                         [&](ValueId operand) { reads += facts_.roots[operand] == value ? 1 : 0; });
      const auto spared = std::count_if(readers.begin(), readers.end(), [&](const Reader& one) {
        return one.group == group && one.split.needs_halves_alone;
      });
      if (reads > spared) return true;
    }
    return false;
  }

  int tensor(const std::string& name, DType dtype, const Shape& shape, const Shape& strides) {
    Scratch one;
    one.name = name;
    one.type.dtype = dtype;
    one.type.shape = shape;
    one.type.strides = strides;
    made_.tensors.push_back(std::move(one));
    return static_cast<int>(facts_.graph.values.size() + made_.tensors.size()) - 1;
  }

  StoredHalves tensors_for(const SplitLayout& layout, bool whole) {
    const std::string& name = facts_.graph.values[layout.root].name;
    StoredHalves halves{.layout = layout};
    const Shape shape = extents_of(padded(layout.dimensions)), strides = padded_strides(layout.dimensions);
    const Shape rows = extents_of(without_depth(layout.dimensions)), along = contiguous_strides(rows);
    halves.high = tensor(name + "_high", DType::f16, shape, strides);
    if (layout.halves == Halves::kTwo) halves.low = tensor(name + "_low", DType::f16, shape, strides);
    halves.scale = tensor(name + "_scale", DType::f32, rows, along);
    halves.large = tensor(name + "_large", DType::i32, rows, along);
    halves.needs = tensor(name + "_needs", DType::i32, rows, along);
    if (!whole) halves.whole = tensor(name + "_whole", DType::i32, rows, along);
    return halves;
  }

  // The group as it is now: its kernels, and what they take.
  std::optional<HalvesByProducers::Producer> as_it_is(size_t group) const {
    if (const auto known = made_.producers.find(group); known != made_.producers.end()) return known->second;
    const GroupSchedule& one = schedule_.groups[group];
    const Scheduler* scheduler = find_scheduler(one.scheduler, device_);
    if (!scheduler || scheduler->work != GroupWork::kElements) return std::nullopt;
    auto kernels = lowered(group);
    if (!kernels || !takes(*scheduler, *kernels)) return std::nullopt;
    return HalvesByProducers::Producer{*std::move(kernels), scheduler, one.parameters, {}};
  }

  // Infinite where lowering refuses it, or a schedule that the group has for one of its kernels is not this one's.
  double seconds_of(const HalvesByProducers::Producer& one, size_t group) const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    auto made = lowered_by(*one.scheduler, one.group, one.parameters, device_);
    if (!made) return kNever;
    try {
      reschedule(*made, schedule_.groups[group].kernels, device_, "");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      return kNever;
    }
    return plan::seconds_of(*made, device_);
  }

  bool fits_registers(const HalvesByProducers::Producer& one) const {
    const auto made = lowered_by(*one.scheduler, one.group, one.parameters, device_);
    return made && std::all_of(made->tiles.begin(), made->tiles.end(),
                               [](const ScheduledTiles& tiles) { return largest_tile(tiles.program) <= kMostOfBlock; });
  }

  void choose(size_t maker, ValueId value) {
    std::vector<Reader> readers = splits_.at(value);
    const SplitLayout layout = usual_layout(readers);
    std::erase_if(readers, [&](const Reader& one) { return !(one.split.layout == layout) || one.group <= maker; });
    auto now = as_it_is(maker);
    if (!now || readers.empty()) return;
    const size_t tensors = made_.tensors.size();
    const StoredHalves halves = tensors_for(layout, is_read_whole(value, readers));
    auto extended = with_halves(*now, halves);
    // Where the group's own schedules are those of kernels that store halves, it has no time without.
    if (!extended || !fits_registers(*extended) ||
        seconds_of(*extended, maker) >= seconds_of(*now, maker) + readers.front().seconds) {
      made_.tensors.resize(tensors);
      return;
    }
    for (size_t place = tensors; place < made_.tensors.size(); ++place)
      extended->tensors.push_back(static_cast<int>(place));
    made_.producers.insert_or_assign(maker, *std::move(extended));
    for (const Reader& one : readers) {
      std::vector<StoredHalves>& known = made_.readers[one.group];
      const bool is_new = std::none_of(known.begin(), known.end(),
                                       [&](const StoredHalves& other) { return other.layout == layout; });
      if (is_new) known.push_back(halves);
    }
  }

  // A group of rows keeps its parameters; what was one of elements has those that the scheduler gives it.
  std::optional<HalvesByProducers::Producer> with_halves(const HalvesByProducers::Producer& now,
                                                         const StoredHalves& halves) const {
    auto group = storing_halves(now.group, halves);
    if (!group) return std::nullopt;
    HalvesByProducers::Producer made = now;
    made.group = *std::move(group);
    if (takes(*now.scheduler, made.group)) return made;
    made.scheduler = scheduler_for(made.group, device_);
    if (!made.scheduler) return std::nullopt;
    made.parameters = made.scheduler->defaults(made.group, device_);
    return made;
  }

  const GraphFacts& facts_;
  const Schedule& schedule_;
  const std::vector<std::vector<ValueId>>& outputs_;
  const std::map<ValueId, Place>& places_;
  const DeviceDescription& device_;
  std::map<ValueId, std::vector<Reader>> splits_;  // of a value, in the order of the groups
  HalvesByProducers made_;
};

}  // namespace

std::optional<LoweredGroup> storing_halves(const LoweredGroup& group, const StoredHalves& halves) {
  return Extension(group, halves).run();
}

HalvesByProducers halves_by_producers(const GraphFacts& facts, const Schedule& schedule,
                                      const std::vector<std::vector<ValueId>>& outputs,
                                      const std::map<ValueId, Place>& places, const DeviceDescription& device) {
  if (device.half_flops == 0) return {};  // no tensor cores: nothing is split
  return Chooser(facts, schedule, outputs, places, device).run();
}

}  // namespace kw::plan
