#include "plan/split.hpp"

#include <algorithm>
#include <cmath>

#include "plan/axes.hpp"
#include "plan/group_builder.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

bool is_position(ReduceOp op) { return op == ReduceOp::kArgMax || op == ReduceOp::kArgMin; }

ReduceOp combining(ReduceOp op) {
  if (op == ReduceOp::kMoments) return ReduceOp::kCombineMoments;
  if (op == ReduceOp::kMaxSumExp) return ReduceOp::kCombineMaxSumExp;
  return op;
}

Index row_number(const GroupKernel& kernel, SymbolRanges ranges, int parallel) {
  Coords coords;
  Shape shape;
  for (int axis = 0; axis < parallel; ++axis) {
    coords.push_back(axis_index(axis, ranges));
    shape.push_back(extent_of(kernel, axis));
  }
  return linearise(coords, shape, ranges);
}

// One reduction (with all its components) and the scratch tensors that hold its parts' results.
struct Partial {
  ExprId first = kNoExpr;
  std::vector<int> scratch;  // per component, of the parts
  std::vector<int> whole;    // per component, of the rows; made with through_statistics
};

std::string scratch_name(const Expr& expr, int component, size_t index) {
  std::string name;
  switch (expr.reduce) {
    case ReduceOp::kSum: name = "sum"; break;
    case ReduceOp::kMoments: name = component == 0 ? "mean" : "squares"; break;
    case ReduceOp::kMaxSumExp: name = component == 0 ? "max" : "exp_sum"; break;
    default: name = "result"; break;
  }
  return index == 0 ? name : name + "_" + std::to_string(index + 1);
}

class Splitter {
 public:
  Splitter(const LoweredGroup& group, SplitChoice choice, bool through_statistics)
      : group_(group), choice_(choice), through_statistics_(through_statistics) {}

  std::optional<SplitKernels> run() {
    if (!make_partial()) return std::nullopt;
    const GroupKernel& kernel = group_.kernel;
    std::vector<Store> full, kept;
    for (const auto& store : kernel.stores) {
      const std::vector<bool> uses = axes_of_access(kernel, store.access);
      const bool over_parts = std::any_of(uses.begin() + kernel.parallel, uses.end(), [](bool one) { return one; });
      (over_parts ? full : kept).push_back(store);
    }
    through_statistics_ = through_statistics_ && !full.empty();  // per-row results alone need no kernel in between
    if (!full.empty() && !through_statistics_) make_finish(full, true);
    if (!kept.empty() || through_statistics_) make_finish(kept, false);
    if (through_statistics_) make_pointwise_finish(full);
    return std::move(result_);
  }

  LoweredGroup combine(const MadeParts& parts, const std::vector<Scratch>& scratch) {
    result_.scratch = scratch;
    parts_ = parts;
    part_length_ = parts.length;
    const std::vector<ExprId> folds = first_reductions(group_.kernel);
    for (size_t fold = 0; fold < folds.size(); ++fold) partials_.push_back({folds[fold], parts.folds.at(fold), {}});
    make_finish(group_.kernel.stores, false);
    return std::move(result_.finish.front());
  }

 private:
  Index row_index(SymbolRanges ranges, int parallel) const { return row_number(group_.kernel, ranges, parallel); }

  // [parallel points][parts], so that a row's parts are contiguous.
  Index scratch_index(SymbolRanges ranges, int parallel, int part_axis) const {
    if (parts_ && parts_->outermost)
      return add(axis_index(part_axis, ranges) * parallel_points(group_.kernel), row_index(ranges, parallel), ranges);
    const Index row = row_index(ranges, parallel) * choice_.parts;
    return add(row, axis_index(part_axis, ranges), ranges);
  }

  int add_scratch(const std::string& name, DType dtype, int64_t parts) {
    Scratch scratch;
    scratch.name = name;
    scratch.type.dtype = dtype;
    scratch.type.shape = {parallel_points(group_.kernel), parts};
    scratch.type.strides = {parts, 1};
    result_.scratch.push_back(scratch);
    return static_cast<int>(result_.scratch.size()) - 1;
  }

  int scratch_buffer(LoweredGroup& group, int scratch, kernel::BufferRole role) {
    for (size_t i = 0; i < group.buffers.size(); ++i)
      if (group.buffers[i] == -1 - scratch) return static_cast<int>(i);
    const Scratch& tensor = result_.scratch[scratch];
    group.kernel.buffers.push_back(row_of_elements(tensor.name, tensor.type.dtype, tensor.type.elements(), role));
    group.buffers.push_back(-1 - scratch);
    return static_cast<int>(group.buffers.size()) - 1;
  }

  bool make_partial() {
    LoweredGroup& partial = result_.partial;
    partial = group_;
    GroupKernel& kernel = partial.kernel;
    kernel.name = stem() + "_partial_kernel";
    kernel.doc = "Partial results over " + std::to_string(choice_.parts) + " parts of each row: " + kernel.doc;
    kernel.stores.clear();
    const int parallel = kernel.parallel;
    if (!split_off_parallel(kernel, choice_.axis, choice_.parts, choice_.length)) return false;
    part_length_ = reduce_points(kernel);
    const Index place = scratch_index(kernel::ranges_of(kernel), parallel, parallel);
    for (ExprId id : first_reductions(group_.kernel)) {
      const Expr& expr = group_.kernel.exprs[id];
      Partial one{id, {}, {}};
      const size_t index = partials_.size();
      for (int component = 0; component < components_of(expr.reduce); ++component)
        one.scratch.push_back(
            add_scratch("partial_" + scratch_name(expr, component, index), expr.dtype, choice_.parts));
      partials_.push_back(one);
    }
    drop_unused_buffers(partial);
    const std::vector<ExprId> folds = first_reductions(kernel);  // where those of the group are now
    for (size_t fold = 0; fold < folds.size(); ++fold)
      for (size_t component = 0; component < partials_[fold].scratch.size(); ++component) {
        const int buffer = scratch_buffer(partial, partials_[fold].scratch[component], kernel::BufferRole::kOutput);
        const ExprId folded = component_of(kernel, folds[fold], static_cast<int>(component));
        kernel.stores.push_back({element_at(buffer, place), folded});
      }
    kernel::drop_unused(partial.kernel);
    drop_unused_buffers(partial);
    return true;
  }

  // The Reduce expression of that component, made where the group did not ask for it.
  static ExprId component_of(GroupKernel& kernel, ExprId first, int component) {
    for (ExprId id : siblings_of(kernel, first))
      if (kernel.exprs[id].component == component) return id;
    Expr copy = kernel.exprs[first];
    copy.component = component;
    copy.name.clear();
    kernel.exprs.push_back(copy);
    return static_cast<ExprId>(kernel.exprs.size()) - 1;
  }

  std::string stem() const {
    std::string name = group_.kernel.name;
    if (name.ends_with("_kernel")) name.resize(name.size() - 7);
    return name;
  }

  void make_finish(const std::vector<Store>& stores, bool full) {
    LoweredGroup finish = group_;
    GroupKernel& kernel = finish.kernel;
    kernel.stores = stores;
    kernel.name = stem() +
                  (full || (result_.finish.empty() && !through_statistics_) ? "_finish_kernel" : "_statistics_kernel");
    kernel.doc = (full || !through_statistics_ ? "Results from the parts of each row: "
                                               : "Statistics of each row from its parts: ") +
                 kernel.doc;
    if (!full && through_statistics_) publish_statistics(finish);
    const int parallel = kernel.parallel;
    // Nothing that is kept depends on the row's axes, or all of them are shared out.
    std::vector<kernel::SymbolInfo> axes = kernel.symbols;
    if (!full) axes.resize(static_cast<size_t>(parallel));
    std::vector<Index> replacement;
    for (int axis = 0; axis < axis_count(kernel); ++axis)
      replacement.push_back(axis < parallel || full ? kernel::symbol_index(axis) : Index(0));
    const auto part_axis = static_cast<int>(axes.size());
    axes.push_back(axis_of("", choice_.parts));
    KW_ASSERT(replace_axes(kernel, axes, part_axis, replacement), "axes that stay or go are expressible");
    rewrite_reductions(finish, scratch_index(kernel::ranges_of(kernel), parallel, part_axis));
    kernel::drop_unused(kernel);
    drop_unused_buffers(finish);
    result_.finish.push_back(std::move(finish));
  }

  // Stores for every component, over the group's own axes.
  void publish_statistics(LoweredGroup& finish) {
    const int parallel = group_.kernel.parallel;
    const Index row = row_index(kernel::ranges_of(group_.kernel), parallel);
    for (Partial& one : partials_) {
      const Expr expr = group_.kernel.exprs[one.first];
      for (int component = 0; component < components_of(expr.reduce); ++component) {
        one.whole.push_back(add_scratch(
            "row_" + scratch_name(expr, component, static_cast<size_t>(&one - partials_.data())), expr.dtype, 1));
        const int buffer = scratch_buffer(finish, one.whole.back(), kernel::BufferRole::kOutput);
        finish.kernel.stores.push_back({element_at(buffer, row), component_of(finish.kernel, one.first, component)});
      }
    }
  }

  // Every axis is parallel now and every Reduce a load of its row's result.
  void make_pointwise_finish(const std::vector<Store>& stores) {
    LoweredGroup finish = group_;
    GroupKernel& kernel = finish.kernel;
    kernel.stores = stores;
    kernel.name = stem() + "_finish_kernel";
    kernel.doc = "Results from each row's statistics: " + kernel.doc;
    const Index row = row_index(kernel::ranges_of(kernel), kernel.parallel);
    for (ExprId id = 0; id < static_cast<ExprId>(kernel.exprs.size()); ++id) {
      if (group_.kernel.exprs[id].kind != ExprKind::kReduce) continue;
      Expr& expr = kernel.exprs[id];
      const ExprId first = siblings_of(group_.kernel, id).front();
      const auto one = std::find_if(partials_.begin(), partials_.end(),
                                    [&](const Partial& partial) { return partial.first == first; });
      const int component = expr.component;
      expr.kind = ExprKind::kLoad;
      expr.operands.clear();
      expr.axes.clear();
      expr.component = 0;
      expr.access = element_at(scratch_buffer(finish, one->whole[component], kernel::BufferRole::kInput), row);
    }
    kernel.parallel = axis_count(kernel);
    kernel::drop_unused(kernel);
    drop_unused_buffers(finish);
    result_.finish.push_back(std::move(finish));
  }

  // Each Reduce becomes one over the parts' results. New operands must stand before it, so the expressions are numbered
  // afresh.
  void rewrite_reductions(LoweredGroup& finish, const Index& place) {
    const std::vector<Expr> old = finish.kernel.exprs;
    std::vector<Expr> fresh;
    std::vector<ExprId> moved(old.size(), kNoExpr);
    auto push = [&](Expr expr) {
      fresh.push_back(std::move(expr));
      return static_cast<ExprId>(fresh.size()) - 1;
    };
    std::map<ExprId, std::vector<ExprId>> operands_of;
    for (ExprId id = 0; id < static_cast<ExprId>(old.size()); ++id) {
      Expr expr = old[id];
      kernel::renumber(expr, moved);
      if (expr.kind == ExprKind::kReduce) {
        const ExprId first = siblings_of(finish.kernel, id).front();  // its kernel has components that the
                                                                      // group did not ask for
        auto& operands = operands_of[first];
        if (operands.empty()) {
          const auto one = std::find_if(partials_.begin(), partials_.end(),
                                        [&](const Partial& partial) { return partial.first == first; });
          const auto load = [&](int scratch) {
            Expr load;
            load.kind = ExprKind::kLoad;
            load.dtype = expr.dtype;
            load.access = element_at(scratch_buffer(finish, scratch, kernel::BufferRole::kInput), place);
            operands.push_back(push(load));
          };
          for (int scratch : one->scratch) load(scratch);
          if (expr.reduce == ReduceOp::kMoments && parts_ && parts_->elements >= 0) load(parts_->elements);
          else if (expr.reduce == ReduceOp::kMoments)
            operands.push_back(count_of_part(push, finish.kernel, expr.dtype));
        }
        expr.operands = operands;
        expr.reduce = combining(expr.reduce);
      }
      moved[id] = push(std::move(expr));
    }
    for (auto& store : finish.kernel.stores) store.value = moved[store.value];
    finish.kernel.exprs = std::move(fresh);
  }

  // How many elements a part, the last axis, has: a constant, or the smaller of that and what its period's earlier
  // parts leave.
  template <typename Push>
  ExprId count_of_part(Push&& push, const GroupKernel& kernel, DType dtype) const {
    Expr count;
    count.dtype = dtype;
    count.number = static_cast<double>(part_length_);
    if (!parts_ || parts_->last == parts_->length) return push(count);
    Expr left, length, smaller, cast;
    left.kind = ExprKind::kIndex;
    left.dtype = length.dtype = smaller.dtype = DType::i32;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(kernel);
    const Index earlier = kernel::modulo(kernel::symbol_index(axis_count(kernel) - 1), parts_->period, ranges);
    left.index = Index((parts_->period - 1) * parts_->length + parts_->last) - earlier * parts_->length;
    length.integer = parts_->length;
    smaller.kind = cast.kind = ExprKind::kOp;
    smaller.op = ScalarOp::kMinimum;
    smaller.operands = {push(left), push(length)};
    cast.op = ScalarOp::kCast;
    cast.dtype = dtype;
    cast.operands = {push(smaller)};
    return push(cast);
  }

  static void drop_unused_buffers(LoweredGroup& group) {
    GroupKernel& kernel = group.kernel;
    std::vector<bool> used(kernel.buffers.size(), false);
    for (const Expr& expr : kernel.exprs)
      if (is_load(expr)) used[expr.access.buffer] = true;
    for (const auto& store : kernel.stores) used[store.access.buffer] = true;
    std::vector<int> moved(kernel.buffers.size(), -1);
    std::vector<kernel::Buffer> buffers;
    std::vector<ValueId> values;
    for (int pass = 0; pass < 2; ++pass)  // inputs first, outputs last
      for (size_t id = 0; id < kernel.buffers.size(); ++id) {
        const bool is_result = kernel.buffers[id].role == kernel::BufferRole::kOutput && group.buffers[id] >= 0;
        if (!used[id] || is_result != (pass == 1)) continue;
        moved[id] = static_cast<int>(buffers.size());
        buffers.push_back(kernel.buffers[id]);
        values.push_back(group.buffers[id]);
      }
    for (Expr& expr : kernel.exprs)
      if (is_load(expr)) expr.access.buffer = moved[expr.access.buffer];
    for (auto& store : kernel.stores) store.access.buffer = moved[store.access.buffer];
    kernel.buffers = std::move(buffers);
    group.buffers = std::move(values);
  }

  const LoweredGroup& group_;
  SplitChoice choice_;
  bool through_statistics_;
  int64_t part_length_ = 1;
  std::optional<MadeParts> parts_;
  std::vector<Partial> partials_;
  SplitKernels result_;
};

}  // namespace

Index number_of_row(const GroupKernel& kernel) {
  return row_number(kernel, kernel::ranges_of(kernel), kernel.parallel);
}

std::vector<ExprId> first_reductions(const GroupKernel& kernel) {
  std::vector<ExprId> first;
  for (ExprId id = 0; id < static_cast<ExprId>(kernel.exprs.size()); ++id)
    if (kernel.exprs[id].kind == ExprKind::kReduce && siblings_of(kernel, id).front() == id) first.push_back(id);
  return first;
}

bool reductions_are_independent(const GroupKernel& kernel) {
  std::vector<bool> after(kernel.exprs.size(), false);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    for (ExprId part : made_of(kernel, expr)) after[id] = after[id] || after[part];
    if (expr.kind != ExprKind::kReduce) continue;
    if (after[id]) return false;
    after[id] = true;
  }
  return true;
}

namespace {

// Octaves between the wanted number of parts and the nearest that divides the axis: 200,000,001 elements in three parts
// keep three multiprocessors busy, and sums of 8,000 elements a lane are off by ten times what they need be.
constexpr double kTooFar = 0.6;

// Parts of a round length, the last of them shorter.
SplitChoice choose_uneven(const GroupKernel& kernel, int64_t wanted_parts) {
  const bool simple = std::all_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind != ExprKind::kReduce || expr.reduce <= ReduceOp::kAll;
  });
  const auto longest = std::max_element(kernel.symbols.begin() + kernel.parallel, kernel.symbols.end(),
                                        [](const auto& a, const auto& b) { return extent_of(a) < extent_of(b); });
  if (!simple || longest == kernel.symbols.end()) return {};
  const int64_t least = ceil_divide(extent_of(*longest), wanted_parts);
  // Whole blocks, and no part that starts in the middle of a line.
  const int64_t unit = least >= 65536 ? 8192 : least >= 8192 ? 1024 : 64;
  const int64_t length = ceil_divide(least, unit) * unit;
  if (length >= extent_of(*longest)) return {};
  return {static_cast<int>(longest - kernel.symbols.begin()), ceil_divide(extent_of(*longest), length), length};
}

}  // namespace

SplitChoice choose_split(const GroupKernel& kernel, int64_t wanted_parts) {
  const bool positions = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) {
    return expr.kind == ExprKind::kReduce && is_position(expr.reduce);
  });
  if (wanted_parts < 2 || positions || !reductions_are_independent(kernel)) return {};
  SplitChoice best;
  double best_distance = 1e9;
  for (int axis = kernel.parallel; axis < axis_count(kernel); ++axis) {
    const int64_t extent = extent_of(kernel, axis);
    const bool last = axis + 1 == axis_count(kernel);
    for (int64_t parts = 2; parts <= std::min<int64_t>(extent, wanted_parts * 8); ++parts) {
      if (extent % parts != 0 || (last && extent / parts < 64)) continue;
      // Cutting an outer axis keeps the inner one's blocks whole.
      const double distance = std::abs(std::log2(static_cast<double>(parts) / static_cast<double>(wanted_parts))) +
                              (last ? 0.1 : 0.0);
      if (distance < best_distance) {
        best_distance = distance;
        best = {axis, parts, extent / parts};
      }
    }
  }
  if (best_distance > kTooFar)
    if (const SplitChoice uneven = choose_uneven(kernel, wanted_parts); uneven.axis >= 0) return uneven;
  return best;
}

std::optional<SplitKernels> split_reduction(const LoweredGroup& group, SplitChoice choice, bool through_statistics) {
  return Splitter(group, choice, through_statistics).run();
}

LoweredGroup combine_parts(const LoweredGroup& group, const MadeParts& parts, const std::vector<Scratch>& scratch) {
  return Splitter(group, {.axis = group.kernel.parallel, .parts = parts.count, .length = parts.length}, false)
      .combine(parts, scratch);
}

}  // namespace kw::plan
