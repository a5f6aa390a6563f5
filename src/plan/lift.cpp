#include "plan/lift.hpp"

#include <algorithm>
#include <limits>

#include "kernel/scalar_values.hpp"
#include "support/error.hpp"

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;

namespace {

bool is_step(ScalarOp op) {
  switch (op) {
    case ScalarOp::kFloorDiv:
    case ScalarOp::kTruncDiv:
    case ScalarOp::kRemainder:
    case ScalarOp::kFmod:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound:
    case ScalarOp::kBounded: return true;
    default: return false;
  }
}

// A comparison for equality, or a cast to whole numbers or few bits, is a step too.
bool is_step(const flat::Kernel& kernel, const flat::Expr& expr) {
  if (expr.kind != flat::ExprKind::kOp) return false;
  if (expr.op == ScalarOp::kCast) {
    const DType from = kernel.exprs[expr.operands[0]].dtype;
    return is_floating(from) && (!is_floating(expr.dtype) || is_eight_bit_float(expr.dtype));
  }
  return is_step(expr.op);
}

// Folds of all that a row has; of a part of it, where what is left out changes nothing.
bool can_lift_fold(const flat::Expr& expr) {
  using flat::ReduceOp;
  switch (expr.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum:
    case ReduceOp::kProd:
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kAny:
    case ReduceOp::kAll: return true;
    case ReduceOp::kArgMax:
    case ReduceOp::kArgMin:
    case ReduceOp::kMaxSumExp:
    case ReduceOp::kCombineMaxSumExp:
    case ReduceOp::kMoments:
    case ReduceOp::kCombineMoments: return expr.access.guards.empty();
    default: return false;
  }
}

// A product's rows are folded as they are computed, in f32.
bool can_follow_product(const flat::Expr& fold) {
  using flat::ReduceOp;
  const bool decides = fold.reduce >= ReduceOp::kAny && fold.reduce <= ReduceOp::kArgMin;
  return !decides && fold.dtype == DType::f32 && fold.access.guards.empty() && fold.operands.size() == 1;
}

}  // namespace

bool can_lift(const flat::Kernel& kernel) {
  return std::all_of(kernel.exprs.begin(), kernel.exprs.end(), [](const flat::Expr& expr) {
    return expr.kind != flat::ExprKind::kReduce || can_lift_fold(expr);
  });
}

std::string noun_for(const flat::Expr& expr, const flat::Kernel& kernel) {
  using flat::ReduceOp;
  if (is_load(expr)) return kernel.buffers[expr.access.buffer].name;
  if (expr.kind == flat::ExprKind::kIndex) return "position";
  if (expr.kind == flat::ExprKind::kConstant) return "constant";
  if (expr.kind == flat::ExprKind::kScan) {
    if (is_sort(expr)) return expr.component == 1 ? "stood_at" : "in_order";
    if (expr.component == 1) return "running_at";
    switch (expr.reduce) {
      case ReduceOp::kProd: return "running_product";
      case ReduceOp::kMax: return "running_largest";
      case ReduceOp::kMin: return "running_smallest";
      case ReduceOp::kLogSumExp: return "running_log_sum";
      default: return "running_sum";
    }
  }
  if (expr.kind == flat::ExprKind::kReduce) {
    switch (expr.reduce) {
      case ReduceOp::kSum:
      case ReduceOp::kExtendedSum: return "total";
      case ReduceOp::kProd: return "total_product";
      case ReduceOp::kMax: return "largest";
      case ReduceOp::kMin: return "smallest";
      case ReduceOp::kAny: return "any_true";
      case ReduceOp::kAll: return "all_true";
      case ReduceOp::kArgMax: return "largest_at";
      case ReduceOp::kArgMin: return "smallest_at";
      case ReduceOp::kMoments:
      case ReduceOp::kCombineMoments: return expr.component == 0 ? "mean" : "squared_deviations";
      case ReduceOp::kMaxSumExp:
      case ReduceOp::kCombineMaxSumExp: return expr.component == 0 ? "largest" : "exponential_sum";
      case ReduceOp::kLogSumExp:
      case ReduceOp::kFirst:
      case ReduceOp::kSortUp:
      case ReduceOp::kSortDown: break;
    }
  }
  switch (expr.op) {
    case ScalarOp::kAdd: return "added";
    case ScalarOp::kSub: return "difference";
    case ScalarOp::kMul: return "product";
    case ScalarOp::kDiv: return "quotient";
    case ScalarOp::kNeg: return "negated";
    case ScalarOp::kAbs: return "magnitude";
    case ScalarOp::kExp: return "exponential";
    case ScalarOp::kLog: return "logarithm";
    case ScalarOp::kSqrt: return "root";
    case ScalarOp::kRsqrt: return "inverse_root";
    case ScalarOp::kTanh: return "tangent";
    case ScalarOp::kSigmoid: return "gate";
    case ScalarOp::kSelect: return "chosen";
    case ScalarOp::kBounded: return "place";
    case ScalarOp::kCast: return "converted";
    case ScalarOp::kEqual:
    case ScalarOp::kNotEqual:
    case ScalarOp::kLess:
    case ScalarOp::kLessEqual:
    case ScalarOp::kGreater:
    case ScalarOp::kGreaterEqual:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf: return "condition";
    default: return "value";
  }
}

kernel::BufferRole role_of(const flat::Kernel& kernel, int buffer) {
  kernel::BufferRole role = kernel::BufferRole::kInput;
  for (const flat::Store& store : kernel.stores) {
    if (store.access.buffer != buffer) continue;
    const bool keeps = role == kernel::BufferRole::kInOut || flat::scatter_of(kernel, store);
    role = keeps ? kernel::BufferRole::kInOut : kernel::BufferRole::kOutput;
  }
  const bool reads = std::any_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const flat::Expr& expr) {
    return flat::is_load(expr) && expr.access.buffer == buffer;
  });
  KW_ASSERT(!reads || role == kernel::BufferRole::kInput, "kernel '" + kernel.name + "' reads what it writes");
  return role;
}

bool can_follow_product(const flat::Kernel& kernel) {
  return can_lift(kernel) && flat::scan_axis_of(kernel) < 0 &&
         std::all_of(
             kernel.exprs.begin(), kernel.exprs.end(),
             [&](const flat::Expr& expr) {
               if (expr.kind == flat::ExprKind::kReduce) return can_follow_product(expr);
               const bool data_decide = expr.kind == flat::ExprKind::kGather || expr.kind == flat::ExprKind::kScatter;
               return !is_eight_bit_float(expr.dtype) && !data_decide && !is_step(kernel, expr);
             }) &&
         std::all_of(
             kernel.stores.begin(), kernel.stores.end(),
             [](const flat::Store& store) { return store.access.guards.empty(); });
}

Lift::Lift(kernel::Builder& build, const flat::Kernel& kernel, std::vector<kernel::Index> axes,
           std::map<int, ExprId> known, std::function<kernel::Access(int, const kernel::Index&)> place,
           std::vector<kernel::Symbol> folded, LiftedNumbers numbers)
    : build_(build),
      kernel_(kernel),
      axes_(std::move(axes)),
      known_(std::move(known)),
      place_(std::move(place)),
      folded_(std::move(folded)),
      numbers_(std::move(numbers)) {}

kernel::Index Lift::index(const flat::Index& index) const {
  const std::vector<kernel::SymbolRange> ranges = numbers_.ranges.empty() ? kernel::ranges_of(build_.kernel())
                                                                          : numbers_.ranges;
  return kernel::substitute(index, [&](kernel::Symbol axis) { return axes_[axis]; }, ranges);
}

kernel::Index Lift::over_symbols(const kernel::Index& index) const {
  return numbers_.over_symbols ? numbers_.over_symbols(index) : index;
}

// Bounds that no place reaches are left out.
ExprId Lift::within(const std::vector<flat::Guard>& guards) {
  const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build_.kernel());
  ExprId all = kernel::kNoExpr;
  const auto also = [&](ScalarOp op, const kernel::Index& place, int64_t bound) {
    const kernel::Interval range = kernel::range_of(place, ranges);
    const int64_t farthest = std::max({range.high, -range.low, bound, -bound});
    const DType dtype = farthest < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    const ExprId one = build_.op(op, {build_.index(place, dtype), build_.constant(dtype, bound)});
    all = all == kernel::kNoExpr ? one : build_.op(ScalarOp::kLogicalAnd, {all, one});
  };
  for (const flat::Guard& guard : guards) {
    const kernel::Index place = over_symbols(index(guard.index));
    const kernel::Interval range = kernel::range_of(place, ranges);
    if (range.low < guard.lower) also(ScalarOp::kGreaterEqual, place, guard.lower);
    if (range.high >= guard.upper) also(ScalarOp::kLess, place, guard.upper);
  }
  return all;
}

kernel::Access Lift::access(const flat::Access& access) {
  kernel::Access lifted = place_(access.buffer, index(access.index));
  const ExprId inside = within(access.guards);
  if (lifted.mask == kernel::kNoExpr) lifted.mask = inside;
  else if (inside != kernel::kNoExpr) lifted.mask = build_.op(ScalarOp::kLogicalAnd, {lifted.mask, inside});
  lifted.otherwise = access.otherwise;
  return lifted;
}

// The axes on which neither the place nor the value depends.
std::vector<kernel::Symbol> Lift::unseen_by(const flat::Store& scatter) const {
  const std::vector<bool> of_value = flat::axes_of_exprs(kernel_)[scatter.value],
                          of_place = flat::axes_of_access(kernel_, scatter.access);
  std::vector<kernel::Symbol> unseen;
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    if (const auto symbol = kernel::as_symbol(axes_[axis]); symbol && !of_value[axis] && !of_place[axis])
      unseen.push_back(*symbol);
  return unseen;
}

void Lift::store(const flat::Store& store) {
  kernel::Access place = access(store.access);
  const flat::Expr* scatter = flat::scatter_of(kernel_, store);
  if (!scatter) return build_.store(std::move(place), expr(store.value));
  place.coordinates.back().value = expr(scatter->operands[0]);
  const ExprId value = expr(scatter->operands[1]);
  if (scatter->overwrites) build_.store(std::move(place), value, unseen_by(store));
  else build_.combine(scatter->reduce, std::move(place), value, unseen_by(store));
}

ExprId Lift::load(const flat::Access& access) {
  const auto known = known_.find(access.buffer);
  return known == known_.end() ? build_.load(this->access(access)) : known->second;
}

// Moved by what the data decide.
ExprId Lift::gather(const flat::Expr& expr) {
  kernel::Access moved = access(expr.access);
  moved.coordinates.back().value = this->expr(expr.operands[0]);
  if (expr.operands.size() > 1) {
    const ExprId condition = this->expr(expr.operands[1]);
    moved.mask = moved.mask == kernel::kNoExpr ? condition : build_.op(ScalarOp::kLogicalAnd, {moved.mask, condition});
  }
  return build_.load(std::move(moved));
}

ExprId Lift::constant(const flat::Expr& expr) {
  if (is_floating(expr.dtype)) return build_.constant(expr.dtype, expr.number);
  if (expr.dtype == DType::b1) return build_.constant(DType::b1, int64_t{expr.number != 0 || expr.integer != 0});
  return build_.constant(expr.dtype, expr.integer);
}

// Is the operand a load that yields what changes nothing wherever the fold's guards do not hold?
bool Lift::leaves_out(const flat::Expr& fold) const {
  const flat::Expr* operand = &kernel_.exprs[fold.operands[0]];
  const kernel::Number identity = kernel::identity(fold.reduce, operand->dtype);
  const double number = is_floating(operand->dtype) ? identity.real : static_cast<double>(identity.whole);
  if (operand->kind == flat::ExprKind::kOp && operand->op == ScalarOp::kCast)
    operand = &kernel_.exprs[operand->operands[0]];
  return operand->kind == flat::ExprKind::kLoad && operand->access.guards == fold.access.guards &&
         operand->access.otherwise == number;
}

// The fold's first operand, which varies along all that is folded, also where it is the same for all points of an axis.
ExprId Lift::along_all(const flat::Expr& fold, ExprId operand) {
  const std::vector<std::vector<bool>> varies = flat::axes_of_exprs(kernel_);
  for (size_t axis = 0; axis < kernel_.axes.size(); ++axis) {
    const auto symbol = kernel::as_symbol(axes_[axis]);
    if (kernel_.axes[axis].kind != flat::AxisKind::kReduce || !symbol ||
        std::any_of(fold.operands.begin(), fold.operands.end(), [&](auto one) { return varies[one][axis]; }))
      continue;
    const DType dtype = kernel_.exprs[fold.operands[0]].dtype;
    const ExprId nothing = is_floating(dtype) ? build_.constant(dtype, 0.0) : build_.constant(dtype, int64_t{0});
    const ExprId holds = build_.op(ScalarOp::kGreaterEqual,
                                   {build_.index(axes_[axis]), build_.constant(DType::i32, int64_t{0})});
    operand = build_.op(ScalarOp::kSelect, {holds, operand, nothing});
  }
  return operand;
}

ExprId Lift::fold(const flat::Expr& expr) {
  std::vector<ExprId> operands;
  for (flat::ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  operands[0] = along_all(expr, operands[0]);
  if (const ExprId counted = within(expr.access.guards); counted != kernel::kNoExpr && !leaves_out(expr)) {
    const DType dtype = kernel_.exprs[expr.operands[0]].dtype;
    const kernel::Number identity = kernel::identity(expr.reduce, dtype);
    const ExprId nothing = is_floating(dtype) ? build_.constant(dtype, identity.real)
                                              : build_.constant(dtype, identity.whole);
    operands[0] = build_.op(ScalarOp::kSelect, {counted, operands[0], nothing});
  }
  return build_.reduce(expr.reduce, std::move(operands), folded_, expr.component);
}

ExprId Lift::scan(const flat::Expr& expr) {
  std::vector<ExprId> operands;
  for (flat::ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  const int axis = flat::scan_axis_of(kernel_);
  const auto walked = kernel::as_symbol(axes_[axis]);
  KW_ASSERT(walked, "a scan walks what is no axis");
  return build_.scan(expr.reduce, std::move(operands), *walked, kernel_.axes[axis].reversed, expr.component,
                     expr.integer);
}

// An index or a constant in 32 bits, where it fits; else itself.
ExprId Lift::narrowed(ExprId id) {
  const kernel::Expr& expr = build_.kernel().exprs[id];
  const bool constant = expr.kind == kernel::ExprKind::kConstant;
  if (expr.dtype != DType::i64 || (!constant && expr.kind != kernel::ExprKind::kIndex)) return id;
  const kernel::Index index = constant ? kernel::Index(expr.integer) : expr.index;
  const kernel::Interval range = kernel::range_of(index, kernel::ranges_of(build_.kernel()));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return range.low >= -kMost && range.high <= kMost ? build_.index(index, DType::i32) : id;
}

// Indices are compared, and become other numbers, in 32 bits where that makes no difference.
ExprId Lift::operation(const flat::Expr& expr) {
  std::vector<ExprId> operands;
  for (flat::ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  if (expr.op == ScalarOp::kCast) return build_.cast(expr.dtype, narrowed(operands[0]));
  if (expr.op >= ScalarOp::kEqual && expr.op <= ScalarOp::kGreaterEqual) {
    const std::vector<ExprId> narrow = {narrowed(operands[0]), narrowed(operands[1])};
    const auto is_narrow = [&](ExprId id) { return build_.kernel().exprs[id].dtype == DType::i32; };
    if (is_narrow(narrow[0]) && is_narrow(narrow[1])) operands = narrow;
  }
  return build_.op(expr.op, std::move(operands));
}

ExprId Lift::expr(flat::ExprId id) {
  if (const auto done = done_.find(id); done != done_.end()) return done->second;
  const flat::Expr& expr = kernel_.exprs[id];
  ExprId made = kernel::kNoExpr;
  switch (expr.kind) {
    case flat::ExprKind::kConstant: made = constant(expr); break;
    case flat::ExprKind::kIndex: made = build_.index(over_symbols(index(expr.access.index)), expr.dtype); break;
    case flat::ExprKind::kLoad: made = load(expr.access); break;
    case flat::ExprKind::kGather: made = gather(expr); break;
    case flat::ExprKind::kReduce: made = fold(expr); break;
    case flat::ExprKind::kScan: made = scan(expr); break;
    case flat::ExprKind::kOp: made = operation(expr); break;
    default: fail_internal(__FILE__, __LINE__, "an expression that can_lift refuses");
  }
  return done_[id] = made;
}

}  // namespace kw::plan
