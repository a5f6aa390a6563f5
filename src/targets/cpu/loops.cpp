// Pointwise groups, part by part (parts.hpp), and reductions: every part is loops over its axes. Threads share
// the outer ones, SIMD runs along the one that suits the accesses; transposed operands are walked in square tiles, and
// what is folded, which is a tile, as often as its folds wait for each other: row by row, or a block of columns at
// once.
#include <algorithm>
#include <map>
#include <set>

#include "lower/pipeline.hpp"
#include "plan/axes.hpp"
#include "plan/embedding.hpp"
#include "plan/scheduled_draft.hpp"
#include "support/error.hpp"
#include "targets/cpu/parts.hpp"
#include "targets/cpu/schedulers.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kLongestRow = 1 << 30;  // elements: places are counted in 32 bits
constexpr int64_t kMostOfTile = 1 << 20;  // elements, as lowering has them
constexpr int64_t kMostSorted = int64_t{1} << 31;
constexpr int64_t kLanes = 16;        // of whole vectors
constexpr int64_t kWorthAsking = 16;  // elements side by side
constexpr int kEnoughThreads = 4;

// Does a choice, or a mask, depend on where in the tensor an element stands? A short loop that is unrolled leaves the
// one around it to be vectorised, which g++ 12 does wrongly for AVX-512 where a choice depends on that one's rows: some
// of them are computed as if on the other side.
bool chooses(const GroupKernel& kernel, const LoopNest& nest) {
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    const bool selects = expr.kind == ExprKind::kOp && expr.op == kernel::ScalarOp::kSelect;
    if (nest.needed[id] && (selects || (is_load(expr) && parts_of_mask(kernel, expr.access.mask).guards != kNoExpr)))
      return true;
  }
  return false;
}

// Sums and products of floats run in double: one rounding in the end, whatever the length. Windows have few elements
// each, which PyTorch adds up in their own precision too.
GroupKernel with_wide_sums(const GroupKernel& kernel) {
  GroupKernel wide = kernel;
  wide.exprs.clear();
  std::vector<ExprId> moved;
  const auto cast = [&](ExprId operand, DType to, const std::string& name) {
    Expr expr;
    expr.kind = ExprKind::kOp;
    expr.op = kernel::ScalarOp::kCast;
    expr.dtype = to;
    expr.name = name;
    expr.operands = {operand};
    wide.exprs.push_back(std::move(expr));
    return static_cast<ExprId>(wide.exprs.size()) - 1;
  };
  for (const Expr& old : kernel.exprs) {
    Expr expr = old;
    kernel::renumber(expr, moved);
    const bool adds = (expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan) &&
                      (expr.reduce == kernel::ReduceOp::kSum || expr.reduce == kernel::ReduceOp::kProd ||
                       expr.reduce == kernel::ReduceOp::kLogSumExp);
    const bool widens = adds && is_floating(expr.dtype) && expr.dtype != DType::f64;
    if (widens) {
      expr.operands[0] = cast(expr.operands[0], DType::f64, "");
      expr.dtype = DType::f64;
      expr.name = "wide_" + (old.name.empty() ? noun_for(old, kernel) : old.name);
    }
    wide.exprs.push_back(std::move(expr));
    moved.push_back(static_cast<ExprId>(wide.exprs.size()) - 1);
    if (widens) moved.back() = cast(moved.back(), old.dtype, old.name.empty() ? noun_for(old, kernel) : old.name);
  }
  for (Store& store : wide.stores) {
    store.value = moved[store.value];
    kernel::renumber(store.access, moved);
  }
  return wide;
}

// A kernel whose parts store what one group's kernel does, each along axes of its own.
class PartsDraft {
 public:
  explicit PartsDraft(LoweredGroup group) : group_(std::move(group)), draft_(group_.kernel.name, group_.kernel.doc) {}

  ScheduledTiles run(const std::vector<Part>& parts) {
    add_buffers();
    for (const Part& part : parts) add(part);
    for (const std::string& axis : order_) draft_.schedule.nest.push_back({axis});
    ScheduledTiles tiles = lowered(draft_, draft_.schedule);
    name_loops(tiles.program);
    return tiles;
  }

  // Of the part's largest tile.
  static int64_t tile_elements(const Part& part) {
    int64_t elements = 1;
    for (int axis = 0; axis < axis_count(part.simplified.kernel); ++axis) {
      const lower::AxisSchedule how = schedule_of(part, axis);
      if (how.mapping == lower::Mapping::kTile || how.width > 1) elements *= how.width;
    }
    return elements;
  }

 private:
  void add_buffers() {
    for (size_t buffer = 0; buffer < group_.kernel.buffers.size(); ++buffer) {
      const kernel::Buffer& one = group_.kernel.buffers[buffer];
      const int made = draft_.buffer(one.name, one.dtype, {elements_of(one)}, {},
                                     role_of(group_.kernel, static_cast<int>(buffer)), group_.buffers[buffer]);
      draft_.build.align(made, one.alignment);
    }
  }

  void add(const Part& part) {
    const GroupKernel kernel = part.simplified.hints.folds_inside ? part.simplified.kernel
                                                                  : with_wide_sums(part.simplified.kernel);
    std::vector<kernel::Symbol> folded;
    std::vector<kernel::Index> axes(kernel.symbols.size(), kernel::Index(0));
    for (const int axis : loops_of(part)) {
      const int64_t extent = extent_of(kernel, axis);
      KW_ASSERT(extent > 0, "what has no elements is the library's (plan/op_table.cpp)");
      if (extent == 1 && !is_serial(kernel, axis)) continue;
      const lower::AxisSchedule how = schedule_of(part, axis);
      const std::string name = name_of_axis(kernel.symbols[axis].name);
      const kernel::Symbol symbol = draft_.mapped(name, extent, how);
      axes[axis] = kernel::symbol_index(symbol);
      if (is_folded(kernel, axis)) folded.push_back(symbol);
      if (how.mapping == lower::Mapping::kLoop) order_.push_back(name);
    }
    const auto place = [](int buffer, const kernel::Index& index) { return KernelDraft::access(buffer, {index}); };
    Embedding embedding(draft_.build, kernel, std::move(axes), {}, place, std::move(folded));
    uses_.assign(kernel.exprs.size(), 0);
    for (const Store& store : kernel.stores)
      for (const ExprId made : made_of(kernel, store)) name_all(kernel, embedding, made);
    for (const Store& store : kernel.stores) embedding.store(store);
    if (scatters(kernel)) share_places(part);
  }

  // Points that meet store in their order. Asking whose an element is costs a thread as much as a few elements,
  // wherever the answer cannot be foreseen: half of the time between two.
  void share_places(const Part& part) {
    const LoopNest& nest = part.nest;
    const int64_t at_a_place = nest.vector_axis < 0 ? 1 : extent_of(part.simplified.kernel, nest.vector_axis);
    draft_.schedule.in_order = true;
    if (nest.threading == Threading::kOwners) draft_.schedule.owners = at_a_place < kWorthAsking ? kEnoughThreads : 1;
  }

  // Outermost first.
  static std::vector<int> loops_of(const Part& part) {
    const LoopNest& nest = part.nest;
    std::vector<int> loops = nest.program_axes;
    for (const AxisBlock& block : nest.blocks) loops.push_back(block.axis);
    loops.insert(loops.end(), nest.reduce_axes.begin(), nest.reduce_axes.end());
    for (const int axis : {nest.row_axis, nest.tiled_axis, nest.vector_axis})
      if (axis >= 0 && std::find(loops.begin(), loops.end(), axis) == loops.end()) loops.push_back(axis);
    return loops;
  }

  static lower::AxisSchedule schedule_of(const Part& part, int axis) {
    const LoopNest& nest = part.nest;
    const int64_t extent = extent_of(part.simplified.kernel, axis), block = nest.block_of(axis);
    if (nest.form == LoopForm::kScanRows && (axis == nest.vector_axis || axis == nest.row_axis))
      return schedule_of_rows(nest, axis, extent);
    lower::AxisSchedule how{.mapping = lower::Mapping::kLoop, .width = block > 0 ? block : 1};
    const bool is_vector = axis == nest.vector_axis;
    const bool scatters = plan::scatters(part.simplified.kernel);
    const bool is_tiled = nest.tiled_axis >= 0 || nest.copies || (nest.form == LoopForm::kColumns && !scatters);
    const bool folds = !scatters && is_folded(part.simplified.kernel, axis);
    if (folds || (block == 0 && ((is_vector && is_tiled) || axis == nest.tiled_axis)))
      how = {.mapping = lower::Mapping::kTile, .width = extent};
    if (is_vector && nest.whole_vectors) how.width = (extent + kLanes - 1) / kLanes * kLanes;
    how.threads = is_shared(nest, axis) || (folds && nest.threading == Threading::kReduction);
    how.simd = is_vector && !nest.copies;
    if (how.simd && !how.threads && how.width == 1 && extent < kShort && !scatters &&
        !chooses(part.simplified.kernel, nest)) {
      how.simd = false;
      how.unrolled = true;
    }
    return how;
  }

  // Rows of a scan side by side, and pieces of them.
  static lower::AxisSchedule schedule_of_rows(const LoopNest& nest, int axis, int64_t extent) {
    const bool scans = axis == nest.vector_axis;
    const int64_t width = scans ? nest.piece : nest.block_of(axis);
    lower::AxisSchedule how{.mapping = lower::Mapping::kTile, .width = extent};
    if (width > 0) how = {.mapping = lower::Mapping::kLoop, .width = width};
    how.in_order = scans && width > 0;
    how.simd = scans;
    how.threads = !scans && width > 0 && is_shared(nest, axis);
    return how;
  }

  static bool is_shared(const LoopNest& nest, int axis) {
    if (nest.threading != Threading::kPrograms) return false;
    if (nest.program_axes.empty() && nest.blocks.empty()) return axis == nest.vector_axis;
    const std::vector<int>& programs = nest.program_axes;
    const auto place = std::find(programs.begin(), programs.end(), axis);
    auto at = static_cast<int>(place - programs.begin());
    if (place == programs.end()) {
      const auto block = std::find_if(nest.blocks.begin(), nest.blocks.end(),
                                      [&](const AxisBlock& one) { return one.axis == axis; });
      if (block == nest.blocks.end()) return false;
      at += static_cast<int>(block - nest.blocks.begin());
    }
    return at < nest.collapse;
  }

  // Axes have names of their own.
  std::string name_of_axis(const std::string& wanted) {
    const int times = ++times_[wanted];
    if (times == 1) return wanted;
    const std::string name = name_of_axis(wanted + "_" + std::to_string(times));
    wanted_.emplace(name, wanted);
    return name;
  }

  // Loops one after the other may share them.
  void name_loops(tile::Program& program) const {
    std::set<std::string> loops;
    for (tile::SymbolInfo& symbol : program.symbols) {
      if (symbol.kind != tile::SymbolKind::kLoop) continue;
      const auto wanted = wanted_.find(symbol.name);
      if (wanted != wanted_.end() && loops.contains(wanted->second)) symbol.name = wanted->second;
      loops.insert(symbol.name);
    }
  }

  // Operands before users. Expressions keep the names that they have.
  void name_all(const GroupKernel& kernel, Embedding& embedding, ExprId id) {
    if (++uses_[id] == 1)
      for (const ExprId made : made_of(kernel, kernel.exprs[id])) name_all(kernel, embedding, made);
    const Expr& expr = kernel.exprs[id];
    if (uses_[id] > 1) return;
    const kernel::ExprId embedded = embedding.expr(id);
    const kernel::Expr& now = draft_.build.kernel().exprs[embedded];
    if (now.name.empty() && now.kind != kernel::ExprKind::kConstant && now.kind != kernel::ExprKind::kIndex)
      draft_.named(!expr.name.empty() ? expr.name
                   : is_load(expr)    ? kernel.buffers[expr.access.buffer].name + "_value"
                                      : noun_for(expr, kernel),
                   embedded);
  }

  LoweredGroup group_;
  ScheduledDraft draft_;
  std::vector<std::string> order_;
  std::map<std::string, int> times_;           // names of axes that were wanted
  std::map<std::string, std::string> wanted_;  // axis → the name that another part's axis has
  std::vector<int> uses_;                      // [expression of a part]
};

// Where there is no such program the group is taken apart, at last into calls of the library.
[[noreturn]] void refuse(const GroupKernel& kernel, const std::string& what) {
  ErrorText text;
  text.message = "kernel '" + kernel.name + "' " + what;
  text.code = "bad-schedule";
  throw Error(ErrorKind::kUser, std::move(text));
}

void refuse_long_rows(const GroupKernel& kernel, const Part& part) {
  const auto is_of = [](ExprKind kind) { return [kind](const Expr& expr) { return expr.kind == kind; }; };
  const bool folds = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), is_of(ExprKind::kReduce));
  if (scan_axis_of(kernel) >= 0) {
    if (folds) refuse(kernel, "scans rows beside other folds");
    const int64_t most = sorts(kernel) ? kMostSorted : kMostOfTile;
    if (PartsDraft::tile_elements(part) > most) refuse(kernel, "scans more elements at once than a tile has");
  }
  const auto is_long = [](const kernel::SymbolInfo& axis) { return extent_of(axis) > kLongestRow; };
  const std::vector<kernel::SymbolInfo>& axes = part.simplified.kernel.symbols;
  if (folds && std::any_of(axes.begin(), axes.end(), is_long)) refuse(kernel, "folds rows that are too long to count");
}

}  // namespace

ScheduledTiles as_tiles(LoweredGroup group, LoopHints hints) {
  if (!group.windowed) {
    const int before = axis_count(group.kernel);
    name_axes(group.kernel);
    // An axis of one point may stand before the others.
    if (hints.contiguous_axis >= 0) hints.contiguous_axis += axis_count(group.kernel) - before;
  }
  const std::vector<Part> parts = parts_of(group.kernel, hints);
  for (const Part& part : parts) refuse_long_rows(group.kernel, part);
  return PartsDraft(std::move(group)).run(parts);
}

}  // namespace kw::cpu
