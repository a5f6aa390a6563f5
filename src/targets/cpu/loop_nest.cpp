#include "targets/cpu/loop_nest.hpp"

#include <algorithm>

#include "targets/cpu/loop_stops.hpp"

namespace kw::cpu {

using namespace plan;

namespace {

constexpr int64_t kParallelElements = 32768;    // below this, waking the other threads costs more than they save
constexpr int64_t kParallelReduction = 262144;  // from this many elements on, few programs share their reductions among
                                                // threads
constexpr int64_t kEnoughPrograms = 8;
constexpr int64_t kBalancedPrograms = 64;
constexpr int64_t kPointwiseBlock = 4096;
constexpr int64_t kTile = 32, kNarrowTile = 16;
constexpr int64_t kSetBytes = 4096;  // lines that lie this far apart share a set of the nearest cache
constexpr int64_t kCopyBytes = 1024, kCopyBlockBytes = 64 * 1024;  // a run worth a call of memcpy, and one after which
                                                                   // threads take turns
constexpr int64_t kSideBySide = 8, kPiece = 512;  // of the scan's rows and of their elements: an array of both is 16 KB
constexpr int64_t kMostColumns = 1024, kFewestColumns = 64;
constexpr int64_t kShortRow = 257, kLanes = 16;  // so few vectors are unrolled
constexpr int64_t kBlockBytes = 256 * 1024;  // what several passes over a block of columns should find in the L2 cache
constexpr int kNeverShort = 1000;            // what a short axis has to make up for where something is reduced

class Planner {
 public:
  explicit Planner(const Simplified& simplified)
      : kernel_(simplified.kernel), hints_(simplified.hints), scatters_(plan::scatters(kernel_)) {
    axes_ = kernel::dependences(kernel_);
  }

  LoopNest run() {
    find_needed();
    find_phases();
    choose_vector_axis();
    list_axes();
    choose_block();
    choose_threading();
    choose_whole_vectors();
    return std::move(nest_);
  }

 private:
  int64_t extent(int axis) const { return extent_of(kernel_, axis); }
  static int64_t or_else(int64_t choice, int64_t own) { return choice != 0 ? choice : own; }
  int64_t elements() const {
    int64_t elements = 1;
    for (const kernel::SymbolInfo& axis : kernel_.symbols) elements *= extent_of(axis);
    return elements;
  }
  bool is_serial_axis(int axis) const { return is_serial(kernel_, axis); }
  bool scans() const { return scan_axis_of(kernel_) >= 0; }
  size_t expr_count() const { return kernel_.exprs.size(); }

  void find_needed() { nest_.needed = values_of(kernel_); }

  void find_phases() {
    std::vector<int> phase(expr_count(), 0);  // how many passes of folds have to be done before
    for (size_t id = 0; id < expr_count(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      for (ExprId part : made_of(kernel_, expr)) phase[id] = std::max(phase[id], phase[part]);
      if (expr.kind == ExprKind::kReduce) ++phase[id];
      if (nest_.needed[id]) last_pass_ = std::max(last_pass_, phase[id]);
    }
  }

  // How well SIMD along the axis suits one access: contiguous is good, a stride costs a gather, a constant is free.
  int suitability(const Access& access, int axis) const {
    const int64_t stride = stride_along(access, axis);
    bool divided = false;
    for (const kernel::Digit& digit : kernel::digits_of(index_of(access)))
      divided = divided || (digit.axis == axis && !digit.is_plain());
    const int weight = static_cast<int>(index_of(access).terms.size());  // an access along more axes moves more data
    if (divided) return -weight;
    return stride == 1 ? weight : (stride == 0 ? 0 : -weight);
  }

  void choose_vector_axis() {
    std::vector<std::pair<int, int>> scores;  // and their axes
    for (int axis = 0; axis < axis_count(kernel_); ++axis) {
      if (extent(axis) <= 1 || (hints_.folds_inside && is_serial_axis(axis)) || axis == scan_axis_of(kernel_) ||
          (scatters_ && is_serial_axis(axis)))
        continue;
      int score = 0;
      for (size_t id = 0; id < expr_count(); ++id) {
        const Expr& expr = kernel_.exprs[id];
        if (!nest_.needed[id] || !is_load(expr)) continue;
        const bool scattered = looks_up(expr) && axes_[lookup_of(expr.access)][axis];
        score += scattered ? -1 : suitability(expr.access, axis);
      }
      for (const Store& store : kernel_.stores) score += suitability(store.access, axis);
      if (axis == hints_.contiguous_axis) score += 1;
      if (reduces() && extent(axis) < kShort) score -= kNeverShort;
      scores.emplace_back(score, axis);
    }
    std::sort(scores.rbegin(), scores.rend());  // of equals, the inner one
    nest_.possible_vector_axes = static_cast<int>(scores.size());
    const size_t choice = std::min<size_t>(static_cast<size_t>(hints_.choices.along),
                                           scores.empty() ? 0 : scores.size() - 1);
    const int best_score = scores.empty() ? 0 : scores[choice].first;
    if (!scores.empty()) nest_.vector_axis = scores[choice].second;
    // A sort wants its row whole. Rows lie side by side only where the cache lines of several are the same.
    const bool sorts = plan::sorts(kernel_);
    if (sorts && best_score <= 0) nest_.vector_axis = -1;
    if (scans() && (sorts || nest_.vector_axis < 0 || best_score < 0) && !reduces()) {
      nest_.form = LoopForm::kScanRows;
      nest_.row_axis = nest_.vector_axis;
      nest_.vector_axis = scan_axis_of(kernel_);
    }
  }

  bool reduces() const { return last_pass_ > 0; }

  void list_axes() {
    const int vector = nest_.vector_axis;
    for (int axis = 0; axis < axis_count(kernel_); ++axis) {
      if (axis == vector || axis == nest_.row_axis || (extent(axis) == 1 && axis != scan_axis_of(kernel_))) continue;
      (is_serial_axis(axis) ? nest_.reduce_axes : nest_.program_axes).push_back(axis);
    }
    if (vector >= 0 && is_serial_axis(vector)) nest_.reduce_axes.push_back(vector);
    if (nest_.form == LoopForm::kScanRows) return;
    if (!reduces() && nest_.reduce_axes.empty()) nest_.form = LoopForm::kPointwise;
    else if (vector < 0 || is_serial_axis(vector)) nest_.form = LoopForm::kRows;
    else nest_.form = LoopForm::kColumns;
    if (nest_.form == LoopForm::kColumns) keep_results_per_column();
  }

  // Every column has an accumulator of its own, also where all columns fold the same.
  void keep_results_per_column() {
    for (size_t id = 0; id < expr_count(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      bool varies = axes_[id][nest_.vector_axis] || expr.kind == ExprKind::kReduce;
      for (const ExprId part : made_of(kernel_, expr)) varies = varies || axes_[part][nest_.vector_axis];
      axes_[id][nest_.vector_axis] = varies;
    }
  }

  int64_t product_of(const std::vector<int>& axes) const {
    int64_t result = 1;
    for (int axis : axes) result *= extent(axis);
    return result;
  }

  void choose_block() {
    const int vector = nest_.vector_axis;
    const int64_t programs = product_of(nest_.program_axes);
    if (nest_.form == LoopForm::kScanRows) return choose_piece(programs);
    if (vector < 0 || is_serial_axis(vector)) return;
    if (nest_.form == LoopForm::kPointwise) {
      nest_.copies = copies_runs();
      if (nest_.copies) {
        const int64_t block = kCopyBlockBytes / size_of(kernel_.buffers[kernel_.stores[0].access.buffer].dtype);
        if (extent(vector) > block) nest_.blocks.push_back({vector, block});
        return;
      }
      const auto [across, own_tile] = transposed_axis();
      if (across >= 0 && !scatters_) {
        std::erase(nest_.program_axes, across);
        const int64_t tile = or_else(hints_.choices.tile, own_tile);
        if (extent(across) > tile) nest_.blocks.push_back({across, tile});
        if (extent(vector) > tile) nest_.blocks.push_back({vector, tile});
        nest_.tiled_axis = across;
      } else if (!nest_.program_axes.empty() && programs < kBalancedPrograms && extent(vector) >= 2 * kPointwiseBlock) {
        nest_.blocks.push_back({vector, kPointwiseBlock});
      }
      return;
    }
    const bool several_passes = !scans() && !scatters_ && (last_pass_ > 1 || stores_over_reduce_axes());
    int64_t block = several_passes ? kBlockBytes / (4 * std::max<int64_t>(product_of(nest_.reduce_axes), 1))
                                   : kMostColumns;
    block = std::clamp(block / kFewestColumns * kFewestColumns, kFewestColumns, kMostColumns);
    // A few blocks for each of many threads, as long as a row of a block stays several cache lines long; one line where
    // only blocks can be shared out.
    const int64_t least = several_passes && elements() >= kParallelElements ? kLanes : 128;
    while (block > least && programs * (extent(vector) / block) < kEnoughPrograms)
      block = std::max(block / 2 / kLanes * kLanes, kLanes);
    block = or_else(hints_.choices.columns, block);
    if (block < extent(vector)) nest_.blocks.push_back({vector, block});
  }

  bool copies_runs() const {
    return std::all_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const Store& store) {
      const Expr& value = kernel_.exprs[store.value];
      const DType stored = kernel_.buffers[store.access.buffer].dtype;
      if (!is_load(value) || looks_up(value) || value.dtype != stored ||
          kernel_.buffers[value.access.buffer].dtype != stored)
        return false;
      if (value.access.mask != kNoExpr || store.access.mask != kNoExpr ||
          extent(nest_.vector_axis) * size_of(stored) < kCopyBytes)
        return false;
      return suitability(store.access, nest_.vector_axis) > 0 && suitability(value.access, nest_.vector_axis) > 0;
    });
  }

  void choose_piece(int64_t programs) {
    const int64_t piece = or_else(hints_.choices.piece, kPiece);
    if (extent(nest_.vector_axis) > 2 * piece && !plan::sorts(kernel_)) nest_.piece = piece;
    if (nest_.row_axis < 0) return;
    const int64_t rows = extent(nest_.row_axis);
    int64_t block = std::min(rows, or_else(hints_.choices.rows, kSideBySide));
    while (block > 1 && programs * (rows / block) < kEnoughPrograms) block /= 2;
    // Rows that divide evenly have loops of fixed length.
    for (int64_t even = block; even > block / 2; --even)
      if (rows % even == 0) {
        block = even;
        break;
      }
    if (block < rows) nest_.blocks.push_back({nest_.row_axis, block});
  }

  // A parallel axis along which some access is contiguous that strides along the vector axis, −1 where there is none;
  // and the side of its tiles.
  struct Transposed {
    int axis;
    int64_t tile;
  };
  Transposed transposed_axis() const {
    std::vector<const Access*> accesses;
    for (size_t id = 0; id < expr_count(); ++id)
      if (nest_.needed[id] && is_load(kernel_.exprs[id])) accesses.push_back(&kernel_.exprs[id].access);
    for (const Store& store : kernel_.stores) accesses.push_back(&store.access);
    for (const Access* access : accesses) {
      if (std::abs(stride_along(*access, nest_.vector_axis)) <= 1) continue;
      for (int axis : nest_.program_axes)
        if (extent(axis) >= kLanes && stride_along(*access, axis) == 1) {
          const int64_t step = std::abs(stride_along(*access, nest_.vector_axis)) *
                               size_of(kernel_.buffers[access->buffer].dtype);
          return Transposed{axis, step % kSetBytes == 0 ? kNarrowTile : kTile};
        }
    }
    return {-1, 0};
  }

  bool over_reduce_axes(const std::vector<bool>& axes) const {
    for (int axis : nest_.reduce_axes)
      if (axes[axis]) return true;
    return false;
  }

  bool stores_over_reduce_axes() const {
    return std::any_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const Store& store) {
      return over_reduce_axes(axes_[store.value]) || over_reduce_axes(axes_of_access(kernel_, store.access));
    });
  }

  // Threads can share a column's reduction only where OpenMP combines arrays elementwise without losing NaN.
  bool can_share_reduction() const {
    if (nest_.reduce_axes.empty() || scans() || scatters_) return false;
    if (nest_.form == LoopForm::kRows) return true;
    for (size_t id = 0; id < expr_count(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      if (nest_.needed[id] && expr.kind == ExprKind::kReduce && expr.reduce != ReduceOp::kSum &&
          expr.reduce != ReduceOp::kExtendedSum && expr.reduce != ReduceOp::kProd)
        return false;
    }
    return true;
  }

  void choose_threading() {
    int64_t programs = product_of(nest_.program_axes);
    for (const AxisBlock& block : nest_.blocks) programs *= (extent(block.axis) + block.size - 1) / block.size;
    const int64_t elements = this->elements();
    const bool one_loop = nest_.form == LoopForm::kPointwise && nest_.program_axes.empty() && nest_.blocks.empty();
    if (one_loop && nest_.vector_axis >= 0) programs = extent(nest_.vector_axis);
    if (elements < or_else(hints_.choices.share, kParallelElements)) return;
    if (programs < kEnoughPrograms && elements >= or_else(hints_.choices.share, kParallelReduction) &&
        can_share_reduction()) {
      nest_.threading = Threading::kReduction;
      return;
    }
    const bool only_scatters = std::all_of(kernel_.stores.begin(), kernel_.stores.end(), is_scatter);
    if (only_scatters && programs < kEnoughPrograms && !nest_.reduce_axes.empty()) {
      nest_.threading = Threading::kOwners;
      return;
    }
    if (programs < 2) return;
    nest_.threading = Threading::kPrograms;
    int64_t covered = 1;
    nest_.collapse = 0;
    for (int axis : nest_.program_axes) {
      if (covered >= kBalancedPrograms) break;
      covered *= extent(axis);
      ++nest_.collapse;
    }
    for (const AxisBlock& block : nest_.blocks) {
      if (covered >= kBalancedPrograms) break;
      covered *= (extent(block.axis) + block.size - 1) / block.size;
      ++nest_.collapse;
    }
  }

  // What lies outside the guards is not computed.
  bool has_guarded_folds() const {
    return std::any_of(kernel_.exprs.begin(), kernel_.exprs.end(),
                       [](const Expr& expr) { return expr.kind == ExprKind::kReduce && expr.access.mask != kNoExpr; });
  }

  // The last elements of a short row cost as much one by one as all others together. Of what is narrower than 4 bytes
  // processors cannot leave out lanes.
  void choose_whole_vectors() {
    if (nest_.form != LoopForm::kRows || nest_.vector_axis < 0 || has_guarded_folds()) return;
    const int64_t length = extent(nest_.vector_axis);
    bool fits = length < kShortRow && length % kLanes != 0;
    for (size_t id = 0; id < expr_count(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      const bool narrow = is_load(expr) && size_of(kernel_.buffers[expr.access.buffer].dtype) < 4 &&
                          axes_[id][nest_.vector_axis];
      fits = fits && !(nest_.needed[id] && narrow);
    }
    for (const Store& store : kernel_.stores) fits = fits && size_of(kernel_.buffers[store.access.buffer].dtype) >= 4;
    fits = fits && !ends_early();
    nest_.whole_vectors = fits;
  }

  // Rows of a length of their own.
  bool ends_early() const {
    for (ExprId id = 0; id < static_cast<ExprId>(expr_count()); ++id)
      if (nest_.needed[id] && kernel_.exprs[id].kind == ExprKind::kReduce &&
          ends_early_along(kernel_, nest_.vector_axis, id))
        return true;
    return false;
  }

  const GroupKernel& kernel_;
  const LoopHints& hints_;
  const bool scatters_;
  std::vector<std::vector<bool>> axes_;  // [expression] the axes along which its value differs
  int last_pass_ = 0;                    // passes of folds that wait for each other
  LoopNest nest_;
};

}  // namespace

int64_t LoopNest::block_of(int axis) const {
  for (const AxisBlock& block : blocks)
    if (block.axis == axis) return block.size;
  return 0;
}

LoopNest plan_loops(const Simplified& simplified) { return Planner(simplified).run(); }

}  // namespace kw::cpu
