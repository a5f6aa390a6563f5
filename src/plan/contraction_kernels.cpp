#include "plan/contraction_kernels.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <set>

#include "kernel/builder.hpp"
#include "lower/arrange.hpp"
#include "plan/lift.hpp"
#include "plan/product_lowering.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::Symbol;
using lower::KernelSchedule;
using lower::Mapping;

constexpr int64_t kRowAlignment = 8;     // halves: 16 bytes, as the bulk copy engine wants the beginnings of rows
constexpr int64_t kLongestTile = 16384;  // of a row that is split in one step
// A row is no sum of halves where more than a few of its numbers lie so far below its largest that halves lose digits
// of them, and so few near it that the other operand may be zero at all of these (docs/precision.md).
constexpr double kSmall = 0x1p-4, kLarge = 0x1p2;  // of the scaled row, whose largest is 2^14 to 2^15
constexpr double kFewOfARow = 1.0 / 64, kLeastLarge = 32;
constexpr int64_t kManyBlocks = 1 << 13;  // of 64 by 64 that the second kernel would have

std::string identifier(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) ? "t" + text : text;
}

// One dimension of an operand: an axis of the product, and the distance of neighbours along it.
struct Dimension {
  enum class Role { kBatch, kOuter, kDepth };  // outer: rows of the left operand, columns of the right one
  Role role = Role::kOuter;
  int batch = -1;
  int64_t extent = 1, stride = 0;
};

// What the kernels of one group share: the product's axes, names, and the tensors.
class Contraction {
 public:
  Contraction(const LoweredGroup& group, const ContractionBlocks& blocks)
      : group_(group), product_(*group.product), blocks_(blocks) {}

  ScheduledGroup run() {
    if (blocks_.halves) {
      KW_ASSERT(product_.left.dtype == DType::f32, "what is not in single precision is split into halves");
      const Split left = split(product_.left, true), right = split(product_.right, false);
      multiply(&left, &right, false);
      multiply(&left, &right, true);
    } else {
      multiply(nullptr, nullptr, false);
    }
    return std::move(result_);
  }

 private:
  // An operand as halves, in tensors of the group's own.
  struct Split {
    std::string name;
    int high = 0, low = 0, scale = 0;  // scratch
    std::vector<Dimension> dimensions;
  };

  // --- Dimensions ---

  // In the order of memory, so that the last is the one along which neighbours lie side by side.
  std::vector<Dimension> dimensions_of(const ProductOperand& operand, bool left) const {
    std::vector<Dimension> dimensions;
    for (size_t axis = 0; axis < product_.batch.size(); ++axis)
      if (operand.batch[axis] != 0)
        dimensions.push_back(
            {Dimension::Role::kBatch, static_cast<int>(axis), product_.batch[axis], operand.batch[axis]});
    Dimension outer{Dimension::Role::kOuter, -1, left ? product_.rows : product_.columns,
                    left ? operand.row : operand.column};
    Dimension depth{Dimension::Role::kDepth, -1, product_.depth, operand.depth};
    if (outer.stride < depth.stride) std::swap(outer, depth);
    dimensions.push_back(outer);
    dimensions.push_back(depth);
    return dimensions;
  }

  enum class Axis { kRow, kColumn, kDepth };

  // Such that operands have their dimensions in the axes' order, as far as there is one: the bulk copy engine loads no
  // others.
  std::array<Axis, 3> axis_order() const {
    const auto lies_along_depth = [&](const ProductOperand& operand, bool left) {
      return dimensions_of(operand, left).back().role == Dimension::Role::kDepth;
    };
    if (lies_along_depth(product_.right, false)) return {Axis::kRow, Axis::kColumn, Axis::kDepth};
    if (lies_along_depth(product_.left, true)) return {Axis::kRow, Axis::kDepth, Axis::kColumn};
    return {Axis::kDepth, Axis::kRow, Axis::kColumn};
  }

  // --- Scratch ---

  int scratch(const std::string& name, DType dtype, const Shape& shape, const Shape& strides) {
    Scratch one;
    one.name = name;
    one.type.dtype = dtype;
    one.type.shape = shape;
    one.type.strides = strides;
    result_.scratch.push_back(std::move(one));
    return static_cast<int>(result_.scratch.size()) - 1;
  }

  static Shape padded_strides(const std::vector<Dimension>& dimensions) {
    Shape strides(dimensions.size(), 1);
    int64_t next = (dimensions.back().extent + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    for (size_t dim = dimensions.size() - 1; dim-- > 0;) {
      strides[dim] = next;
      next *= dimensions[dim].extent;
    }
    return strides;
  }

  // --- Kernels ---

  // A kernel under construction: its tensors besides.
  struct Making {
    explicit Making(std::string name, std::string doc) : build(std::move(name), std::move(doc)) {}
    kernel::Builder build;
    std::vector<Symbol> batch;
    Symbol row = -1, column = -1, depth = -1;
    std::set<std::string> names = {"batch", "row", "column", "depth", "tl", "triton"};
    std::vector<int> tensors;  // [buffer] value or −1 − scratch
    std::vector<int64_t> offsets;

    std::string unique(const std::string& text) {
      const std::string wanted = identifier(text);
      std::string name = wanted;
      for (int count = 2; !names.insert(name).second; ++count) name = wanted + "_" + std::to_string(count);
      return name;
    }

    int buffer(const std::string& name, DType dtype, std::vector<kernel::Index> shape,
               std::vector<kernel::Index> strides, kernel::BufferRole role, int tensor, int64_t offset = 0) {
      tensors.push_back(tensor);
      offsets.push_back(offset);
      return build.buffer(unique(name), dtype, std::move(shape), role, std::move(strides));
    }

    ExprId load(int buffer, const std::vector<Symbol>& symbols) {
      kernel::Access access;
      access.buffer = buffer;
      for (Symbol symbol : symbols) access.coordinates.push_back({kernel::symbol_index(symbol), kernel::kNoExpr});
      return build.load(std::move(access));
    }

    void store(int buffer, const std::vector<Symbol>& symbols, ExprId value) {
      kernel::Access access;
      access.buffer = buffer;
      for (Symbol symbol : symbols) access.coordinates.push_back({kernel::symbol_index(symbol), kernel::kNoExpr});
      build.store(std::move(access), value);
    }
  };

  static std::vector<kernel::Index> indices(const Shape& shape) { return {shape.begin(), shape.end()}; }

  static Shape extents_of(const std::vector<Dimension>& dimensions) {
    Shape shape;
    for (const Dimension& one : dimensions) shape.push_back(one.extent);
    return shape;
  }

  static Shape strides_of(const std::vector<Dimension>& dimensions) {
    Shape strides;
    for (const Dimension& one : dimensions) strides.push_back(one.stride);
    return strides;
  }

  static std::vector<Symbol> symbols_of(const std::vector<Dimension>& dimensions, const Making& making, Symbol outer,
                                        bool with_depth) {
    std::vector<Symbol> symbols;
    for (const Dimension& one : dimensions) {
      if (one.role == Dimension::Role::kBatch) symbols.push_back(making.batch[one.batch]);
      if (one.role == Dimension::Role::kOuter) symbols.push_back(outer);
      if (one.role == Dimension::Role::kDepth && with_depth) symbols.push_back(making.depth);
    }
    return symbols;
  }

  static std::vector<Dimension> without_depth(std::vector<Dimension> dimensions) {
    std::erase_if(dimensions, [](const Dimension& one) { return one.role == Dimension::Role::kDepth; });
    return dimensions;
  }

  static std::string axis_name(const std::string& base, size_t count, size_t place) {
    return count == 1 ? base : base + "_" + std::to_string(place);
  }

  void finish(Making& making, KernelSchedule schedule) {
    const kernel::Kernel kernel = making.build.finish();
    ScheduledTiles tiles{lower::arrange(kernel, schedule), std::move(making.tensors), std::move(making.offsets)};
    for (size_t buffer = 0; buffer < tiles.buffers.size(); ++buffer) {
      tile::Buffer& one = tiles.program.buffers[buffer];
      if (tiles.buffers[buffer] >= 0 && !is_aligned(tiles.buffers[buffer], tiles.offsets[buffer], one.dtype))
        one.alignment = size_of(one.dtype);
    }
    result_.tiles.push_back(std::move(tiles));
  }

  bool is_aligned(int value, int64_t offset, DType dtype) const {
    bool aligned = offset * size_of(dtype) % 16 == 0;
    for (size_t buffer = 0; buffer < group_.buffers.size(); ++buffer)
      if (group_.buffers[buffer] == value) aligned = aligned && group_.kernel.buffers[buffer].aligned;
    if (value == product_.left.root) aligned = aligned && product_.left.aligned;
    if (value == product_.right.root) aligned = aligned && product_.right.aligned;
    if (product_.addend && value == product_.addend->root) aligned = aligned && product_.addend->aligned;
    return aligned;
  }

  // x = scale · (high + low), where the largest of a row (column) over its scale lies between 2^14 and 2^15. What is
  // smaller than 2^-112 counts as that: nothing that f32 could tell from zero in a product is lost. A row with a NaN
  // has that for its scale. One with an infinity, or that is no sum of halves (above), has infinity.
  Split split(const ProductOperand& operand, bool left) {
    Split made;
    made.name = operand.name;
    made.dimensions = dimensions_of(operand, left);
    const Shape shape = extents_of(made.dimensions), strides = padded_strides(made.dimensions);
    const std::vector<Dimension> rows = without_depth(made.dimensions);
    const Shape scale_shape = extents_of(rows), scale_strides = contiguous_strides(scale_shape);
    made.high = scratch(made.name + "_high", DType::f16, shape, strides);
    made.low = scratch(made.name + "_low", DType::f16, shape, strides);
    made.scale = scratch(made.name + "_scale", DType::f32, scale_shape, scale_strides);

    Making making("split_" + identifier(made.name) + "_kernel",
                  left ? "Each row as a power of two times the sum of two halves."
                       : "Each column as a power of two times the sum of two halves.");
    const Symbol outer = declare(making, made.dimensions, left ? "row" : "column");
    const int x = making.buffer(operand.name, operand.dtype, indices(shape), indices(strides_of(made.dimensions)),
                                kernel::BufferRole::kInput, operand.root, operand.offset);
    const int high = making.buffer("high", DType::f16, indices(shape), indices(strides), kernel::BufferRole::kOutput,
                                   -1 - made.high);
    const int low = making.buffer("low", DType::f16, indices(shape), indices(strides), kernel::BufferRole::kOutput,
                                  -1 - made.low);
    const int scale = making.buffer("scale", DType::f32, indices(scale_shape), indices(scale_strides),
                                    kernel::BufferRole::kOutput, -1 - made.scale);
    kernel::Builder& build = making.build;
    const auto number = [&](double value) { return build.constant(DType::f32, value); };
    const std::vector<Symbol> places = symbols_of(made.dimensions, making, outer, true),
                              row = symbols_of(made.dimensions, making, outer, false);
    const ExprId value = making.load(x, places);
    const ExprId largest = build.named(
        "largest", build.reduce(kernel::ReduceOp::kMax, {build.op(kernel::ScalarOp::kAbs, {value})}, {making.depth}));
    const ExprId exponent = build.named(
        "exponent", build.op(kernel::ScalarOp::kFloor,
                             {build.op(kernel::ScalarOp::kLog2,
                                       {build.op(kernel::ScalarOp::kMaximum, {largest, number(0x1p-112)})})}));
    const auto power = [&](ExprId of) { return build.op(kernel::ScalarOp::kExp2, {of}); };
    const ExprId factor = build.named("factor", power(build.op(kernel::ScalarOp::kSub, {number(14.0), exponent})));
    const ExprId scaled = build.named("scaled", build.op(kernel::ScalarOp::kMul, {value, factor}));
    const ExprId first = build.named("first_half", build.cast(DType::f16, scaled));
    const ExprId rest = build.op(kernel::ScalarOp::kSub, {scaled, build.cast(DType::f32, first)});
    making.store(high, places, first);
    making.store(low, places, build.cast(DType::f16, rest));
    const ExprId size = build.op(kernel::ScalarOp::kAbs, {scaled});
    const auto count = [&](const std::string& name, ExprId condition) {
      const ExprId one = build.op(kernel::ScalarOp::kSelect, {condition, number(1.0), number(0.0)});
      return build.named(name, build.reduce(kernel::ReduceOp::kSum, {one}, {making.depth}));
    };
    const ExprId small = count("small", build.op(kernel::ScalarOp::kLogicalAnd,
                                                 {build.op(kernel::ScalarOp::kLess, {size, number(kSmall)}),
                                                  build.op(kernel::ScalarOp::kNotEqual, {scaled, number(0.0)})}));
    const ExprId large = count("large", build.op(kernel::ScalarOp::kGreaterEqual, {size, number(kLarge)}));
    const double share = static_cast<double>(product_.depth) * kFewOfARow;
    const ExprId loses = build.op(kernel::ScalarOp::kLogicalAnd,
                                  {build.op(kernel::ScalarOp::kGreater, {small, number(share)}),
                                   build.op(kernel::ScalarOp::kLess, {large, number(std::max(share, kLeastLarge))})});
    const ExprId back = power(build.op(kernel::ScalarOp::kSub, {exponent, number(14.0)}));
    making.store(scale, row,
                 build.op(kernel::ScalarOp::kSelect, {loses, number(std::numeric_limits<double>::infinity()), back}));
    finish(making, split_schedule(made.dimensions));
    return made;
  }

  // The axes of an operand's dimensions, in their order. Returns the outer one.
  static Symbol declare(Making& making, const std::vector<Dimension>& dimensions, const std::string& outer_name) {
    Symbol outer = -1;
    size_t batches = 0;
    for (const Dimension& one : dimensions) batches += one.role == Dimension::Role::kBatch ? 1 : 0;
    for (const Dimension& one : dimensions) {
      if (one.role == Dimension::Role::kBatch) {
        making.batch.resize(std::max<size_t>(making.batch.size(), one.batch + 1), -1);
        making.batch[one.batch] = making.build.axis(axis_name("batch", batches, one.batch), one.extent);
      } else if (one.role == Dimension::Role::kOuter) {
        outer = making.build.axis(outer_name, one.extent);
      } else {
        making.depth = making.build.axis("depth", one.extent);
      }
    }
    return outer;
  }

  // Rows that lie side by side are split whole, several to a block where they are short; columns in tiles that keep
  // lines of memory whole, read twice.
  static KernelSchedule split_schedule(const std::vector<Dimension>& dimensions) {
    constexpr int64_t kElements = 4096;
    KernelSchedule schedule;
    schedule.warps = 4;
    const Dimension& last = dimensions.back();
    const bool rows = last.role == Dimension::Role::kDepth;
    for (const Dimension& one : dimensions) {
      lower::AxisSchedule axis;
      const int64_t whole = next_power_of_two(one.extent);
      if (one.role == Dimension::Role::kDepth) {
        axis.mapping = rows && whole <= kLongestTile ? Mapping::kTile : Mapping::kLoop;
        axis.width = rows ? std::min<int64_t>(whole, axis.mapping == Mapping::kTile ? whole : kElements)
                          : std::min<int64_t>(whole, 512);
        if (axis.width >= (rows ? 8192 : 256)) schedule.warps = 8;
      } else if (one.role == Dimension::Role::kOuter) {
        axis.mapping = Mapping::kGrid;
        const int64_t depth = next_power_of_two(dimensions[dimensions.size() - 1].extent);
        axis.width = rows ? std::clamp<int64_t>(kElements / depth, 1, std::min<int64_t>(whole, 64))
                          : std::min<int64_t>(whole, 32);
      }
      schedule.axes.push_back(axis);
    }
    return schedule;
  }

  // The product and what follows it. `again`: in f32, where a row or a column holds an infinity.
  void multiply(const Split* left, const Split* right, bool again) {
    Making making(group_.kernel.name + (again ? "_in_f32" : ""),
                  again ? "The same in f32, where a row or a column is no sum of halves." : group_.kernel.doc);
    for (size_t axis = 0; axis < product_.batch.size(); ++axis)
      making.batch.push_back(making.build.axis(axis_name("batch", product_.batch.size(), axis), product_.batch[axis]));
    for (const Axis axis : axis_order()) {
      if (axis == Axis::kRow) making.row = making.build.axis("row", product_.rows);
      if (axis == Axis::kColumn) making.column = making.build.axis("column", product_.columns);
      if (axis == Axis::kDepth) making.depth = making.build.axis("depth", product_.depth);
    }
    kernel::Builder& build = making.build;

    ExprId product = kernel::kNoExpr, flagged = kernel::kNoExpr;
    if (left != nullptr && !again) {
      const ExprId a = halves(making, *left, making.row), b = halves(making, *right, making.column);
      product = build.dot(a, b, {making.depth});
      const ExprId left_scale = scale(making, *left, making.row), right_scale = scale(making, *right, making.column);
      // The smaller first: no step leaves the range of f32 where the result does not.
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMinimum, {left_scale, right_scale})});
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMaximum, {left_scale, right_scale})});
    } else {
      product = build.dot(operand(making, product_.left, true), operand(making, product_.right, false), {making.depth});
      if (again) {
        const auto infinite = [&](ExprId value) { return build.op(kernel::ScalarOp::kIsInf, {value}); };
        flagged = build.named("has_no_halves",
                              build.op(kernel::ScalarOp::kLogicalOr, {infinite(scale(making, *left, making.row)),
                                                                      infinite(scale(making, *right, making.column))}));
      }
    }
    if (product_.alpha != 1.0)
      product = build.op(kernel::ScalarOp::kMul, {product, build.constant(DType::f32, product_.alpha)});
    if (product_.addend) product = build.op(kernel::ScalarOp::kAdd, {product, added(making)});
    store_results(making, build.cast(product_.left.dtype, product), flagged);
    finish(making, product_schedule(left != nullptr && !again, again));
  }

  ExprId halves(Making& making, const Split& split, Symbol outer) {
    const std::vector<kernel::Index> shape = indices(extents_of(split.dimensions)),
                                     strides = indices(padded_strides(split.dimensions));
    const std::vector<Symbol> places = symbols_of(split.dimensions, making, outer, true);
    const auto half = [&](const std::string& name, int scratch) {
      const int buffer = making.buffer(split.name + name, DType::f16, shape, strides, kernel::BufferRole::kInput,
                                       -1 - scratch);
      return making.build.cast(DType::f32, making.load(buffer, places));
    };
    const ExprId high = half("_high", split.high);
    return making.build.op(kernel::ScalarOp::kAdd, {high, half("_low", split.low)});
  }

  ExprId scale(Making& making, const Split& split, Symbol outer) {
    const int buffer = making.buffer(split.name + "_scale", DType::f32,
                                     indices(extents_of(without_depth(split.dimensions))), {},
                                     kernel::BufferRole::kInput, -1 - split.scale);
    return making.load(buffer, symbols_of(split.dimensions, making, outer, false));
  }

  ExprId operand(Making& making, const ProductOperand& operand, bool left) {
    const std::vector<Dimension> dimensions = dimensions_of(operand, left);
    const int buffer = making.buffer(operand.name, operand.dtype, indices(extents_of(dimensions)),
                                     indices(strides_of(dimensions)), kernel::BufferRole::kInput, operand.root,
                                     operand.offset);
    return making.load(buffer, symbols_of(dimensions, making, left ? making.row : making.column, true));
  }

  ExprId added(Making& making) {
    const ProductOperand& addend = *product_.addend;
    Shape shape, strides;
    std::vector<Symbol> symbols;
    const auto dimension = [&](Symbol symbol, int64_t extent, int64_t stride) {
      if (stride == 0 || extent == 1) return;
      shape.push_back(extent);
      strides.push_back(stride);
      symbols.push_back(symbol);
    };
    for (size_t axis = 0; axis < product_.batch.size(); ++axis)
      dimension(making.batch[axis], product_.batch[axis], addend.batch[axis]);
    dimension(making.row, product_.rows, addend.row);
    dimension(making.column, product_.columns, addend.column);
    const int buffer = making.buffer(addend.name, addend.dtype, indices(shape), indices(strides),
                                     kernel::BufferRole::kInput, addend.root, addend.offset);
    kernel::Builder& build = making.build;
    const ExprId value = build.cast(DType::f32, making.load(buffer, symbols));
    return product_.beta == 1.0 ? value
                                : build.op(kernel::ScalarOp::kMul, {value, build.constant(DType::f32, product_.beta)});
  }

  // What the group's kernel makes of the product, at its own places.
  void store_results(Making& making, ExprId product, ExprId mask) {
    kernel::Builder& build = making.build;
    kernel::Index position = 0;
    for (size_t axis = 0; axis < product_.batch.size(); ++axis)
      position = position * kernel::Index(product_.batch[axis]) + kernel::symbol_index(making.batch[axis]);
    position = position * kernel::Index(product_.rows) + kernel::symbol_index(making.row);
    position = position * kernel::Index(product_.columns) + kernel::symbol_index(making.column);
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    const std::vector<int64_t> distances = distances_in_product(group_);
    std::vector<kernel::Index> axes;
    for (size_t axis = 0; axis < distances.size(); ++axis)
      axes.push_back(kernel::modulo(kernel::floor_divide(position, distances[axis], ranges),
                                    group_.kernel.axes[axis].extent, ranges));
    const Shape shape = result_shape();
    std::map<int, int> buffers;
    const std::vector<bool> plain = walked_like_the_product();
    const auto buffer_of = [&](int buffer) {
      if (const auto known = buffers.find(buffer); known != buffers.end()) return known->second;
      const kernel_ir::Buffer& one = group_.kernel.buffers[buffer];
      const bool read = one.role == kernel_ir::BufferRole::kInput;
      return buffers[buffer] = making.buffer(
                 one.name, one.dtype, plain[buffer] ? indices(shape) : std::vector{kernel::Index(one.elements)}, {},
                 read ? kernel::BufferRole::kInput : kernel::BufferRole::kOutput, group_.buffers[buffer]);
    };
    std::vector<Symbol> places = making.batch;
    places.insert(places.end(), {making.row, making.column});
    const auto place_in = [&](int buffer, const kernel::Index& index) {
      std::vector<kernel::Coordinate> coordinates;
      if (!plain[buffer]) return std::vector<kernel::Coordinate>{{index, kernel::kNoExpr}};
      for (Symbol symbol : places) coordinates.push_back({kernel::symbol_index(symbol), kernel::kNoExpr});
      return coordinates;
    };
    Lift lift(build, group_.kernel, axes, {{product_buffer(group_), product}},
              [&](int buffer, const kernel::Index& index) {
                kernel::Access access;
                access.buffer = buffer_of(buffer);
                access.coordinates = place_in(buffer, index);
                return access;
              });
    for (const kernel_ir::Store& store : group_.kernel.stores) {
      kernel::Access access = lift.access(store.access);
      access.mask = mask;
      build.store(std::move(access), lift.expr(store.value));
    }
  }

  Shape result_shape() const {
    Shape shape = product_.batch;
    shape.insert(shape.end(), {product_.rows, product_.columns});
    return shape;
  }

  // [buffer] Is every element that the group's kernel reads or writes of it where the product's own would be?
  std::vector<bool> walked_like_the_product() const {
    const kernel_ir::Kernel& kernel = group_.kernel;
    const int product = product_buffer(group_);
    const auto load = std::find_if(kernel.exprs.begin(), kernel.exprs.end(), [&](const kernel_ir::Expr& expr) {
      return kernel_ir::is_load(expr) && expr.access.buffer == product;
    });
    std::vector<bool> plain(kernel.buffers.size());
    for (size_t buffer = 0; buffer < plain.size(); ++buffer)
      plain[buffer] = kernel.buffers[buffer].elements == kw::product(result_shape());
    const auto see = [&](const kernel_ir::Access& access) {
      if (!(access.index == load->access.index)) plain[access.buffer] = false;
    };
    for (const kernel_ir::Expr& expr : kernel.exprs)
      if (kernel_ir::is_load(expr)) see(expr.access);
    for (const kernel_ir::Store& store : kernel.stores) see(store.access);
    return plain;
  }

  KernelSchedule product_schedule(bool halves, bool again) const {
    KernelSchedule schedule;
    for (size_t axis = 0; axis < product_.batch.size(); ++axis) schedule.axes.emplace_back();
    // Most blocks of the second kernel only look at their scales: there should not be too many of them.
    const int64_t small_blocks = product_.batches() * ceil_divide(product_.rows, 64) *
                                 ceil_divide(product_.columns, 64);
    const bool wide = again && small_blocks > kManyBlocks;
    const auto block = [&](int64_t width, int64_t most) { return again ? std::min(width, most) : width; };
    for (const Axis axis : axis_order()) {
      if (axis == Axis::kRow)
        schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.rows, wide ? 128 : 64)});
      if (axis == Axis::kColumn)
        schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.columns, wide ? 128 : 64)});
      if (axis == Axis::kDepth)
        schedule.axes.push_back({.mapping = Mapping::kLoop,
                                 .width = block(blocks_.depth, wide ? 16 : 32),
                                 .stages = again ? 1 : blocks_.stages});
    }
    schedule.order = {.grouped = "row", .along = "column", .count = blocks_.neighbours};
    schedule.scheme = halves ? lower::Scheme::kFp16x3 : lower::Scheme::kIeee;
    schedule.bulk = halves && blocks_.bulk;
    schedule.skip_masked = again;
    schedule.warps = again ? (wide ? 8 : 4) : blocks_.warps;
    return schedule;
  }

  const LoweredGroup& group_;
  const Product& product_;
  const ContractionBlocks& blocks_;
  ScheduledGroup result_;
};

}  // namespace

ScheduledGroup contraction_kernels(const LoweredGroup& group, const ContractionBlocks& blocks) {
  return Contraction(group, blocks).run();
}

}  // namespace kw::plan
