#include "lower/axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "support/error.hpp"

namespace kw::lower {
namespace {

constexpr int64_t kBytesOfVector = 16;

using tile::SymbolKind;

tile::BufferRole role_of(kernel::BufferRole role) {
  switch (role) {
    case kernel::BufferRole::kInput: return tile::BufferRole::kInput;
    case kernel::BufferRole::kOutput: return tile::BufferRole::kOutput;
    case kernel::BufferRole::kInOut: return tile::BufferRole::kInOut;
  }
  return tile::BufferRole::kInput;
}

class Mapper {
 public:
  Mapper(const kernel::Kernel& kernel, const KernelSchedule& schedule) : kernel_(kernel), schedule_(schedule) {}

  Mapped run() {
    program().name = kernel_.name;
    program().doc = kernel_.doc;
    program().warps = schedule_.warps;
    program().max_registers = schedule_.max_registers;
    program().approximate = schedule_.approximate;
    mapped_.scheme = schedule_.scheme;
    mapped_.narrow_products = schedule_.narrow_products;
    mapped_.bulk.assign(kernel_.buffers.size(), schedule_.bulk);
    for (const auto& [name, loading] : schedule_.operands)
      for (size_t buffer = 0; buffer < kernel_.buffers.size(); ++buffer)
        if (kernel_.buffers[buffer].name == name) mapped_.bulk[buffer] = loading == Loading::kBulk;
    if (schedule_.consumers.count > 1)
      mapped_.consumers = {-1, schedule_.consumers.count, schedule_.consumers.programs};
    mapped_.bulk_stores = schedule_.bulk_stores;
    mapped_.serpentine = schedule_.serpentine;
    mapped_.loads_first = schedule_.loads_first;
    mapped_.in_order = schedule_.in_order;
    mapped_.axes.resize(kernel_.symbols.size());
    size_t place = 0;
    for (kernel::Symbol axis : kernel::axes_of(kernel_)) schedules_[axis] = &schedule_.axes[place++];
    for (size_t symbol = 0; symbol < kernel_.symbols.size(); ++symbol) {
      const kernel::SymbolInfo& info = kernel_.symbols[symbol];
      if (info.kind == kernel::SymbolKind::kSize)
        mapped_.axes[symbol].index = mapped_.axes[symbol].whole = kernel::symbol_index(
            add(info.name, SymbolKind::kSize, info.range));
      else map_axis(static_cast<kernel::Symbol>(symbol));
    }
    for (const auto& [axis, schedule] : schedules_) make_last(axis, *schedule);
    part_lanes();
    for (const kernel::Buffer& buffer : kernel_.buffers) {
      tile::Buffer one;
      one.name = buffer.name;
      one.dtype = buffer.dtype;
      one.role = role_of(buffer.role);
      one.alignment = buffer.alignment;
      for (const kernel::Index& size : buffer.shape) one.shape.push_back(mapped_.translate(size));
      for (const kernel::Index& stride : buffer.strides) one.strides.push_back(mapped_.translate(stride));
      program().buffers.push_back(std::move(one));
    }
    share_rows();
    set_order();
    set_nest();
    return std::move(mapped_);
  }

 private:
  tile::Program& program() { return mapped_.program; }

  tile::Symbol add(std::string name, SymbolKind kind, kernel::SymbolRange range, tile::Index count = {}) {
    program().symbols.push_back({std::move(name), kind, range, std::move(count)});
    return static_cast<tile::Symbol>(program().symbols.size()) - 1;
  }

  // Behind all other lanes: tiles have theirs in this order. Triton's threads follow first what lies side by side in
  // memory, the remainder, and then the first of a tile's dimensions.
  void make_last(kernel::Symbol symbol, const AxisSchedule& schedule) {
    if (!schedule.last) return;
    MappedAxis& axis = mapped_.axes[symbol];
    const std::string& name = kernel_.symbols[symbol].name;
    if (schedule.split > 1) axis.remainder = add(name + "_remainder", SymbolKind::kLane, {0, schedule.split - 1});
    axis.last = add(name + (schedule.split > 1 ? "_quotient" : "_last"), SymbolKind::kLane,
                    {0, schedule.width / schedule.split - 1});
    axis.index = axis.index - kernel::symbol_index(axis.lane) +
                 kernel::symbol_index(axis.last) * tile::Index(schedule.split);
    if (schedule.split > 1) axis.index = axis.index + kernel::symbol_index(axis.remainder);
  }

  kernel::Symbol symbol_of(const std::string& name) const {
    for (size_t symbol = 0; symbol < kernel_.symbols.size(); ++symbol)
      if (kernel_.symbols[symbol].name == name) return static_cast<kernel::Symbol>(symbol);
    return -1;
  }

  // The axis within this one; −1 where there is none.
  kernel::Symbol within(kernel::Symbol outer) const {
    for (const auto& [axis, schedule] : schedules_)
      if (schedule->within == kernel_.symbols[outer].name) return axis;
    return -1;
  }

  // The lanes of two axes that are one in products, behind them. Of several such pairs those within come first: they
  // are often neighbours in memory, which threads follow (make_last).
  void part_lanes() {
    std::vector<std::pair<kernel::Symbol, kernel::Symbol>> pairs;
    for (const auto& [axis, schedule] : schedules_)
      if (!schedule->within.empty()) pairs.emplace_back(symbol_of(schedule->within), axis);
    const auto part = [&](kernel::Symbol symbol) {
      MappedAxis& axis = mapped_.axes[symbol];
      axis.last = add(kernel_.symbols[symbol].name, SymbolKind::kLane, {0, axis.width - 1});
      axis.index = kernel::symbol_index(axis.last);
      if (axis.outer >= 0) axis.index = axis.index + kernel::symbol_index(axis.outer) * tile::Index(axis.width);
    };
    const bool inner_first = pairs.size() > 1;
    if (inner_first)
      for (const auto& [outer, inner] : pairs) part(inner);
    for (const auto& [outer, inner] : pairs) {
      part(outer);
      if (!inner_first) part(inner);
      mapped_.axes[outer].inner = mapped_.axes[inner].last;
    }
  }

  void map_axis(kernel::Symbol symbol) {
    const kernel::SymbolInfo& info = kernel_.symbols[symbol];
    const AxisSchedule& schedule = *schedules_.at(symbol);
    MappedAxis& axis = mapped_.axes[symbol];
    axis.mapping = schedule.mapping;
    axis.width = schedule.width;
    axis.online = schedule.online;
    axis.cooperative = schedule.cooperative;
    axis.network = schedule.network;
    axis.in_order = schedule.in_order;
    axis.extent = mapped_.translate(info.extent);
    axis.unrolled = schedule.mapping == Mapping::kTile && schedule.unrolled;
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program());
    const bool lane = schedule.width > 1;
    if (schedule.mapping == Mapping::kGrid) {
      const int64_t consumers = consumers_along(info.name);
      const tile::Index count = kernel::ceil_divide(axis.extent, schedule.width * consumers, ranges) *
                                tile::Index(consumers);
      axis.outer = add(lane ? info.name + "_block" : info.name, SymbolKind::kGrid, tile::grid_range(count, ranges),
                       count);
      if (consumers > 1) mapped_.consumers.along = axis.outer;
      program().grid.push_back(axis.outer);
      axis.index = kernel::symbol_index(axis.outer) * tile::Index(schedule.width);
    } else if (schedule.mapping == Mapping::kLoop && merged_with(symbol).size() > 1) {
      map_merged_axis(symbol);
    } else if (schedule.mapping == Mapping::kLoop) {
      axis.outer = add(lane ? info.name + "_start" : info.name, SymbolKind::kLoop,
                       {0, info.range.high / schedule.width * schedule.width, schedule.width});
      axis.index = kernel::symbol_index(axis.outer);
    }
    if (!schedule.within.empty()) {
      axis.lane = mapped_.axes[symbol_of(schedule.within)].lane;
      axis.index = kernel::modulo(kernel::symbol_index(axis.lane), schedule.width, ranges);
    } else if (const kernel::Symbol inner = within(symbol); inner >= 0) {
      const int64_t width = schedules_.at(inner)->width;
      axis.lane = add(info.name + "_" + kernel_.symbols[inner].name, SymbolKind::kLane,
                      {0, schedule.width * width - 1, 1});
      axis.index = axis.index +
                   kernel::floor_divide(kernel::symbol_index(axis.lane), width, tile::ranges_of(program()));
    } else if (axis.unrolled && info.range.high > 0) {
      axis.lane = add(info.name, SymbolKind::kLane, {0, info.range.high, 1});
      axis.index = kernel::symbol_index(axis.lane);
    } else if (lane && !axis.unrolled) {
      axis.lane = add(info.name, SymbolKind::kLane, {0, schedule.width - 1, 1});
      program().symbols[axis.lane].simd = schedule.simd;
      program().symbols[axis.lane].shared = schedule.threads && schedule.mapping == Mapping::kTile;
      axis.index = axis.index + kernel::symbol_index(axis.lane);
    }
    axis.whole = axis.index;
    if (axis.unrolled) axis.padded = kernel::range_of(axis.extent, ranges).high < 1;
    else if (schedule.mapping == Mapping::kTile) axis.padded = !(kernel::as_constant(axis.extent) == schedule.width);
    else axis.padded = kernel::known_divisor(axis.extent, ranges) % (schedule.width * consumers_along(info.name)) != 0;
    if (axis.padded && axis.lane >= 0 && is_walked_plainly(symbol))
      program().symbols[axis.lane].vectors = points_together(axis.extent);
  }

  // Of kernels without products: do neighbours along the axis stand equally far apart in every access?
  bool is_walked_plainly(kernel::Symbol axis) const {
    const auto is_plain = [&](const kernel::Access& access) {
      return std::all_of(access.coordinates.begin(), access.coordinates.end(), [&](const kernel::Coordinate& at) {
        return !kernel::uses(at.index, axis) || kernel::linear_in(at.index, axis);
      });
    };
    return std::all_of(kernel_.exprs.begin(), kernel_.exprs.end(),
                       [&](const kernel::Expr& one) {
                         return one.kind != kernel::ExprKind::kDot &&
                                (one.kind != kernel::ExprKind::kLoad || is_plain(one.access));
                       }) &&
           std::all_of(kernel_.stores.begin(), kernel_.stores.end(),
                       [&](const kernel::Store& one) { return is_plain(one.access); });
  }

  // Along an axis of this extent, where that are fewer than are read or written at once. A vector is one access where
  // the mask is the same for all of it. Where an axis ended within one, all would be taken apart, each thread's
  // elements side by side: 0.18 ms for 0.055 of 97 MB in bf16 on an H200.
  int64_t points_together(const tile::Index& extent) {
    const int64_t divisor = kernel::known_divisor(extent, tile::ranges_of(program())), together = divisor & -divisor;
    int64_t bytes = kBytesOfVector;
    for (const kernel::Buffer& buffer : kernel_.buffers) bytes = std::min<int64_t>(bytes, size_of(buffer.dtype));
    return together < kBytesOfVector / bytes ? together : 0;
  }

  int64_t consumers_along(const std::string& axis) const {
    return schedule_.consumers.along == axis ? schedule_.consumers.count : 1;
  }

  // The blocks of a row are neighbours, so that they begin one after the other.
  void share_rows() {
    const auto is_shared = [&](tile::Symbol symbol) {
      return std::any_of(mapped_.axes.begin(), mapped_.axes.end(),
                         [&](const MappedAxis& axis) { return axis.cooperative && axis.outer == symbol; });
    };
    std::stable_partition(program().grid.begin(), program().grid.end(),
                          [&](tile::Symbol symbol) { return !is_shared(symbol); });
    const bool folds = std::any_of(kernel_.exprs.begin(), kernel_.exprs.end(), [&](const kernel::Expr& expr) {
      return std::any_of(expr.axes.begin(), expr.axes.end(),
                         [&](kernel::Symbol axis) { return mapped_.axes[axis].cooperative; });
    });
    if (!folds) return;
    int64_t parts = 1;
    for (tile::Symbol symbol : program().grid) {
      if (!is_shared(symbol)) continue;
      mapped_.shared.blocks.push_back(symbol);
      parts *= kernel::as_constant(program().symbols[symbol].count).value();
    }
    const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, parts))));
    mapped_.shared.part = add(unused("part"), SymbolKind::kLane, {0, lanes - 1});
    mapped_.shared.counters = program().tickets = add_scratch("counters", DType::i32);
    mapped_.shared.partials = add_scratch("partials", DType::f32);
  }

  std::string unused(const std::string& wanted) {
    const auto is_taken = [&](const std::string& name) {
      return std::any_of(program().symbols.begin(), program().symbols.end(),
                         [&](const tile::SymbolInfo& symbol) { return symbol.name == name; }) ||
             std::any_of(program().buffers.begin(), program().buffers.end(),
                         [&](const tile::Buffer& buffer) { return buffer.name == name; });
    };
    std::string name = wanted;
    for (int number = 2; is_taken(name); ++number) name = fmt::format("{}_{}", wanted, number);
    return name;
  }

  int add_scratch(const std::string& name, DType dtype) {
    tile::Buffer buffer;
    buffer.name = unused(name);
    buffer.dtype = dtype;
    buffer.shape = {tile::Index(1)};
    buffer.role = tile::BufferRole::kScratch;
    program().buffers.push_back(std::move(buffer));
    return static_cast<int>(program().buffers.size()) - 1;
  }

  void set_order() {
    if (schedule_.order.grouped.empty()) return;
    const auto grid_symbol = [&](const std::string& name) {
      for (size_t symbol = 0; symbol < kernel_.symbols.size(); ++symbol)
        if (kernel_.symbols[symbol].name == name) return mapped_.axes[symbol].outer;
      return -1;
    };
    program().order = {grid_symbol(schedule_.order.grouped), grid_symbol(schedule_.order.along), schedule_.order.count};
  }

  // The axes that one loop walks with this one, and itself.
  std::vector<kernel::Symbol> merged_with(kernel::Symbol axis) const {
    std::vector<kernel::Symbol> axes;
    for (const std::vector<std::string>& loop : schedule_.nest) {
      if (std::find(loop.begin(), loop.end(), kernel_.symbols[axis].name) == loop.end()) continue;
      for (const std::string& name : loop)
        for (const auto& [other, schedule] : schedules_)
          if (kernel_.symbols[other].name == name) axes.push_back(other);
    }
    return axes;
  }

  tile::Index iterations_of(kernel::Symbol axis) const {
    return kernel::ceil_divide(mapped_.translate(kernel_.symbols[axis].extent), schedules_.at(axis)->width,
                               tile::ranges_of(mapped_.program));
  }

  // The iterations of the others are divided by its own.
  void refuse_empty(kernel::Symbol axis) const {
    if (kernel::range_of(iterations_of(axis), tile::ranges_of(mapped_.program)).low > 0) return;
    ErrorText text;
    text.message = fmt::format(
        "kernel '{}' cannot be scheduled so: axis '{}' is walked together with others, but may "
        "have no points",
        kernel_.name, kernel_.symbols[axis].name);
    text.hint = "Give it a loop of its own.";
    text.code = "bad-schedule";
    throw Error(ErrorKind::kUser, std::move(text));
  }

  // Its place in the loop's iterations, which are counted along all of its axes.
  void map_merged_axis(kernel::Symbol axis) {
    const std::vector<kernel::Symbol> axes = merged_with(axis);
    tile::Index inner(1);
    int64_t most = 1;
    std::string name;
    for (kernel::Symbol other : axes) {
      refuse_empty(other);
      if (mapped_.axes[other].outer >= 0) mapped_.axes[axis].outer = mapped_.axes[other].outer;
      inner = other == axis ? tile::Index(1) : inner * iterations_of(other);
      most *= kernel_.symbols[other].range.high / schedules_.at(other)->width + 1;
      name += kernel_.symbols[other].name + "_";
    }
    MappedAxis& mapped = mapped_.axes[axis];
    if (mapped.outer < 0) mapped.outer = add(name + "step", SymbolKind::kLoop, {0, most - 1, 1});
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(mapped_.program);
    const tile::Index step = kernel::floor_divide(kernel::symbol_index(mapped.outer), inner, ranges);
    mapped.index = kernel::modulo(step, iterations_of(axis), ranges) * tile::Index(mapped.width);
  }

  void set_nest() {
    std::vector<std::vector<kernel::Symbol>> loops;
    const auto place = [&](kernel::Symbol axis) {
      return std::find_if(schedule_.nest.begin(), schedule_.nest.end(), [&](const std::vector<std::string>& loop) {
        return std::find(loop.begin(), loop.end(), kernel_.symbols[axis].name) != loop.end();
      });
    };
    for (kernel::Symbol axis : kernel::axes_of(kernel_)) {
      if (mapped_.axes[axis].mapping != Mapping::kLoop) continue;
      const std::vector<kernel::Symbol> merged = merged_with(axis);
      if (merged.size() <= 1) loops.push_back({axis});
      else if (merged[0] == axis) loops.push_back(merged);
    }
    if (!schedule_.nest.empty())
      std::sort(loops.begin(), loops.end(),
                [&](const auto& left, const auto& right) { return place(left[0]) < place(right[0]); });
    for (const std::vector<kernel::Symbol>& axes : loops) {
      MappedLoop loop{axes, mapped_.axes[axes[0]].outer, mapped_.axes[axes[0]].extent, mapped_.axes[axes[0]].width};
      loop.stages = schedules_.at(axes.back())->stages;
      loop.prefetch = schedules_.at(axes.back())->prefetch;
      loop.bounded = std::any_of(axes.begin(), axes.end(),
                                 [&](kernel::Symbol axis) { return schedules_.at(axis)->bounded; });
      loop.stops = axes.size() == 1 && schedules_.at(axes[0])->stops;
      loop.unrolled = std::all_of(axes.begin(), axes.end(),
                                  [&](kernel::Symbol axis) { return schedules_.at(axis)->unrolled; });
      loop.shared = std::all_of(axes.begin(), axes.end(),
                                [&](kernel::Symbol axis) { return schedules_.at(axis)->threads; });
      loop.simd = loop.step == 1 &&
                  std::all_of(axes.begin(), axes.end(), [&](kernel::Symbol axis) { return schedules_.at(axis)->simd; });
      if (axes.size() > 1) {
        loop.end = tile::Index(1);
        for (kernel::Symbol axis : axes) loop.end = loop.end * iterations_of(axis);
        loop.step = 1;
      }
      mapped_.nest.push_back(std::move(loop));
    }
  }

  const kernel::Kernel& kernel_;
  const KernelSchedule& schedule_;
  std::map<kernel::Symbol, const AxisSchedule*> schedules_;
  Mapped mapped_;
};

}  // namespace

tile::Index Mapped::translate(const kernel::Index& index, bool whole) const {
  const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
  const tile::Index found = kernel::substitute(
      index, [&](kernel::Symbol symbol) { return whole ? axes[symbol].whole : axes[symbol].index; }, ranges);
  return whole ? kernel::recombined(found, ranges) : found;
}

std::vector<tile::Symbol> folded_symbols(const kernel::Kernel& kernel, const Mapped& mapped) {
  std::vector<tile::Symbol> symbols;
  for (const kernel::Expr& expr : kernel.exprs)
    if (expr.kind == kernel::ExprKind::kReduce || expr.kind == kernel::ExprKind::kScan)
      for (kernel::Symbol axis : expr.axes)
        for (tile::Symbol symbol : {mapped.axes[axis].lane, mapped.axes[axis].outer})
          if (symbol >= 0) symbols.push_back(symbol);
  return symbols;
}

Mapped map_axes(const kernel::Kernel& kernel, const KernelSchedule& schedule) {
  KW_ASSERT(schedule.axes.size() == kernel::axes_of(kernel).size(), "a schedule for another kernel");
  return Mapper(kernel, schedule).run();
}

}  // namespace kw::lower
