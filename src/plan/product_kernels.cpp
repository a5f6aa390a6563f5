#include "plan/product_kernels.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "lower/pipeline.hpp"
#include "plan/embedding.hpp"
#include "plan/product_lowering.hpp"
#include "plan/split.hpp"
#include "tile/verifier.hpp"

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;
using kernel::Symbol;
using lower::KernelSchedule;
using lower::Mapping;
using Role = OperandDimension::Role;

namespace {

constexpr int64_t kLongestTile = 16384;  // of a row that is split in one step

std::string identifier(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  if (tile::is_keyword(text)) return text + "_";
  return text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) ? "t" + text : text;
}

std::string axis_name(const std::string& base, size_t count, size_t place) {
  return count == 1 ? base : base + "_" + std::to_string(place);
}

std::vector<kernel::Index> indices(const Shape& shape) { return {shape.begin(), shape.end()}; }

std::vector<kernel::Index> places_of(const std::vector<OperandDimension>& dimensions, const ProductSymbols& symbols,
                                     Side side) {
  std::vector<kernel::Index> places;
  for (const OperandDimension& one : dimensions) {
    if (one.role == Role::kBatch) places.push_back(kernel::symbol_index(symbols.batch[one.batch]));
    if (one.role == Role::kOuter) places.push_back(side == Side::kLeft ? symbols.row_index() : symbols.column_index());
    if (one.role == Role::kDepth) places.push_back(symbols.depth_index());
  }
  return places;
}

// The axes of an operand's dimensions, in their order.
ProductSymbols declare(KernelDraft& draft, const std::vector<OperandDimension>& dimensions, Side side) {
  ProductSymbols symbols;
  const auto batches = static_cast<size_t>(
      std::count_if(dimensions.begin(), dimensions.end(), [](const auto& one) { return one.role == Role::kBatch; }));
  for (const OperandDimension& one : dimensions) {
    if (one.role == Role::kBatch) {
      symbols.batch.resize(std::max<size_t>(symbols.batch.size(), one.batch + 1), -1);
      symbols.batch[one.batch] = draft.axis(axis_name("batch", batches, one.batch), one.extent);
    } else if (one.role == Role::kOuter) {
      (side == Side::kLeft ? symbols.row : symbols.column) = draft.axis(side == Side::kLeft ? "row" : "column",
                                                                        one.extent);
    } else {
      symbols.depth = draft.axis("depth", one.extent);
    }
  }
  return symbols;
}

// Rows that lie side by side are split whole, several to a block where they are short; columns in tiles that keep
// lines of memory whole, read twice.
KernelSchedule split_schedule(const std::vector<OperandDimension>& dimensions) {
  constexpr int64_t kElements = 4096;
  KernelSchedule schedule;
  schedule.warps = 4;
  const OperandDimension& last = dimensions.back();
  const bool rows = last.role == Role::kDepth;
  for (const OperandDimension& one : dimensions) {
    lower::AxisSchedule axis;
    const int64_t whole = next_power_of_two(one.extent);
    if (one.role == Role::kDepth) {
      axis.mapping = rows && whole <= kLongestTile ? Mapping::kTile : Mapping::kLoop;
      axis.width = rows ? std::min<int64_t>(whole, axis.mapping == Mapping::kTile ? whole : kElements)
                        : std::min<int64_t>(whole, 256);  // 512 by 32 are more than registers hold beside their counts
      if (axis.width >= (rows ? 8192 : 256)) schedule.warps = 8;
    } else if (one.role == Role::kOuter) {
      axis.mapping = Mapping::kGrid;
      const int64_t depth = next_power_of_two(dimensions[dimensions.size() - 1].extent);
      axis.width = rows ? std::clamp<int64_t>(kElements / depth, 1, std::min<int64_t>(whole, 64))
                        : std::min<int64_t>(whole, 32);
    }
    schedule.axes.push_back(axis);
  }
  return schedule;
}

// [buffer] Is every element that the group's kernel reads or writes of it where the product's own would be?
std::vector<bool> walked_like_the_product(const LoweredGroup& after) {
  const GroupKernel& kernel = after.kernel;
  const int product = product_buffer(after);
  const auto load = std::find_if(kernel.exprs.begin(), kernel.exprs.end(),
                                 [&](const Expr& expr) { return is_load(expr) && expr.access.buffer == product; });
  std::vector<bool> plain(kernel.buffers.size());
  for (size_t buffer = 0; buffer < plain.size(); ++buffer)
    plain[buffer] = elements_of(kernel.buffers[buffer]) == kw::product(after.product->result_shape());
  const auto see = [&](const Access& access) {
    if (!(index_of(access) == index_of(load->access))) plain[access.buffer] = false;
  };
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr)) see(expr.access);
  for (const Store& store : kernel.stores) see(store.access);
  return plain;
}

// What follows a product, over the product's axes in a kernel.
Embedding embedding_after(KernelDraft& draft, const LoweredGroup& after, const std::vector<kernel::Index>& places,
                          ExprId value, const std::vector<kernel::Symbol>& window = {}, kernel::Symbol lanes = -1,
                          std::map<int, ExprId> known = {}) {
  const Product& product = *after.product;
  Shape shape = product.result_shape(), strides = product.result_strides();
  if (!window.empty()) {
    shape.pop_back();
    for (const ConvolutionDim& dim : after.convolution->dims) shape.push_back(dim.output);
    const size_t first = strides.size() - 1;
    strides.resize(shape.size(), strides.back());
    for (size_t dim = shape.size() - 1; dim-- > first;) strides[dim] = strides[dim + 1] * shape[dim + 1];
  }
  const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(draft.build.kernel());
  const std::vector<int64_t> distances = distances_in_product(after);
  std::vector<kernel::Index> axes;
  for (size_t axis = 0; axis < distances.size(); ++axis) {
    // Of the element's position in memory, what the axis counts: the dimensions within it, not those that are closer
    // or farther. A place beyond its dimension's end moves no other axis.
    const int64_t distance = distances[axis], extent = extent_of(after.kernel.symbols[axis]);
    kernel::Index position = 0;
    for (size_t dim = 0; dim < places.size(); ++dim)
      if (strides[dim] * shape[dim] > distance && strides[dim] < distance * extent)
        position = position + places[dim] * kernel::Index(strides[dim]);
    axes.push_back(kernel::modulo(kernel::floor_divide(position, distance, ranges), extent, ranges));
  }
  const std::optional<size_t> folded = folded_dimension(after);
  const auto place = [&draft, &after, shape, strides, is_in_blocks = lanes >= 0, plain = walked_like_the_product(after),
                      places, buffers = std::map<int, int>()](int buffer, const kernel::Index& index) mutable {
    kernel::Access access;
    if (const auto known = buffers.find(buffer); known != buffers.end()) {
      access.buffer = known->second;
    } else {
      const kernel::Buffer& one = after.kernel.buffers[buffer];
      access.buffer = buffers[buffer] = draft.buffer(
          one.name, one.dtype, plain[buffer] ? shape : Shape{elements_of(one)}, plain[buffer] ? strides : Shape{},
          one.role, after.buffers[buffer]);
    }
    if (!plain[buffer]) {
      // What is stored depends on all axes but a folded one, be their extent 1: so has the place.
      kernel::Index where = index;
      for (size_t dim = 0; dim < shape.size(); ++dim)
        if (after.kernel.buffers[buffer].role == kernel::BufferRole::kOutput && shape[dim] == 1 && !is_in_blocks)
          where = where + places[dim];
      // Neighbours of a window's place are to be known as such.
      access.coordinates.push_back(
          {kernel::recombined(where, kernel::ranges_of(draft.build.kernel())), kernel::kNoExpr});
      return access;
    }
    for (const kernel::Index& one : places) access.coordinates.push_back({one, kernel::kNoExpr});
    if (is_in_blocks) access.mask = draft.within(access.buffer, places);
    return access;
  };
  std::vector<kernel::Symbol> folds;
  if (!window.empty()) folds = window;
  else if (lanes >= 0) folds = {lanes};
  else if (folded) folds = {kernel::as_symbol(places[*folded]).value()};
  known[product_buffer(after)] = value;
  return Embedding(draft.build, after.kernel, axes, std::move(known), place, std::move(folds));
}

}  // namespace

std::vector<kernel::Index> ProductSymbols::result_places() const {
  std::vector<kernel::Index> places;
  for (Symbol symbol : batch) places.push_back(kernel::symbol_index(symbol));
  places.insert(places.end(), {row_index(), column_index()});
  return places;
}

kernel::Index ProductSymbols::row_index() const {
  const kernel::Index index = kernel::symbol_index(row);
  return row_block < 0 ? index : kernel::symbol_index(row_block) * kernel::Index(block_size) + index;
}

kernel::Index ProductSymbols::column_index() const {
  const kernel::Index index = kernel::symbol_index(column) + kernel::Index(first_column);
  if (window >= 0) return index * kernel::Index(window_size) + kernel::symbol_index(window);
  if (column_block >= 0) return kernel::symbol_index(column_block) * kernel::Index(block_size) + index;
  return part_of_columns < 0 ? index : kernel::symbol_index(part_of_columns) * kernel::Index(part_size) + index;
}

kernel::Index ProductSymbols::depth_index() const {
  kernel::Index index = kernel::symbol_index(depth) + kernel::Index(first_depth);
  if (chunk >= 0) index = kernel::symbol_index(chunk) * kernel::Index(chunk_size) + index;
  return part < 0 ? index : kernel::symbol_index(part) * kernel::Index(part_size) + index;
}

std::vector<kernel::Index> ProductSymbols::places_of_part(std::vector<kernel::Index> places) const {
  if (part >= 0) places.insert(places.begin(), kernel::symbol_index(part));
  return places;
}

// --- KernelDraft ---

std::string KernelDraft::unique(const std::string& text) {
  const std::string wanted = identifier(text);
  std::string name = wanted;
  for (int count = 2; !names_.insert(name).second; ++count) name = wanted + "_" + std::to_string(count);
  return name;
}

Symbol KernelDraft::axis(const std::string& name, int64_t extent, bool ordered) {
  return build.axis(unique(name), extent, ordered);
}

Symbol KernelDraft::size(const std::string& name, kernel::SymbolRange range) { return build.size(unique(name), range); }

std::vector<Symbol> KernelDraft::batch_axes(const Shape& batch) {
  std::vector<Symbol> axes;
  for (size_t axis = 0; axis < batch.size(); ++axis)
    axes.push_back(this->axis(axis_name("batch", batch.size(), axis), batch[axis]));
  return axes;
}

int KernelDraft::buffer(const std::string& name, DType dtype, const Shape& shape, const Shape& strides,
                        kernel::BufferRole role, int tensor, int64_t offset) {
  tensors.push_back(tensor);
  offsets.push_back(offset);
  return build.buffer(unique(name), dtype, indices(shape), role, indices(strides));
}

kernel::Access KernelDraft::access(int buffer, const std::vector<kernel::Index>& places, ExprId mask) {
  kernel::Access access;
  access.mask = mask;
  access.buffer = buffer;
  for (const kernel::Index& place : places) access.coordinates.push_back({place, kernel::kNoExpr});
  return access;
}

ExprId KernelDraft::within(int buffer, const std::vector<kernel::Index>& places) {
  const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
  ExprId inside = kernel::kNoExpr;
  for (size_t dim = 0; dim < places.size(); ++dim) {
    const auto extent = kernel::as_constant(build.kernel().buffers[buffer].shape[dim]);
    if (!extent || kernel::range_of(places[dim], ranges).high < *extent) continue;
    inside = build.both(inside,
                        build.op(ScalarOp::kLess, {build.index(places[dim]), build.constant(DType::i32, *extent)}));
  }
  return inside;
}

ExprId KernelDraft::load(int buffer, const std::vector<kernel::Index>& places, double otherwise, ExprId mask) {
  kernel::Access access = this->access(buffer, places, mask == kernel::kNoExpr ? within(buffer, places) : mask);
  access.otherwise = otherwise;
  return build.load(std::move(access));
}

void KernelDraft::store(int buffer, const std::vector<kernel::Index>& places, ExprId value, ExprId mask) {
  build.store(access(buffer, places, mask), value);
}

ScheduledTiles lowered(KernelDraft& draft, const lower::KernelSchedule& schedule) {
  auto source = std::make_shared<const lower::Source>(lower::Source{draft.build.finish(), schedule});
  tile::Program program = lower::to_tiles(source->kernel, source->schedule);
  return {.program = std::move(program),
          .buffers = std::move(draft.tensors),
          .offsets = std::move(draft.offsets),
          .source = std::move(source)};
}

// --- ProductKernels ---

int ProductKernels::scratch(const std::string& name, DType dtype, const Shape& shape, const Shape& strides) {
  Scratch one;
  one.name = name;
  one.type.dtype = dtype;
  one.type.shape = shape;
  one.type.strides = strides;
  result_.scratch.push_back(std::move(one));
  return static_cast<int>(result_.scratch.size()) - 1;
}

void ProductKernels::finish(KernelDraft& draft, const KernelSchedule& schedule) {
  for (size_t buffer = 0; buffer < draft.tensors.size(); ++buffer) {
    const DType dtype = draft.build.kernel().buffers[buffer].dtype;
    if (!is_aligned(draft.tensors[buffer], draft.offsets[buffer], dtype))
      draft.build.align(static_cast<int>(buffer), size_of(dtype));
  }
  result_.tiles.push_back(lowered(draft, schedule));
}

// Tensors of our own are aligned; where a buffer starts within one may not be.
bool ProductKernels::is_aligned(int value, int64_t offset, DType dtype) const {
  bool aligned = offset * size_of(dtype) % 16 == 0;
  if (value < 0) return aligned;
  const auto also = [&](const LoweredGroup& group) {
    for (size_t buffer = 0; buffer < group.buffers.size(); ++buffer)
      if (group.buffers[buffer] == value) aligned = aligned && group.kernel.buffers[buffer].alignment % 16 == 0;
  };
  also(group_);
  if (group_.attention) {
    also(*group_.attention->scores);
    if (group_.attention->weights.group) also(*group_.attention->weights.group);
  }
  if (group_.producer) also(*group_.producer->group);
  if (group_.linear_attention)
    for (const LinearOperand* one :
         {&group_.linear_attention->left, &group_.linear_attention->right, &group_.linear_attention->query})
      if (one->producer) also(*one->producer->group);
  for (const ProductOperand* operand : operands_)
    if (value == operand->root) aligned = aligned && operand->aligned;
  return aligned;
}

SplitOperand ProductKernels::split(const Product& product, Side side, Halves of) {
  const ProductOperand& operand = side == Side::kLeft ? product.left : product.right;
  SplitOperand made;
  made.side = side;
  made.name = operand.name;
  StoredHalves& stored = made.stored;
  stored.layout = {operand.root, operand.offset, of, dimensions_of(product, side)};
  for (const StoredHalves& given : group_.halves)
    if (given.layout == stored.layout) {
      const std::vector<OperandDimension> own = stored.layout.dimensions;
      stored = given;
      stored.layout.dimensions = own;
      return made;
    }
  const bool two = of == Halves::kTwo;
  const std::vector<OperandDimension> written = padded(made.dimensions());
  const Shape shape = extents_of(written), strides = padded_strides(made.dimensions());
  const Shape scale_shape = extents_of(without_depth(made.dimensions())),
              scale_strides = contiguous_strides(scale_shape);
  const auto tensor = [&](const std::string& name, DType dtype, const Shape& extents, const Shape& along) {
    return -1 - scratch(made.name + name, dtype, extents, along);
  };
  stored.high = tensor("_high", DType::f16, shape, strides);
  if (two) stored.low = tensor("_low", DType::f16, shape, strides);
  stored.scale = tensor("_scale", DType::f32, scale_shape, scale_strides);
  stored.large = tensor("_large", DType::i32, scale_shape, scale_strides);
  stored.needs = tensor("_needs", DType::i32, scale_shape, scale_strides);

  KernelDraft draft("split_" + identifier(made.name) + "_kernel",
                    std::string(side == Side::kLeft ? "Each row" : "Each column") + " as a power of two times " +
                        (two ? "the sum of two halves." : "a half."));
  const ProductSymbols symbols = declare(draft, written, side);
  const int x = draft.buffer(operand.name, operand.dtype, extents_of(made.dimensions()), strides_of(made.dimensions()),
                             kernel::BufferRole::kInput, operand.root, operand.offset);
  const int high = draft.buffer("high", DType::f16, shape, strides, kernel::BufferRole::kOutput, stored.high);
  const int low = two ? draft.buffer("low", DType::f16, shape, strides, kernel::BufferRole::kOutput, stored.low) : -1;
  const auto of_rows = [&](const std::string& name, DType dtype, int tensor) {
    return draft.buffer(name, dtype, scale_shape, scale_strides, kernel::BufferRole::kOutput, tensor);
  };
  const int scale = of_rows("scale", DType::f32, stored.scale), large = of_rows("large", DType::i32, stored.large),
            needs = of_rows("needs", DType::i32, stored.needs);
  kernel::Builder& build = draft.build;
  const std::vector<kernel::Index> places = places_of(made.dimensions(), symbols, side),
                                   row = places_of(without_depth(made.dimensions()), symbols, side);
  ExprId inside = kernel::kNoExpr;  // of the operand
  if (const int64_t extent = made.dimensions().back().extent; extent < written.back().extent)
    inside = build.op(kernel::ScalarOp::kLess, {build.index(places.back()), build.constant(DType::i32, extent)});
  const ExprId has_row = written.back().role == OperandDimension::Role::kOuter ? inside : kernel::kNoExpr;
  const HalvesOfRow halves = halves_of_row(build, draft.load(x, places, 0.0, inside), {symbols.depth}, product.depth,
                                           "", of);
  const SplitNumbers numbers = split_numbers(build, halves, product.depth, of);
  build.named(two ? "first_half" : "half", numbers.high);
  draft.store(high, places, numbers.high);
  if (two) draft.store(low, places, numbers.low);
  draft.store(scale, row, numbers.scale, has_row);
  draft.store(large, row, numbers.near, has_row);
  draft.store(needs, row, numbers.needs, has_row);
  finish(draft, split_schedule(written));
  result_.splits.push_back({stored.layout, result_.tiles.size() - 1, false});
  return made;
}

ExprId ProductKernels::halves(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols) {
  const std::vector<kernel::Index> places = places_of(split.dimensions(), symbols, split.side);
  const auto half = [&](const std::string& name, int tensor) {
    const int buffer = draft.buffer(split.name + name, DType::f16, extents_of(split.dimensions()),
                                    padded_strides(split.dimensions()), kernel::BufferRole::kInput, tensor);
    return draft.load(buffer, places);
  };
  const ExprId high = half("_high", split.stored.high);
  if (split.stored.layout.halves == Halves::kOne) return high;
  const auto wide = [&](ExprId value) { return draft.build.cast(DType::f32, value); };
  const ExprId first = wide(high);
  return draft.build.op(kernel::ScalarOp::kAdd, {first, wide(half("_low", split.stored.low))});
}

ExprId ProductKernels::of_row(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols,
                              const std::string& name, int tensor, DType dtype, double beyond) {
  const std::vector<OperandDimension> rows = without_depth(split.dimensions());
  const auto known = std::find(draft.tensors.begin(), draft.tensors.end(), tensor);
  const int buffer = known != draft.tensors.end() ? static_cast<int>(known - draft.tensors.begin())
                                                  : draft.buffer(split.name + name, dtype, extents_of(rows), {},
                                                                 kernel::BufferRole::kInput, tensor);
  return draft.load(buffer, places_of(rows, symbols, split.side), beyond);
}

ExprId ProductKernels::scale(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols) {
  return of_row(draft, split, symbols, "_scale", split.stored.scale, DType::f32, 0.0);
}

ExprId ProductKernels::large(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols) {
  return of_row(draft, split, symbols, "_large", split.stored.large, DType::i32, 1 << 30);
}

ExprId ProductKernels::needs(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols) {
  return of_row(draft, split, symbols, "_needs", split.stored.needs, DType::i32, -1.0);
}

ExprId ProductKernels::whole_operand(KernelDraft& draft, const Product& product, const SplitOperand& split,
                                     const ProductSymbols& symbols, const ProductSymbols& of_halves) {
  if (split.stored.whole < 0) return operand(draft, product, split.side, symbols);
  kernel::Builder& build = draft.build;
  const ExprId flag = of_row(draft, split, of_halves, "_whole", split.stored.whole, DType::i32, 0.0);
  const ExprId is_whole = build.op(kernel::ScalarOp::kGreater, {flag, build.constant(DType::i32, int64_t{0})});
  const ExprId stored = operand(draft, product, split.side, symbols, is_whole);
  const ExprId sum = build.cast(DType::f32, halves(draft, split, of_halves));
  const ExprId again = build.op(kernel::ScalarOp::kMul, {sum, scale(draft, split, of_halves)});
  return build.op(kernel::ScalarOp::kSelect, {is_whole, stored, again});
}

ExprId ProductKernels::operand(KernelDraft& draft, const Product& product, Side side, const ProductSymbols& symbols,
                               ExprId inside) {
  const ProductOperand& operand = side == Side::kLeft ? product.left : product.right;
  const std::vector<OperandDimension> dimensions = dimensions_of(product, side);
  const int buffer = draft.buffer(operand.name, operand.dtype, extents_of(dimensions), strides_of(dimensions),
                                  kernel::BufferRole::kInput, operand.root, operand.offset);
  const ExprId loaded = draft.load(buffer, places_of(dimensions, symbols, side), 0.0, inside);
  return operand.dtype == product.left.dtype ? loaded : draft.build.cast(product.left.dtype, loaded);
}

ExprId ProductKernels::shared_operand(KernelDraft& draft, const Product& product, const ProductOperand& operand,
                                      const ProductSymbols& symbols) {
  Shape shape, strides;
  std::vector<kernel::Index> places;
  const auto dimension = [&](const kernel::Index& place, int64_t extent, int64_t stride) {
    if (stride == 0 || extent == 1) return;
    shape.push_back(extent);
    strides.push_back(stride);
    places.push_back(place);
  };
  for (size_t axis = 0; axis < product.batch.size(); ++axis)
    dimension(kernel::symbol_index(symbols.batch[axis]), product.batch[axis], operand.batch[axis]);
  dimension(symbols.row_index(), product.rows, operand.row);
  dimension(symbols.column_index(), product.columns, operand.column);
  const int buffer = draft.buffer(operand.name, operand.dtype, shape, strides, kernel::BufferRole::kInput, operand.root,
                                  operand.offset);
  return draft.load(buffer, places);
}

ExprId ProductKernels::result_of(KernelDraft& draft, const Product& product, const ProductSymbols& symbols,
                                 ExprId value) {
  kernel::Builder& build = draft.build;
  const auto times = [&](ExprId one, double factor) {
    return factor == 1.0 ? one : build.op(kernel::ScalarOp::kMul, {one, build.constant(DType::f32, factor)});
  };
  value = times(value, product.alpha);
  if (!product.addend) return value;
  const ExprId addend = build.cast(DType::f32, shared_operand(draft, product, *product.addend, symbols));
  return build.op(kernel::ScalarOp::kAdd, {value, times(addend, product.beta)});
}

std::vector<ExprId> ProductKernels::store_results(KernelDraft& draft, const LoweredGroup& after,
                                                  const std::vector<kernel::Index>& places, ExprId value, ExprId mask,
                                                  const std::vector<kernel::Index>& stored,
                                                  const std::vector<kernel::Symbol>& window, kernel::Symbol lanes,
                                                  std::map<int, ExprId> known) {
  Embedding embedding = embedding_after(draft, after, places, value, window, lanes, std::move(known));
  const std::vector<bool> plain = walked_like_the_product(after);
  std::vector<ExprId> folded;
  for (const Store& store : after.kernel.stores) {
    if (after.buffers[store.access.buffer] < 0) {
      folded.push_back(embedding.expr(store.value));
      continue;
    }
    kernel::Access access = embedding.access(store.access);
    if (plain[store.access.buffer])
      for (size_t place = 0; place < stored.size(); ++place) access.coordinates[place].index = stored[place];
    access.mask = mask;
    draft.build.store(std::move(access), embedding.expr(store.value));
  }
  return folded;
}

void ProductKernels::store_folds(KernelDraft& draft, const LoweredGroup& after,
                                 const std::vector<kernel::Index>& places, ExprId value, ExprId mask,
                                 const FoldsOfBlocks& folds) {
  kernel::Builder& build = draft.build;
  Embedding embedding = embedding_after(draft, after, places, value, {}, folds.lanes);
  embedding.fold_where(folds.inside);
  const GroupKernel& group = after.kernel;
  for (const Store& store : group.stores) {
    if (!axes_of_access(group, store.access)[static_cast<size_t>(group.parallel)]) continue;
    kernel::Access access = embedding.access(store.access);
    access.mask = build.both(folds.inside, mask);
    build.store(std::move(access), embedding.expr(store.value));
  }
  // What depends on all other dimensions, be their extent 1, has its place.
  const Shape shape = after.product->result_shape();
  kernel::Index point = embedding.place(number_of_row(group));
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] == 1 && !kernel::uses(places[dim], folds.lanes)) point = point + places[dim];
  const int64_t points = kw::product(shape) / shape[*folded_dimension(after)];
  const std::vector<ExprId> firsts = first_reductions(group);
  for (size_t place = 0; place < firsts.size(); ++place) {
    const Expr& fold = group.exprs[firsts[place]];
    for (int component = 0; component < kernel::components_of(fold.reduce); ++component) {
      ExprId result = embedding.fold(fold, component);
      // Of what is all −∞ the exponentials below it are none: another block may have more.
      if (fold.reduce == ReduceOp::kMaxSumExp && component == 1) {
        const ExprId lowest = build.constant(fold.dtype, -std::numeric_limits<double>::infinity());
        const ExprId is_more = build.op(ScalarOp::kGreater, {embedding.fold(fold, 0), lowest});
        result = build.select(is_more, result, build.constant(fold.dtype, 0.0));
      }
      const int buffer = draft.buffer("folded", fold.dtype, {folds.blocks, points}, {}, kernel::BufferRole::kOutput,
                                      -1 - folds.scratch[place][static_cast<size_t>(component)]);
      draft.store(buffer, {kernel::symbol_index(folds.block), point}, result, mask);
    }
  }
}

ExprId ProductKernels::beside_product(KernelDraft& draft, const LoweredGroup& after,
                                      const std::vector<kernel::Index>& places, ExprId id) {
  return embedding_after(draft, after, places, draft.build.constant(after.product->left.dtype, 0.0)).expr(id);
}

ExprId ProductKernels::value_after(KernelDraft& draft, const LoweredGroup& after, const ProductSymbols& symbols,
                                   ExprId value) {
  return embedding_after(draft, after, symbols.result_places(), value).expr(after.kernel.stores.at(0).value);
}

}  // namespace kw::plan
