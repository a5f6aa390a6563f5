#include "plan/contraction_kernels.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "lower/place_conditions.hpp"
#include "plan/axes.hpp"
#include "plan/group_tiles.hpp"
#include "plan/product_lowering.hpp"
#include "plan/split.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using lower::KernelSchedule;
using lower::Mapping;

constexpr const char* kDocAgain = "The same in f32, where a row or a column is no sum of halves.";
constexpr const char* kDocAgainRounded = "The same in TF32, where halves do not hold a row or a column.";

constexpr int64_t kManyBlocks = 1 << 13;  // of 64 by 64 that the second kernel would have

// Of a streamed operand and the other: beyond, sums of scaled products might leave the range of f32 before the result
// does.
constexpr double kLargestExponent = 64.0, kLargestScale = 0x1p64;

class Contraction : ProductKernels {
 public:
  Contraction(const LoweredGroup& group, const ContractionBlocks& blocks)
      : ProductKernels(group, operands_of(*group.product)), product_(*group.product), blocks_(blocks) {}

  ScheduledGroup run() {
    if (blocks_.fold_parts) declare_folds();
    if (has_parts()) sums_ = scratch("sums_of_parts", DType::f32, shape_of_sums(), contiguous_strides(shape_of_sums()));
    if (!blocks_.streamed.empty()) {
      stream();
    } else if (blocks_.halves) {
      KW_ASSERT(product_.left.dtype == DType::f32, "what is not in single precision is split into halves");
      const Product parts = in_parts();
      const SplitOperand left = split(parts, Side::kLeft, kind()), right = split(parts, Side::kRight, kind());
      multiply(&left, &right, false);
      multiply(&left, &right, true);
    } else {
      multiply(nullptr, nullptr, false);
    }
    if (has_parts()) add_parts();
    if (blocks_.fold_parts) combine_folds();
    // What computes blocks again reads operands as whole_operand has them, and nothing else does.
    for (SplitByKernel& one : result_.splits) one.needs_halves_alone = true;
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
    if (lies_along_depth(Side::kRight)) return {Axis::kRow, Axis::kColumn, Axis::kDepth};
    if (lies_along_depth(Side::kLeft)) return {Axis::kRow, Axis::kDepth, Axis::kColumn};
    return {Axis::kDepth, Axis::kRow, Axis::kColumn};
  }

  Halves kind() const { return blocks_.one_half ? Halves::kOne : Halves::kTwo; }
  lower::Scheme scheme() const { return blocks_.one_half ? lower::Scheme::kIeee : lower::Scheme::kFp16x3; }

  // Of operands as they are.
  kernel::Precision precision() const {
    return blocks_.six_products ? kernel::Precision::kBf16x6 : kernel::Precision::kFull;
  }

  bool has_parts() const { return blocks_.parts > 1; }
  int64_t depth_of_part() const { return product_.depth / blocks_.parts; }
  // Does a block have whole rows, for what follows to fold them?
  bool folds_rows() const { return blocks_.whole_rows && !has_parts(); }

  // --- What blocks fold in parts ---

  static std::string name_of(Axis axis) { return axis == Axis::kRow ? "row" : "column"; }
  // Of the axis that blocks share out, which is the number of a block where each folds what it has.
  std::string axis_of_grid(Axis axis) const { return is_folded(axis) ? name_of(axis) + "_block" : name_of(axis); }

  bool is_folded(Axis axis) const {
    const bool folds_columns = folded_dimension(group_) == product_.batch.size() + 1;
    return blocks_.fold_parts && axis != Axis::kDepth && (axis == Axis::kColumn) == folds_columns;
  }
  // Neighbouring columns that are folded together.
  int64_t window() const { return folded_columns(group_); }
  int64_t folded_width() const { return is_folded(Axis::kRow) ? blocks_.rows : blocks_.columns; }
  int64_t folded_extent() const { return is_folded(Axis::kRow) ? product_.rows : product_.columns; }
  int64_t folded_blocks() const { return ceil_divide(folded_extent(), folded_width()); }

  void declare_folds() {
    const Shape shape = {folded_blocks(), parallel_points(group_.kernel)};
    for (const ExprId fold : first_reductions(group_.kernel)) {
      const kernel::Expr& expr = group_.kernel.exprs[fold];
      folds_.emplace_back();
      for (int component = 0; component < kernel::components_of(expr.reduce); ++component)
        folds_.back().push_back(scratch("folded", expr.dtype, shape, contiguous_strides(shape)));
    }
  }

  void store_folds(KernelDraft& draft, const ProductSymbols& symbols, ExprId result, ExprId flagged) const {
    const bool rows = is_folded(Axis::kRow);
    FoldsOfBlocks folds{.lanes = rows ? symbols.row : symbols.column,
                        .block = rows ? symbols.row_block : symbols.column_block,
                        .blocks = folded_blocks(),
                        .scratch = folds_};
    if (folded_extent() % folded_width() != 0)
      folds.inside = draft.build.op(kernel::ScalarOp::kLess,
                                    {draft.build.index(rows ? symbols.row_index() : symbols.column_index()),
                                     draft.build.constant(DType::i32, folded_extent())});
    ProductKernels::store_folds(draft, group_, symbols.result_places(), result, flagged, folds);
  }

  // A program has so many points that it reads whole lines of memory, and as many of their blocks as registers hold.
  void combine_folds() {
    constexpr int64_t kPoints = 32, kMost = 8192;
    const MadeParts parts{
        .count = folded_blocks(), .length = folded_width(), .last = folded_width(), .folds = folds_, .outermost = true};
    LoweredGroup folds = group_;
    std::erase_if(folds.kernel.stores, [&](const Store& store) -> bool {
      return axes_of_access(group_.kernel, store.access)[static_cast<size_t>(group_.kernel.parallel)];
    });
    LoweredGroup finish = combine_parts(folds, parts, result_.scratch);
    finish.product.reset();
    finish.halves.clear();
    const GroupKernel& kernel = finish.kernel;
    KernelSchedule schedule = in_single_points(kernel, 4);
    int64_t points = 1;
    if (const int last = axis_count(kernel) - 2; last >= 0) {
      points = std::min(next_power_of_two(extent_of(kernel, last)), kPoints);
      schedule.axes[static_cast<size_t>(last)] = in_blocks(kernel, last, points);
    }
    if (next_power_of_two(parts.count) * points > kMost) schedule.axes.back() = in_loop(kMost / points);
    result_.tiles.push_back(as_tiles(std::move(finish), std::move(schedule)));
  }

  // Parts as one more axis of a batch: each row has a scale of its own in each.
  Product in_parts() const {
    Product product = product_;
    if (!has_parts()) return product;
    product.batch.push_back(blocks_.parts);
    product.depth = depth_of_part();
    for (ProductOperand* operand : {&product.left, &product.right})
      operand->batch.push_back(operand->depth * depth_of_part());
    return product;
  }
  static ProductSymbols in_parts(ProductSymbols symbols) {
    if (symbols.part >= 0) symbols.batch.push_back(symbols.part);
    symbols.part = -1;
    return symbols;
  }

  ProductSymbols declare_outer(KernelDraft& draft) const {
    ProductSymbols symbols;
    symbols.batch = draft.batch_axes(product_.batch);
    if (has_parts()) symbols.part = draft.axis("part", blocks_.parts);
    symbols.part_size = depth_of_part();
    return symbols;
  }

  ProductSymbols declare(KernelDraft& draft) const {
    ProductSymbols symbols = declare_outer(draft);
    symbols.block_size = folded_width();
    symbols.window_size = window();
    for (const Axis axis : axis_order()) {
      if (is_folded(axis)) {
        (axis == Axis::kRow ? symbols.row_block : symbols.column_block) = draft.axis(axis_of_grid(axis),
                                                                                     folded_blocks());
        (axis == Axis::kRow ? symbols.row : symbols.column) = draft.axis(name_of(axis), folded_width());
        continue;
      }
      if (axis == Axis::kRow) symbols.row = draft.axis("row", product_.rows);
      if (axis == Axis::kColumn) symbols.column = draft.axis("column", product_.columns / window());
      if (axis == Axis::kColumn && window() > 1) symbols.window = draft.axis("window", window());
      if (axis == Axis::kDepth) symbols.depth = draft.axis("depth", depth_of_part());
    }
    return symbols;
  }

  bool lies_along_depth(Side side) const {
    return dimensions_of(product_, side).back().role == OperandDimension::Role::kDepth;
  }

  // Of one streamed operand, its tiles may lie otherwise than in memory. Consumers have it in registers, which is where
  // the left one of two matrices can be: its rows are those of the result.
  std::array<Axis, 3> axis_order_in_chunks() const {
    if (blocks_.streamed.size() == 2) return axis_order();
    if (blocks_.consumers == 1) return {Axis::kRow, Axis::kColumn, Axis::kDepth};
    const bool right = is_streamed(Side::kRight);
    const Axis streamed = right ? Axis::kColumn : Axis::kRow, kept = right ? Axis::kRow : Axis::kColumn;
    if (lies_along_depth(right ? Side::kLeft : Side::kRight)) return {streamed, kept, Axis::kDepth};
    return {streamed, Axis::kDepth, kept};
  }

  ProductSymbols declare_in_chunks(KernelDraft& draft) const {
    ProductSymbols symbols = declare_outer(draft);
    for (const Axis axis : axis_order_in_chunks()) {
      if (axis == Axis::kRow) symbols.row = draft.axis("row", product_.rows);
      if (axis == Axis::kColumn) symbols.column = draft.axis("column", product_.columns);
      if (axis != Axis::kDepth) continue;
      symbols.chunk = draft.axis("chunk", depth_of_part() / blocks_.depth);
      symbols.chunk_size = blocks_.depth;
      symbols.depth = draft.axis("depth", blocks_.depth);
    }
    return symbols;
  }

  // Of the axes of `declare_outer`: a block of each.
  KernelSchedule outer_schedule() const {
    KernelSchedule schedule;
    schedule.axes.resize(product_.batch.size() + (has_parts() ? 1 : 0));
    return schedule;
  }

  // What computes rows and columns again that halves do not hold, from the operands themselves: as PyTorch does.
  KernelDraft draft_again() const {
    return blocks_.one_half ? KernelDraft(group_.kernel.name + "_in_tf32", kDocAgainRounded)
                            : KernelDraft(group_.kernel.name + "_in_f32", kDocAgain);
  }

  ExprId dot_again(kernel::Builder& build, ExprId left, ExprId right, const ProductSymbols& symbols) const {
    if (!blocks_.one_half) return build.dot(left, right, {symbols.depth});
    // Tensor cores cut the digits that TF32 has not. A subnormal that rounds to 0 makes NaN of an infinity.
    for (ExprId* operand : {&left, &right}) *operand = build.op(kernel::ScalarOp::kRoundTf32, {*operand});
    return build.dot(left, right, {symbols.depth}, kernel::Precision::kTf32);
  }

  // The product and what follows it. `again`: where a row or a column is no sum of halves.
  void multiply(const SplitOperand* left, const SplitOperand* right, bool again) {
    KernelDraft draft = again ? draft_again() : KernelDraft(group_.kernel.name, group_.kernel.doc);
    const ProductSymbols symbols = declare(draft);
    kernel::Builder& build = draft.build;

    ExprId sum = kernel::kNoExpr, product = kernel::kNoExpr, flagged = kernel::kNoExpr;
    if (left != nullptr && !again) {
      const ProductSymbols parts = in_parts(symbols);
      const ExprId a = halves(draft, *left, parts), b = halves(draft, *right, parts);
      sum = product = build.dot(a, b, {symbols.depth});
      const ExprId left_scale = scale(draft, *left, parts), right_scale = scale(draft, *right, parts);
      // The smaller first: no step leaves the range of f32 where the result does not.
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMinimum, {left_scale, right_scale})});
      product = build.op(kernel::ScalarOp::kMul,
                         {product, build.op(kernel::ScalarOp::kMaximum, {left_scale, right_scale})});
    } else {
      const auto whole = [&](Side side, const SplitOperand* split) {
        return again ? whole_operand(draft, product_, *split, symbols, in_parts(symbols))
                     : operand(draft, product_, side, symbols);
      };
      const ExprId a = whole(Side::kLeft, left), b = whole(Side::kRight, right);
      sum = product = again ? dot_again(build, a, b, symbols) : build.dot(a, b, {symbols.depth}, precision());
      if (again) flagged = build.named("has_no_halves", has_no_halves(draft, *left, *right, in_parts(symbols)));
    }
    // A fold over columns needs all of a row again, or all of it that a block has.
    if (flagged != kernel::kNoExpr && (folds_rows() || is_folded(Axis::kColumn)))
      flagged = build.reduce(kernel::ReduceOp::kAny, {flagged}, {symbols.column});
    if (flagged != kernel::kNoExpr && symbols.window >= 0)
      flagged = build.reduce(kernel::ReduceOp::kAny, {flagged}, {symbols.window});
    if (flagged != kernel::kNoExpr && is_folded(Axis::kRow))
      flagged = build.reduce(kernel::ReduceOp::kAny, {flagged}, {symbols.row});
    finish_product(draft, symbols, product, flagged);
    KernelSchedule schedule = product_schedule(left != nullptr && !again, again);
    // Of a triangle, blocks whose results are all dropped need no product.
    schedule.axes[static_cast<size_t>(symbols.depth)].bounded = !again &&
                                                                is_dropped_by_place(build.kernel(), sum, symbols);
    finish(draft, schedule);
  }

  // Does a choice by rows and columns alone (tril, triu, a band) drop the sum somewhere? That a fold's last block may
  // have fewer of them is none: its other lanes are kept.
  bool is_dropped_by_place(const kernel::Kernel& kernel, ExprId sum, const ProductSymbols& symbols) const {
    const kernel::Index folded = is_folded(Axis::kRow) ? symbols.row_index() : symbols.column_index(),
                        left = kernel::Index(folded_extent() - 1) - folded;
    const std::vector<kernel::Index> asked = lower::asked_where_used(kernel, {sum});
    return std::any_of(asked.begin(), asked.end(), [&](const kernel::Index& index) {
      return !(blocks_.fold_parts && index == left) &&
             (kernel::uses(index, symbols.row) || kernel::uses(index, symbols.column));
    });
  }

  // --- Operands split where they are read ---

  // One that is streamed, and where halves lose digits of its rows (columns): 0 where they do not.
  struct Streamed {
    Side side = Side::kLeft;
    int spoilt = 0;  // scratch
    Shape shape;     // of it
  };

  // The kernel for the product, which finds where streamed operands' rows have no halves, and the one for these.
  void stream() {
    std::optional<SplitOperand> kept;
    std::vector<Streamed> streamed;
    for (const Side side : {Side::kLeft, Side::kRight})
      if (!is_streamed(side)) kept = split(product_, side, kind());
    for (const Side side : blocks_.streamed) {
      Streamed one{side, 0, has_parts() ? Shape{blocks_.parts} : Shape{}};
      one.shape.insert(one.shape.end(), product_.batch.begin(), product_.batch.end());
      one.shape.push_back(side == Side::kLeft ? product_.rows : product_.columns);
      const std::string name = kept ? kept->name : side == Side::kLeft ? product_.left.name : product_.right.name;
      one.spoilt = scratch(name + "_spoilt", DType::i32, one.shape, contiguous_strides(one.shape));
      streamed.push_back(std::move(one));
    }
    multiply_streamed(kept, streamed);
    multiply_streamed_again(kept, streamed);
  }

  bool is_streamed(Side side) const {
    return std::find(blocks_.streamed.begin(), blocks_.streamed.end(), side) != blocks_.streamed.end();
  }

  // Which of an operand's rows (columns) are spoilt, in a kernel.
  struct Spoilt {
    int buffer = -1;
    std::vector<kernel::Index> places;
  };
  static Spoilt spoilt_of(KernelDraft& draft, const Streamed& one, const ProductSymbols& symbols,
                          kernel::BufferRole role) {
    Spoilt spoilt;
    for (kernel::Symbol axis : symbols.batch) spoilt.places.push_back(kernel::symbol_index(axis));
    spoilt.places.push_back(kernel::symbol_index(one.side == Side::kLeft ? symbols.row : symbols.column));
    spoilt.places = symbols.places_of_part(std::move(spoilt.places));
    spoilt.buffer = draft.buffer("spoilt", DType::i32, one.shape, {}, role, -1 - one.spoilt);
    return spoilt;
  }

  void multiply_streamed(const std::optional<SplitOperand>& kept, const std::vector<Streamed>& streamed) {
    KernelDraft draft(group_.kernel.name, group_.kernel.doc);
    const ProductSymbols symbols = declare_in_chunks(draft);
    kernel::Builder& build = draft.build;
    std::vector<Spoilt> spoilt;
    for (const Streamed& one : streamed) spoilt.push_back(spoilt_of(draft, one, symbols, kernel::BufferRole::kOutput));
    std::vector<HalvesOfRow> rows;
    for (const Streamed& one : streamed)
      rows.push_back(halves_of_row(build, operand(draft, product_, one.side, symbols), {symbols.depth}, blocks_.depth,
                                   kept                      ? ""
                                   : one.side == Side::kLeft ? "left_"
                                                             : "right_",
                                   kind()));
    const auto factor = [&](Side side) {
      for (size_t place = 0; place < streamed.size(); ++place)
        if (streamed[place].side == side)
          return blocks_.one_half ? build.cast(DType::f16, rows[place].scaled) : rows[place].scaled;
      return halves(draft, *kept, symbols);
    };
    const ExprId left = factor(Side::kLeft), right = factor(Side::kRight);
    // In steps: neither a row's scale nor a chunk's times the product leaves the range of f32 by itself.
    ExprId product = build.dot(left, right, {symbols.depth});
    for (const HalvesOfRow& one : rows)
      product = build.op(kernel::ScalarOp::kMul, {product, scale_back(build, one.exponent)});
    product = build.reduce(kernel::ReduceOp::kSum, {product}, {symbols.chunk});
    if (kept) product = build.op(kernel::ScalarOp::kMul, {product, scale(draft, *kept, symbols)});
    for (size_t place = 0; place < streamed.size(); ++place) {
      const ExprId spoils = build.op(
          kernel::ScalarOp::kLogicalOr,
          {rows[place].loses,
           build.op(kernel::ScalarOp::kGreater, {rows[place].exponent, build.constant(DType::f32, kLargestExponent)})});
      const ExprId flag = build.op(kernel::ScalarOp::kSelect, {spoils, build.constant(DType::i32, int64_t{1}),
                                                               build.constant(DType::i32, int64_t{0})});
      draft.store(spoilt[place].buffer, spoilt[place].places,
                  build.reduce(kernel::ReduceOp::kMax, {flag}, {symbols.chunk}));
    }
    finish_product(draft, symbols, product, kernel::kNoExpr);
    finish(draft, stream_schedule());
  }

  void multiply_streamed_again(const std::optional<SplitOperand>& kept, const std::vector<Streamed>& streamed) {
    KernelDraft draft = draft_again();
    const ProductSymbols symbols = declare(draft);
    kernel::Builder& build = draft.build;
    const auto either = [&](ExprId a, ExprId b) { return build.op(kernel::ScalarOp::kLogicalOr, {a, b}); };
    std::vector<Spoilt> spoilt;
    for (const Streamed& one : streamed) spoilt.push_back(spoilt_of(draft, one, symbols, kernel::BufferRole::kInput));
    const auto operand_of = [&](Side side) {
      return kept && side == kept->side ? whole_operand(draft, product_, *kept, symbols, symbols)
                                        : operand(draft, product_, side, symbols);
    };
    const Side first = streamed[0].side;  // the order in which buffers are declared
    const ExprId one = operand_of(first), other = operand_of(first == Side::kLeft ? Side::kRight : Side::kLeft);
    const ExprId product = dot_again(build, first == Side::kLeft ? one : other, first == Side::kLeft ? other : one,
                                     symbols);
    ExprId flagged = kernel::kNoExpr;
    if (kept) {
      flagged = streamed_has_no_halves(draft, *kept, symbols, draft.load(spoilt[0].buffer, spoilt[0].places));
    } else {
      for (const Spoilt& side : spoilt) {
        const ExprId set = build.op(kernel::ScalarOp::kGreater,
                                    {draft.load(side.buffer, side.places), build.constant(DType::i32, int64_t{0})});
        flagged = flagged == kernel::kNoExpr ? set : either(flagged, set);
      }
    }
    finish_product(draft, symbols, product, build.named("has_no_halves", flagged));
    finish(draft, product_schedule(false, true));
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
    KernelSchedule schedule = outer_schedule();
    for (const Axis axis : axis_order_in_chunks()) {
      if (axis == Axis::kRow) schedule.axes.push_back({.mapping = Mapping::kGrid, .width = blocks_.rows});
      if (axis == Axis::kColumn) schedule.axes.push_back({.mapping = Mapping::kGrid, .width = blocks_.columns});
      if (axis != Axis::kDepth) continue;
      schedule.axes.push_back({.mapping = Mapping::kLoop, .width = 1, .stages = blocks_.stages});
      schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.depth});
    }
    schedule.scheme = scheme();
    schedule.bulk = blocks_.bulk;
    if (blocks_.consumers > 1)
      schedule.consumers = {is_streamed(Side::kRight) ? "column" : "row", blocks_.consumers, blocks_.programs};
    schedule.warps = blocks_.warps;
    return schedule;
  }

  // --- Parts of the depth ---

  Shape shape_of_sums() const {
    Shape shape = {blocks_.parts};
    shape.insert(shape.end(), product_.batch.begin(), product_.batch.end());
    shape.insert(shape.end(), {product_.rows, product_.columns});
    return shape;
  }

  int buffer_of_sums(KernelDraft& draft, kernel::BufferRole role) const {
    return draft.buffer("sums_of_parts", DType::f32, shape_of_sums(), {}, role, -1 - sums_);
  }

  // One behind the other: the order is the same at every call.
  void add_parts() {
    KernelDraft draft(group_.kernel.name + "_of_parts", "Adds what blocks have summed over parts of the depth.");
    ProductSymbols symbols;
    symbols.batch = draft.batch_axes(product_.batch);
    symbols.row = draft.axis("row", product_.rows);
    symbols.column = draft.axis("column", product_.columns);
    symbols.part = draft.axis("part", blocks_.parts);
    const ExprId sum = draft.load(buffer_of_sums(draft, kernel::BufferRole::kInput),
                                  symbols.places_of_part(symbols.result_places()));
    store_after(draft, symbols, draft.build.reduce(kernel::ReduceOp::kSum, {sum}, {symbols.part}), kernel::kNoExpr);
    // About one result for each thread, whose parts are all in flight.
    constexpr int64_t kResults = 128;
    const int64_t width = next_power_of_two(product_.columns);
    KernelSchedule schedule;
    schedule.axes.resize(product_.batch.size());
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = std::max<int64_t>(kResults / width, 1)});
    schedule.axes.push_back(blocks_.whole_rows
                                ? lower::AxisSchedule{.mapping = Mapping::kTile, .width = width}
                                : lower::AxisSchedule{.mapping = Mapping::kGrid, .width = std::min(width, kResults)});
    schedule.axes.push_back({.mapping = Mapping::kLoop, .width = 1, .unrolled = true});
    finish(draft, schedule);
  }

  // Of a part, its sum of products, of all what follows it.
  void finish_product(KernelDraft& draft, const ProductSymbols& symbols, ExprId product, ExprId flagged) const {
    if (!has_parts()) return store_after(draft, symbols, product, flagged);
    draft.store(buffer_of_sums(draft, kernel::BufferRole::kOutput), symbols.places_of_part(symbols.result_places()),
                product, flagged);
  }

  void store_after(KernelDraft& draft, const ProductSymbols& symbols, ExprId product, ExprId flagged) const {
    product = result_of(draft, product_, symbols, product);
    if (blocks_.fold_parts) return store_folds(draft, symbols, draft.build.cast(product_.left.dtype, product), flagged);
    store_results(draft, group_, symbols.result_places(), draft.build.cast(product_.left.dtype, product), flagged, {},
                  {}, symbols.window);
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
    KernelSchedule schedule = outer_schedule();
    // Most blocks of the second kernel only look at their scales: there should not be too many of them.
    const int64_t small_blocks = product_.batches() * ceil_divide(product_.rows, 64) *
                                 ceil_divide(product_.columns, 64);
    const bool wide = again && small_blocks > kManyBlocks;
    const auto block = [&](int64_t width, int64_t most) { return again ? std::min(width, most) : width; };
    for (const Axis axis : axis_order()) {
      const int64_t side = wide ? 128 : 64;
      // Folds take registers, where threads have the most results.
      const int64_t folds = !blocks_.fold_parts ? 1 : wide ? 4 : 2;
      const bool whole_columns = folds_rows() || is_folded(Axis::kColumn);
      const int64_t rows = whole_columns ? std::max<int64_t>(side * side / folds / blocks_.columns, 16) : side,
                    columns = is_folded(Axis::kRow) ? std::max<int64_t>(side * side / folds / blocks_.rows, 16)
                              : window() > 1        ? side / 2
                                                    : side;
      if (is_folded(axis)) {
        schedule.axes.push_back({.mapping = Mapping::kGrid, .width = 1});
        schedule.axes.push_back({.mapping = Mapping::kTile, .width = folded_width()});
        continue;
      }
      if (axis == Axis::kRow) schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.rows, rows)});
      if (axis == Axis::kColumn && folds_rows())
        schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.columns});
      if (axis == Axis::kColumn && !folds_rows())
        schedule.axes.push_back({.mapping = Mapping::kGrid, .width = block(blocks_.columns, columns) / window()});
      if (axis == Axis::kColumn && window() > 1)
        schedule.axes.push_back({.mapping = Mapping::kTile, .width = window(), .within = "column"});
      if (axis == Axis::kDepth)
        schedule.axes.push_back({.mapping = Mapping::kLoop,
                                 .width = block(blocks_.depth, wide ? 16 : 32),
                                 .stages = again ? 0 : blocks_.stages});
    }
    if (!folds_rows())
      schedule.order = {
          .grouped = axis_of_grid(Axis::kRow), .along = axis_of_grid(Axis::kColumn), .count = blocks_.neighbours};
    schedule.scheme = halves ? scheme() : lower::Scheme::kIeee;
    schedule.bulk = !again && blocks_.bulk && (halves || size_of(product_.left.dtype) == 2);
    schedule.bulk_stores = !again && blocks_.bulk_stores;
    if (!again && blocks_.consumers > 1)
      schedule.consumers = {axis_of_grid(Axis::kRow), blocks_.consumers, blocks_.programs};
    schedule.skip_masked = again;
    if (again) schedule.walkers = kProductWalkers;
    schedule.warps = again ? (wide ? 8 : 4) : blocks_.warps;
    return schedule;
  }

  const Product& product_;
  const ContractionBlocks& blocks_;
  int sums_ = 0;                         // scratch: of each part
  std::vector<std::vector<int>> folds_;  // scratch: of each block, for each component of each fold
};

}  // namespace

ScheduledGroup contraction_kernels(const LoweredGroup& group, const ContractionBlocks& blocks) {
  return Contraction(group, blocks).run();
}

}  // namespace kw::plan
