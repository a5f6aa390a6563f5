#include "lower/axes.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace kw::lower {
namespace {

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
    mapped_.axes.resize(kernel_.symbols.size());
    size_t place = 0;
    for (size_t symbol = 0; symbol < kernel_.symbols.size(); ++symbol) {
      const kernel::SymbolInfo& info = kernel_.symbols[symbol];
      if (info.kind == kernel::SymbolKind::kSize)
        mapped_.axes[symbol].index = kernel::symbol_index(add(info.name, SymbolKind::kSize, info.range));
      else map_axis(info, schedule_.axes[place++], mapped_.axes[symbol]);
    }
    for (const kernel::Buffer& buffer : kernel_.buffers) {
      tile::Buffer one;
      one.name = buffer.name;
      one.dtype = buffer.dtype;
      one.role = role_of(buffer.role);
      for (const kernel::Index& size : buffer.shape) one.shape.push_back(mapped_.translate(size));
      for (const kernel::Index& stride : buffer.strides) one.strides.push_back(mapped_.translate(stride));
      program().buffers.push_back(std::move(one));
    }
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

  void map_axis(const kernel::SymbolInfo& info, const AxisSchedule& schedule, MappedAxis& axis) {
    axis.mapping = schedule.mapping;
    axis.width = schedule.width;
    axis.stages = schedule.stages;
    axis.online = schedule.online;
    axis.extent = mapped_.translate(info.extent);
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program());
    const bool lane = schedule.width > 1;
    if (schedule.mapping == Mapping::kGrid) {
      const tile::Index count = kernel::ceil_divide(axis.extent, schedule.width, ranges);
      axis.outer = add(lane ? info.name + "_block" : info.name, SymbolKind::kGrid,
                       {0, info.range.high / schedule.width, 1}, count);
      program().grid.push_back(axis.outer);
      axis.index = kernel::symbol_index(axis.outer) * tile::Index(schedule.width);
    } else if (schedule.mapping == Mapping::kLoop) {
      axis.outer = add(lane ? info.name + "_start" : info.name, SymbolKind::kLoop,
                       {0, info.range.high / schedule.width * schedule.width, schedule.width});
      axis.index = kernel::symbol_index(axis.outer);
    }
    if (lane) {
      axis.lane = add(info.name, SymbolKind::kLane, {0, schedule.width - 1, 1});
      axis.index = axis.index + kernel::symbol_index(axis.lane);
    }
    if (schedule.mapping == Mapping::kTile) axis.padded = !(kernel::as_constant(axis.extent) == schedule.width);
    else axis.padded = kernel::known_divisor(axis.extent, ranges) % schedule.width != 0;
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

  void set_nest() {
    for (kernel::Symbol axis : kernel::axes_of(kernel_))
      if (mapped_.axes[axis].mapping == Mapping::kLoop) mapped_.nest.push_back(axis);
    const auto place = [&](kernel::Symbol axis) {
      return std::find(schedule_.nest.begin(), schedule_.nest.end(), kernel_.symbols[axis].name);
    };
    if (!schedule_.nest.empty())
      std::sort(mapped_.nest.begin(), mapped_.nest.end(),
                [&](kernel::Symbol left, kernel::Symbol right) { return place(left) < place(right); });
  }

  const kernel::Kernel& kernel_;
  const KernelSchedule& schedule_;
  Mapped mapped_;
};

}  // namespace

tile::Index Mapped::translate(const kernel::Index& index) const {
  return kernel::substitute(index, [&](kernel::Symbol symbol) { return axes[symbol].index; }, tile::ranges_of(program));
}

Mapped map_axes(const kernel::Kernel& kernel, const KernelSchedule& schedule) {
  KW_ASSERT(schedule.axes.size() == kernel::axes_of(kernel).size(), "a schedule for another kernel");
  return Mapper(kernel, schedule).run();
}

}  // namespace kw::lower
