#include "emit/kernel_ir.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "support/error.hpp"

namespace kw::kernel_ir {
namespace {

void mark(const Index& index, std::vector<bool>& axes) {
  for (const IndexTerm& term : index.terms) axes[term.axis] = true;
}

IndexRange range_of_term(const IndexTerm& term, const std::vector<Axis>& axes) {
  const int64_t last = std::max<int64_t>(axes[term.axis].extent - 1, 0) / term.divisor;
  const int64_t largest = term.modulus ? std::min(last, term.modulus - 1) : last;
  const int64_t end = largest * term.coefficient;
  return {std::min<int64_t>(0, end), std::max<int64_t>(0, end)};
}

bool can_scan(const Expr& expr) {
  switch (expr.reduce) {
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kSortUp:
    case ReduceOp::kSortDown: return expr.operands.size() == 1 || expr.operands.size() == 2;
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kLogSumExp: return expr.operands.size() == 1;
    default: return false;
  }
}

bool is_identifier(const std::string& name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

class Checker {
 public:
  explicit Checker(const Kernel& kernel) : kernel_(kernel) {}

  void run() {
    require(is_identifier(kernel_.name), "its name is not an identifier");
    check_axes();
    std::set<std::string> names;
    for (const Buffer& buffer : kernel_.buffers)
      require(is_identifier(buffer.name) && names.insert(buffer.name).second,
              "buffer name '" + buffer.name + "' is not a fresh identifier");
    names.clear();
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      if (!expr.name.empty())
        require(is_identifier(expr.name) && names.insert(expr.name).second,
                "expression name '" + expr.name + "' is not a fresh identifier");
      check_expr(expr, static_cast<ExprId>(id));
    }
    require(!kernel_.stores.empty(), "it stores nothing");
    for (const Store& store : kernel_.stores) {
      require(store.value >= 0 && store.value < static_cast<ExprId>(kernel_.exprs.size()),
              "a store's value does not exist");
      if (const Expr* scatter = scatter_of(kernel_, store)) check_scatter(*scatter, store);
      else check_access(store.access, "store");
      require(kernel_.buffers[store.access.buffer].role != BufferRole::kInput, "a store writes to an input");
    }
  }

 private:
  void require(bool good, const std::string& rule) const { KW_ASSERT(good, "kernel " + kernel_.name + ": " + rule); }

  void check_axes() const {
    int parallel = 0, scans = 0;
    bool reduce_seen = false;
    std::set<std::string> names;
    for (const Axis& axis : kernel_.axes) {
      require(is_identifier(axis.name) && names.insert(axis.name).second,
              "axis name '" + axis.name + "' is not a fresh identifier");
      require(axis.extent >= 0 && axis.block >= 1, "axis " + axis.name + " has a negative extent or no block");
      require(!(reduce_seen && axis.kind == AxisKind::kParallel), "a parallel axis stands after a reduce axis");
      reduce_seen = reduce_seen || is_serial(axis);
      parallel += axis.kind == AxisKind::kParallel;
      scans += axis.kind == AxisKind::kScan;
      require(is_serial(axis) || !axis.looped, "parallel axis " + axis.name + " is looped");
      require(axis.kind == AxisKind::kScan || !axis.reversed, "axis " + axis.name + " is reversed and no scan axis");
      require(!axis.unrolled || axis.looped, "axis " + axis.name + " is unrolled but no loop");
      require(axis.kind == AxisKind::kParallel || axis.looped || axis.block >= axis.extent,
              "persistent axis " + axis.name + " is longer than its block");
    }
    require(scans == 0 || scans + parallel == static_cast<int>(kernel_.axes.size()),
            "a reduce axis stands beside a scan axis");
    require(scans <= 1, "it has two scan axes");
  }

  void check_index(const Index& index) const {
    for (const IndexTerm& term : index.terms)
      require(
          term.axis >= 0 && term.axis < static_cast<int>(kernel_.axes.size()) && term.divisor >= 1 && term.modulus >= 0,
          "an index term is malformed");
  }

  void check_access(const Access& access, const std::string& what) const {
    require(access.buffer >= 0 && access.buffer < static_cast<int>(kernel_.buffers.size()),
            "a " + what + " names no buffer");
    check_index(access.index);
    for (const Guard& guard : access.guards) check_index(guard.index);
    const bool empty = std::any_of(kernel_.axes.begin(), kernel_.axes.end(),
                                   [](const Axis& axis) { return axis.extent == 0; });
    if (!access.guards.empty() || empty) return;
    const IndexRange range = range_of(access.index, kernel_.axes);
    require(range.lowest >= 0 && range.highest < kernel_.buffers[access.buffer].elements,
            "a " + what + " reaches outside buffer " + kernel_.buffers[access.buffer].name + " (" +
                std::to_string(range.lowest) + " to " + std::to_string(range.highest) + " of " +
                std::to_string(kernel_.buffers[access.buffer].elements) + ")");
  }

  void check_gather(const Expr& expr) const {
    require(expr.access.buffer >= 0 && expr.access.buffer < static_cast<int>(kernel_.buffers.size()),
            "a gather names no buffer");
    check_index(expr.access.index);
    for (const Guard& guard : expr.access.guards) check_index(guard.index);
    require(expr.operands.size() == 1 || expr.operands.size() == 2, "a gather has an offset and perhaps a condition");
    const DType offset = kernel_.exprs[expr.operands[0]].dtype;
    require(offset == DType::i64 || offset == DType::i32, "a gather's offset is neither an i32 nor an i64");
    require(expr.operands.size() == 1 || kernel_.exprs[expr.operands[1]].dtype == DType::b1,
            "a gather's condition is not a boolean");
  }

  void check_scatter(const Expr& expr, const Store& store) const {
    check_access(store.access, "store");
    const DType place = kernel_.exprs[expr.operands[0]].dtype;
    require(place == DType::i64 || place == DType::i32, "a Scatter's place is neither an i32 nor an i64");
    require(expr.overwrites || expr.reduce == ReduceOp::kSum || expr.reduce == ReduceOp::kProd ||
                expr.reduce == ReduceOp::kMax || expr.reduce == ReduceOp::kMin,
            "a Scatter has a fold that it cannot have");
  }

  void check_expr(const Expr& expr, ExprId id) const {
    for (ExprId operand : expr.operands) {
      require(operand >= 0 && operand < id, "expression " + std::to_string(id) + " uses a later one");
      require(kernel_.exprs[operand].kind != ExprKind::kScatter,
              "expression " + std::to_string(id) + " reads a Scatter");
    }
    if (expr.kind == ExprKind::kScatter) require(expr.operands.size() == 2, "a Scatter has a place and a value");
    if (expr.kind == ExprKind::kLoad) check_access(expr.access, "load");
    if (expr.kind == ExprKind::kIndex) check_index(expr.access.index);
    if (expr.kind == ExprKind::kGather) check_gather(expr);
    if (expr.kind == ExprKind::kReduce) {
      require(expr.operands.size() == static_cast<size_t>(kernel::arity_of(expr.reduce)),
              "a Reduce has the wrong number of operands");
      for (const Guard& guard : expr.access.guards) check_index(guard.index);
      require(expr.access.guards.empty() || expr.reduce <= ReduceOp::kAll,
              "a Reduce other than a simple fold has guards");
    }
    if (expr.kind == ExprKind::kScan)
      require(can_scan(expr) && scan_axis_of(kernel_) >= 0,
              "a Scan has no scan axis, or an operation or operands that it cannot have");
    if (is_sort(expr))
      require(expr.kind == ExprKind::kScan && !kernel_.axes[scan_axis_of(kernel_)].reversed,
              "a sort is no Scan, or its axis is reversed");
    if (expr.kind != ExprKind::kOp) return;
    require(static_cast<int>(expr.operands.size()) == kernel::arity_of(expr.op),
            "expression " + std::to_string(id) + " has the wrong number of operands");
    if (expr.op == ScalarOp::kSelect)
      require(kernel_.exprs[expr.operands[0]].dtype == DType::b1, "a Select's condition is not a boolean");
  }

  const Kernel& kernel_;
};

}  // namespace

std::vector<bool> axes_of_access(const Kernel& kernel, const Access& access) {
  std::vector<bool> axes(kernel.axes.size(), false);
  mark(access.index, axes);
  for (const Guard& guard : access.guards) mark(guard.index, axes);
  return axes;
}

int64_t stride_along(const Index& index, int axis) {
  int64_t stride = 0;
  for (const IndexTerm& term : index.terms)
    if (term.axis == axis && term.divisor == 1 && term.modulus == 0) stride += term.coefficient;
  return stride;
}

int64_t stride_along(const Access& access, int axis) { return stride_along(access.index, axis); }

std::vector<std::vector<bool>> axes_of_exprs(const Kernel& kernel) {
  std::vector<std::vector<bool>> result;
  result.reserve(kernel.exprs.size());
  for (const Expr& expr : kernel.exprs) {
    std::vector<bool> axes(kernel.axes.size(), false);
    if (expr.kind != ExprKind::kConstant && expr.kind != ExprKind::kOp) axes = axes_of_access(kernel, expr.access);
    for (ExprId operand : expr.operands)
      for (size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axes[axis] || result[operand][axis];
    if (expr.kind == ExprKind::kReduce)
      for (size_t axis = 0; axis < axes.size(); ++axis)
        if (kernel.axes[axis].kind == AxisKind::kReduce) axes[axis] = false;
    if (expr.kind == ExprKind::kScan)
      for (size_t axis = 0; axis < axes.size(); ++axis)
        axes[axis] = axes[axis] || kernel.axes[axis].kind == AxisKind::kScan;
    result.push_back(std::move(axes));
  }
  return result;
}

std::vector<ExprId> siblings_of(const Kernel& kernel, ExprId id) {
  std::vector<ExprId> siblings;
  const Expr& one = kernel.exprs[id];
  for (size_t other = 0; other < kernel.exprs.size(); ++other) {
    const Expr& expr = kernel.exprs[other];
    const bool folds = expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan;
    // A Scan's positions have a dtype of their own.
    const bool same_dtype = expr.kind == ExprKind::kScan || expr.dtype == one.dtype;
    if (folds && expr.kind == one.kind && expr.reduce == one.reduce && expr.operands == one.operands && same_dtype &&
        expr.integer == one.integer && expr.access.guards == one.access.guards)
      siblings.push_back(static_cast<ExprId>(other));
  }
  return siblings;
}

bool sorts(const Kernel& kernel) { return std::any_of(kernel.exprs.begin(), kernel.exprs.end(), is_sort); }

bool scatters(const Kernel& kernel) {
  return std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return scatter_of(kernel, store) != nullptr; });
}

int64_t reach_of_scatter(const Kernel& kernel, const Store& store) {
  return kernel.buffers[store.access.buffer].elements - range_of(store.access.index, kernel.axes).highest;
}

IndexRange range_of(const Index& index, const std::vector<Axis>& axes) {
  IndexRange range{index.constant, index.constant};
  for (const IndexTerm& term : index.terms) {
    const IndexRange part = range_of_term(term, axes);
    range.lowest += part.lowest;
    range.highest += part.highest;
  }
  return range;
}

int scan_axis_of(const Kernel& kernel) {
  for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
    if (kernel.axes[axis].kind == AxisKind::kScan) return static_cast<int>(axis);
  return -1;
}

int64_t program_count(const Kernel& kernel) {
  int64_t count = 1;
  for (const Axis& axis : kernel.axes)
    if (axis.kind == AxisKind::kParallel) count *= blocks_of(axis);
  return count;
}

void check_kernel(const Kernel& kernel) { Checker(kernel).run(); }

}  // namespace kw::kernel_ir
