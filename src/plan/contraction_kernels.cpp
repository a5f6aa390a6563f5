#include "plan/contraction_kernels.hpp"

#include <algorithm>
#include <array>

#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using lower::KernelSchedule;
using lower::Mapping;

constexpr int64_t kManyBlocks = 1 << 13;  // of 64 by 64 that the second kernel would have

// Of a streamed operand and the other: beyond, sums of scaled products might leave the range of f32 before the result
// does.
constexpr double kLargestExponent = 64.0, kLargestScale = 0x1p64;

class Contraction : ProductKernels {
 public:
  Contraction(const LoweredGroup& group, const ContractionBlocks& blocks)
      : ProductKernels(group, operands_of(*group.product)), product_(*group.product), blocks_(blocks) {}

  ScheduledGroup run() {
    if (blocks_.streamed) {
      stream(*blocks_.streamed);
    } else if (blocks_.halves) {
      KW_ASSERT(product_.left.dtype == DType::f32, "what is not in single precision is split into halves");
      const SplitOperand left = split(product_, Side::kLeft), right = split(product_, Side::kRight);
      multiply(&left, &right, false);
      multiply(&left, &right, true);
    } else {
      multiply(nullptr, nullptr, false);
    }
    return std::move(result_);
  }

 private:
  enum class Axis { kRow, kColumn, kDepth };

  static std::vector<const ProductOperand*> operands_of(const Product& product) {
    std::vector<const ProductOperand*> operands = {&product.left, &product.right};
    if (product.addend) operands.push_back(&*product.addend);
    return operands;
  }

  // Such that operands have their dimensions in the axes' order, as far as there is one: the bulk copy engine loads no
  // others.
  std::array<Axis, 3> axis_order() const {
    const auto lies_along_depth = [&](Side side) {
      return dimensions_of(product_, side).back().role == OperandDimension::Role::kDepth;
    };
    if (lies_along_depth(Side::kRight)) return {Axis::kRow, Axis::kColumn, Axis::kDepth};
    if (lies_along_depth(Side::kLeft)) return {Axis::kRow, Axis::kDepth, Axis::kColumn};
    return {Axis::kDepth, Axis::kRow, Axis::kColumn};
  }

  ProductSymbols declare(KernelDraft& draft) const {
    ProductSymbols symbols;
    symbols.batch = draft.batch_axes(product_.batch);
    for (const Axis axis : axis_order()) {
      if (axis == Axis::kRow) symbols.row = draft.axis("row", product_.rows);
      if (axis == Axis::kColumn) symbols.column = draft.axis("column", product_.columns);
      if (axis == Axis::kDepth) symbols.depth = draft.axis("depth", product_.depth);
    }
    return symbols;
  }

  ProductSymbols declare_in_chunks(KernelDraft& draft) const {
    ProductSymbols symbols;
    symbols.batch = draft.batch_axes(product_.batch);
    symbols.row = draft.axis("row", product_.rows);
    symbols.column = draft.axis("column", product_.columns);
    symbols.chunk = draft.axis("chunk", product_.depth / blocks_.depth);
    symbols.chunk_size = blocks_.depth;
    symbols.depth = draft.axis("depth", blocks_.depth);
    return symbols;
  }

  // The product and what follows it. `again`: in f32, where a row or a column is no sum of halves.
  void multiply(const SplitOperand* left, const SplitOperand* right, bool again) {
    KernelDraft draft(group_.kernel.name + (again ? "_in_f32" : ""),
                      again ? "The same in f32, where a row or a column is no sum of halves." : group_.kernel.doc);
    const ProductSymbols symbols = declare(draft);
    kernel::Builder& build = draft.build;

    ExprId product = kernel::kNoExpr, flagged = kernel::kNoExpr;
    if (left != nullptr && !again) {
      const ExprId a = halves(draft, *left, symbols), b = halves(draft, *right, symbols);
      product = build.dot(a, b, {symbols.depth});
      const ExprId left_scale = scale(draft, *left, symbols), right_scale = scale(draft, *right, symbols);
      // The smaller first: no step leaves the range of f32 where the result does not.
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMinimum, {left_scale, right_scale})});
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMaximum, {left_scale, right_scale})});
    } else {
      product = build.dot(operand(draft, product_, Side::kLeft, symbols),
                          operand(draft, product_, Side::kRight, symbols), {symbols.depth});
      if (again) flagged = build.named("has_no_halves", has_no_halves(draft, *left, *right, symbols));
    }
    // A fold over columns needs all of a row again.
    if (flagged != kernel::kNoExpr && blocks_.whole_rows)
      flagged = build.reduce(kernel::ReduceOp::kAny, {flagged}, {symbols.column});
    finish_product(draft, symbols, product, flagged);
    finish(draft, product_schedule(left != nullptr && !again, again));
  }

  // --- One operand split where it is read ---

  // The kernel for the product, which finds where the streamed operand's rows have no halves, and the one in f32.
  void stream(Side side) {
    const SplitOperand kept = split(product_, side == Side::kLeft ? Side::kRight : Side::kLeft);
    const int64_t outer = side == Side::kLeft ? product_.rows : product_.columns;
    Shape shape = product_.batch;
    shape.push_back(outer);
    const int spoilt = scratch(kept.name + "_spoilt", DType::i32, shape, contiguous_strides(shape));
    for (const bool again : {false, true}) {
      KernelDraft draft(group_.kernel.name + (again ? "_in_f32" : ""),
                        again ? "The same in f32, where a row or a column is no sum of halves." : group_.kernel.doc);
      const ProductSymbols symbols = again ? declare(draft) : declare_in_chunks(draft);
      kernel::Builder& build = draft.build;
      std::vector<kernel::Index> places;
      for (kernel::Symbol axis : symbols.batch) places.push_back(kernel::symbol_index(axis));
      places.push_back(kernel::symbol_index(side == Side::kLeft ? symbols.row : symbols.column));
      const int buffer = draft.buffer("spoilt", DType::i32, shape, {},
                                      again ? kernel::BufferRole::kInput : kernel::BufferRole::kOutput, -1 - spoilt);
      const ExprId streamed = operand(draft, product_, side, symbols);
      ExprId product = kernel::kNoExpr, flagged = kernel::kNoExpr;
      if (again) {
        const ExprId other = operand(draft, product_, kept.side, symbols);
        product = side == Side::kLeft ? build.dot(streamed, other, {symbols.depth})
                                      : build.dot(other, streamed, {symbols.depth});
        flagged = build.named("has_no_halves",
                              streamed_has_no_halves(draft, kept, symbols, draft.load(buffer, places)));
      } else {
        const HalvesOfRow rows = halves_of_row(build, streamed, symbols.depth, blocks_.depth);
        const ExprId other = halves(draft, kept, symbols);
        const ExprId part = side == Side::kLeft ? build.dot(rows.scaled, other, {symbols.depth})
                                                : build.dot(other, rows.scaled, {symbols.depth});
        // Two steps: neither a row's scale nor a chunk's times the product leaves the range of f32 by itself.
        const ExprId of_row = build.op(kernel::ScalarOp::kMul, {part, scale_back(build, rows.exponent)});
        product = build.reduce(kernel::ReduceOp::kSum, {of_row}, {symbols.chunk});
        product = build.op(kernel::ScalarOp::kMul, {product, scale(draft, kept, symbols)});
        const ExprId spoils = build.op(
            kernel::ScalarOp::kLogicalOr,
            {rows.loses,
             build.op(kernel::ScalarOp::kGreater, {rows.exponent, build.constant(DType::f32, kLargestExponent)})});
        const ExprId flag = build.op(kernel::ScalarOp::kSelect, {spoils, build.constant(DType::i32, int64_t{1}),
                                                                 build.constant(DType::i32, int64_t{0})});
        draft.store(buffer, places, build.reduce(kernel::ReduceOp::kMax, {flag}, {symbols.chunk}));
      }
      finish_product(draft, symbols, product, flagged);
      finish(draft, again ? product_schedule(false, true) : stream_schedule());
    }
  }

  static ExprId streamed_has_no_halves(KernelDraft& draft, const SplitOperand& kept, const ProductSymbols& symbols,
                                       ExprId spoilt) {
    kernel::Builder& build = draft.build;
    const ExprId zero = build.constant(DType::i32, int64_t{0});
    const ExprId loses = build.op(kernel::ScalarOp::kGreaterEqual, {needs(draft, kept, symbols), zero});
    const ExprId large = build.op(kernel::ScalarOp::kGreater,
                                  {scale(draft, kept, symbols), build.constant(DType::f32, kLargestScale)});
    return build.op(kernel::ScalarOp::kLogicalOr, {build.op(kernel::ScalarOp::kGreater, {spoilt, zero}),
                                                   build.op(kernel::ScalarOp::kLogicalOr, {loses, large})});
  }

  KernelSchedule stream_schedule() const {
    KernelSchedule schedule;
    for (size_t axis = 0; axis < product_.batch.size(); ++axis) schedule.axes.emplace_back();
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = blocks_.rows});
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = blocks_.columns});
    schedule.axes.push_back({.mapping = Mapping::kLoop, .width = 1, .stages = blocks_.stages});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.depth});
    schedule.scheme = lower::Scheme::kFp16x3;
    schedule.bulk = blocks_.bulk;
    schedule.warps = blocks_.warps;
    return schedule;
  }

  // What follows the sum of products.
  void finish_product(KernelDraft& draft, const ProductSymbols& symbols, ExprId product, ExprId flagged) const {
    product = result_of(draft, product_, symbols, product);
    store_results(draft, group_, symbols.result_places(), draft.build.cast(product_.left.dtype, product), flagged);
  }

  static ExprId has_no_halves(KernelDraft& draft, const SplitOperand& left, const SplitOperand& right,
                              const ProductSymbols& symbols) {
    kernel::Builder& build = draft.build;
    const auto either = [&](ExprId a, ExprId b) { return build.op(kernel::ScalarOp::kLogicalOr, {a, b}); };
    const auto infinite = [&](const SplitOperand& one) {
      return build.op(kernel::ScalarOp::kIsInf, {scale(draft, one, symbols)});
    };
    const auto misses = [&](const SplitOperand& one, const SplitOperand& other) {
      return build.op(kernel::ScalarOp::kGreaterEqual, {needs(draft, one, symbols), large(draft, other, symbols)});
    };
    return either(either(infinite(left), infinite(right)), either(misses(left, right), misses(right, left)));
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
      const int64_t side = wide ? 128 : 64,
                    rows = blocks_.whole_rows ? std::max<int64_t>(side * side / blocks_.columns, 16) : side;
      if (axis == Axis::kRow) schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.rows, rows)});
      if (axis == Axis::kColumn && blocks_.whole_rows)
        schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.columns});
      if (axis == Axis::kColumn && !blocks_.whole_rows)
        schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.columns, side)});
      if (axis == Axis::kDepth)
        schedule.axes.push_back({.mapping = Mapping::kLoop,
                                 .width = block(blocks_.depth, wide ? 16 : 32),
                                 .stages = again ? 0 : blocks_.stages});
    }
    if (!blocks_.whole_rows) schedule.order = {.grouped = "row", .along = "column", .count = blocks_.neighbours};
    schedule.scheme = halves ? lower::Scheme::kFp16x3 : lower::Scheme::kIeee;
    schedule.bulk = halves && blocks_.bulk;
    if (!again && blocks_.consumers > 1) schedule.consumers = {"row", blocks_.consumers, blocks_.programs};
    schedule.skip_masked = again;
    if (again) schedule.walkers = kProductWalkers;
    schedule.warps = again ? (wide ? 8 : 4) : blocks_.warps;
    return schedule;
  }

  const Product& product_;
  const ContractionBlocks& blocks_;
};

}  // namespace

ScheduledGroup contraction_kernels(const LoweredGroup& group, const ContractionBlocks& blocks) {
  return Contraction(group, blocks).run();
}

}  // namespace kw::plan
