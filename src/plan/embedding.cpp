#include "plan/embedding.hpp"

#include <algorithm>
#include <limits>

#include "kernel/scalar_values.hpp"
#include "support/error.hpp"

namespace kw::plan {

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
bool is_step(const GroupKernel& kernel, const Expr& expr) {
  if (expr.kind != ExprKind::kOp) return false;
  if (expr.op == ScalarOp::kCast) {
    const DType from = kernel.exprs[expr.operands[0]].dtype;
    return is_floating(from) && (!is_floating(expr.dtype) || is_eight_bit_float(expr.dtype));
  }
  return is_step(expr.op);
}

// Folds of all that a row has; of a part of it, where what is left out changes nothing.
bool can_embed_fold(const Expr& expr) {
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
    case ReduceOp::kCombineMoments: return expr.access.mask == kNoExpr;
    default: return false;
  }
}

// A product's rows are folded as they are computed, in f32.
bool can_follow_product(const Expr& fold) {
  const bool decides = fold.reduce >= ReduceOp::kAny && fold.reduce <= ReduceOp::kArgMin;
  return !decides && fold.dtype == DType::f32 && fold.access.mask == kNoExpr && fold.operands.size() == 1;
}

}  // namespace

bool can_embed(const GroupKernel& kernel) {
  return std::all_of(kernel.exprs.begin(), kernel.exprs.end(),
                     [](const Expr& expr) { return expr.kind != ExprKind::kReduce || can_embed_fold(expr); });
}

std::string noun_for(const Expr& expr, const GroupKernel& kernel) {
  if (is_load(expr)) return kernel.buffers[expr.access.buffer].name;
  if (expr.kind == ExprKind::kIndex) return "position";
  if (expr.kind == ExprKind::kConstant) return "constant";
  if (expr.kind == ExprKind::kScan) {
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
  if (expr.kind == ExprKind::kReduce) {
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

kernel::BufferRole role_of(const GroupKernel& kernel, int buffer) {
  kernel::BufferRole role = kernel::BufferRole::kInput;
  for (const Store& store : kernel.stores) {
    if (store.access.buffer != buffer) continue;
    const bool keeps = role == kernel::BufferRole::kInOut || is_scatter(store);
    role = keeps ? kernel::BufferRole::kInOut : kernel::BufferRole::kOutput;
  }
  const bool reads = std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                                 [&](const Expr& expr) { return is_load(expr) && expr.access.buffer == buffer; });
  KW_ASSERT(!reads || role == kernel::BufferRole::kInput, "kernel '" + kernel.name + "' reads what it writes");
  return role;
}

namespace {

// Of a kernel that scans nothing and stores every element where it belongs. `counts`: of which expressions the rest is
// asked.
template <typename Counts>
bool can_stand_beside_product(const GroupKernel& kernel, const Counts& counts) {
  const auto stores_all = [](const Store& store) { return store.access.mask == kNoExpr && !is_scatter(store); };
  if (!can_embed(kernel) || scan_axis_of(kernel) >= 0 ||
      !std::all_of(kernel.stores.begin(), kernel.stores.end(), stores_all))
    return false;
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    if (!counts(static_cast<ExprId>(id))) continue;
    if (expr.kind == ExprKind::kReduce ? !can_follow_product(expr)
                                       : is_eight_bit_float(expr.dtype) || is_step(kernel, expr))
      return false;
  }
  return true;
}

// [expr] Does it move a load?
std::vector<bool> moving_loads(const GroupKernel& kernel) {
  std::vector<bool> moves(kernel.exprs.size(), false);
  for (const Expr& expr : kernel.exprs)
    if (looks_up(expr)) moves[lookup_of(expr.access)] = true;
  for (size_t id = moves.size(); id-- > 0;)  // operands stand before what is made of them
    if (moves[id])
      for (const ExprId operand : made_of(kernel, kernel.exprs[id])) moves[operand] = true;
  return moves;
}

}  // namespace

bool can_follow_product(const GroupKernel& kernel) {
  return std::none_of(kernel.exprs.begin(), kernel.exprs.end(), [](const Expr& expr) { return looks_up(expr); }) &&
         can_stand_beside_product(kernel, [](ExprId) { return true; });
}

bool can_make_image(const GroupKernel& kernel) {
  const std::vector<bool> moves = moving_loads(kernel);
  for (size_t id = 0; id < moves.size(); ++id)
    if (moves[id] && is_load(kernel.exprs[id])) return false;
  return can_stand_beside_product(kernel, [&](ExprId id) { return !moves[id]; });
}

Embedding::Embedding(kernel::Builder& build, const GroupKernel& kernel, std::vector<Index> axes,
                     std::map<int, ExprId> known, std::function<Access(int, const Index&)> place,
                     std::vector<kernel::Symbol> folded, EmbeddedNumbers numbers)
    : build_(build),
      kernel_(kernel),
      axes_(std::move(axes)),
      known_(std::move(known)),
      place_(std::move(place)),
      folded_(std::move(folded)),
      numbers_(std::move(numbers)) {}

Index Embedding::index(const Index& index) const {
  const std::vector<kernel::SymbolRange> ranges = numbers_.ranges.empty() ? kernel::ranges_of(build_.kernel())
                                                                          : numbers_.ranges;
  return kernel::substitute(index, [&](kernel::Symbol axis) { return axes_[axis]; }, ranges);
}

Index Embedding::over_symbols(const Index& index) const {
  return numbers_.over_symbols ? numbers_.over_symbols(index) : index;
}

// Bounds that no place reaches are left out.
ExprId Embedding::within(ExprId guards) {
  const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build_.kernel());
  ExprId all = kNoExpr;
  const auto also = [&](ScalarOp op, const Index& place, int64_t bound) {
    const kernel::Interval range = kernel::range_of(place, ranges);
    const int64_t farthest = std::max({range.high, -range.low, bound, -bound});
    const DType dtype = farthest < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    all = build_.both(all, build_.op(op, {build_.index(place, dtype), build_.constant(dtype, bound)}));
  };
  for (const Guard& guard : guards_of(kernel_, guards)) {
    const Index place = over_symbols(index(guard.index));
    const kernel::Interval range = kernel::range_of(place, ranges);
    if (range.low < guard.lower) also(ScalarOp::kGreaterEqual, place, guard.lower);
    if (range.high >= guard.upper) also(ScalarOp::kLess, place, guard.upper);
  }
  return all;
}

// Moved by what the data decide, where they do.
Access Embedding::access(const Access& access) {
  Access embedded = place_(access.buffer, index(index_of(access)));
  const MaskParts parts = parts_of_mask(kernel_, access.mask);
  embedded.mask = build_.both(embedded.mask, within(parts.guards));
  embedded.otherwise = access.otherwise;
  if (const ExprId moved = lookup_of(access); moved != kNoExpr) embedded.coordinates.back().value = expr(moved);
  if (parts.condition != kNoExpr) embedded.mask = build_.both(embedded.mask, expr(parts.condition));
  return embedded;
}

// The axes on which neither the place nor the value depends.
std::vector<kernel::Symbol> Embedding::unseen_by(const Store& scatter) const {
  const std::vector<bool> seen = kernel::dependences(kernel_, scatter, kernel::dependences(kernel_));
  std::vector<kernel::Symbol> unseen;
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    if (const auto symbol = kernel::as_symbol(axes_[axis]); symbol && !seen[axis]) unseen.push_back(*symbol);
  return unseen;
}

void Embedding::store(const Store& store) {
  Access place = access(store.access);
  const ExprId value = expr(store.value);
  std::vector<kernel::Symbol> over = is_scatter(store) ? unseen_by(store) : std::vector<kernel::Symbol>{};
  if (store.combines) build_.combine(store.reduce, std::move(place), value, std::move(over));
  else build_.store(std::move(place), value, std::move(over));
}

ExprId Embedding::constant(const Expr& expr) {
  if (is_floating(expr.dtype)) return build_.constant(expr.dtype, expr.number);
  return build_.constant(expr.dtype, expr.integer);
}

// Is the operand a load that yields what changes nothing wherever the fold's guards do not hold?
bool Embedding::leaves_out(const Expr& fold) const {
  const Expr* operand = &kernel_.exprs[fold.operands[0]];
  const kernel::Number identity = kernel::identity(fold.reduce, operand->dtype);
  const double number = is_floating(operand->dtype) ? identity.real : static_cast<double>(identity.whole);
  if (operand->kind == ExprKind::kOp && operand->op == ScalarOp::kCast) operand = &kernel_.exprs[operand->operands[0]];
  return is_load(*operand) && !looks_up(*operand) && operand->access.mask == fold.access.mask &&
         operand->access.otherwise == number;
}

// The fold's first operand, which varies along all that is folded, also where it is the same for all points of an axis.
ExprId Embedding::along_all(const Expr& fold, ExprId operand) {
  const std::vector<std::vector<bool>> varies = kernel::dependences(kernel_);
  for (const kernel::Symbol axis : fold.axes) {
    if (!kernel::as_symbol(axes_[axis]) ||
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

ExprId Embedding::fold(const Expr& expr, int component) {
  std::vector<ExprId> operands;
  for (ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  operands[0] = along_all(expr, operands[0]);
  if (const ExprId counted = build_.both(counted_, within(expr.access.mask));
      counted != kNoExpr && (counted_ != kNoExpr || !leaves_out(expr))) {
    const DType dtype = kernel_.exprs[expr.operands[0]].dtype;
    const kernel::Number identity = kernel::identity(expr.reduce == ReduceOp::kMaxSumExp ? ReduceOp::kMax : expr.reduce,
                                                     dtype);
    const ExprId nothing = is_floating(dtype) ? build_.constant(dtype, identity.real)
                                              : build_.constant(dtype, identity.whole);
    operands[0] = build_.op(ScalarOp::kSelect, {counted, operands[0], nothing});
  }
  return build_.reduce(expr.reduce, std::move(operands), folded_, component);
}

ExprId Embedding::scan(const Expr& expr) {
  std::vector<ExprId> operands;
  for (ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  const auto walked = kernel::as_symbol(axes_[expr.axes[0]]);
  KW_ASSERT(walked, "a scan walks what is no axis");
  return build_.scan(expr.reduce, std::move(operands), *walked, expr.reversed, expr.component, expr.integer);
}

// An index or a constant in 32 bits, where it fits; else itself.
ExprId Embedding::narrowed(ExprId id) {
  const Expr& expr = build_.kernel().exprs[id];
  const bool constant = expr.kind == ExprKind::kConstant;
  if (expr.dtype != DType::i64 || (!constant && expr.kind != ExprKind::kIndex)) return id;
  const Index index = constant ? Index(expr.integer) : expr.index;
  const kernel::Interval range = kernel::range_of(index, kernel::ranges_of(build_.kernel()));
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return range.low >= -kMost && range.high <= kMost ? build_.index(index, DType::i32) : id;
}

// Indices are compared, and become other numbers, in 32 bits where that makes no difference.
ExprId Embedding::operation(const Expr& expr) {
  std::vector<ExprId> operands;
  for (ExprId operand : expr.operands) operands.push_back(this->expr(operand));
  if (expr.op == ScalarOp::kCast) return build_.cast(expr.dtype, narrowed(operands[0]));
  if (expr.op >= ScalarOp::kEqual && expr.op <= ScalarOp::kGreaterEqual) {
    const std::vector<ExprId> narrow = {narrowed(operands[0]), narrowed(operands[1])};
    const auto is_narrow = [&](ExprId id) { return build_.kernel().exprs[id].dtype == DType::i32; };
    if (is_narrow(narrow[0]) && is_narrow(narrow[1])) operands = narrow;
  }
  return build_.op(expr.op, std::move(operands));
}

ExprId Embedding::expr(ExprId id) {
  if (const auto done = done_.find(id); done != done_.end()) return done->second;
  const Expr& expr = kernel_.exprs[id];
  ExprId made = kNoExpr;
  switch (expr.kind) {
    case ExprKind::kConstant: made = constant(expr); break;
    case ExprKind::kIndex: made = build_.index(over_symbols(index(expr.index)), expr.dtype); break;
    case ExprKind::kLoad: {
      const auto known = known_.find(expr.access.buffer);
      made = known == known_.end() ? build_.load(access(expr.access)) : known->second;
      break;
    }
    case ExprKind::kReduce: made = fold(expr, expr.component); break;
    case ExprKind::kScan: made = scan(expr); break;
    case ExprKind::kOp: made = operation(expr); break;
    default: fail_internal(__FILE__, __LINE__, "an expression that can_embed refuses");
  }
  return done_[id] = made;
}

}  // namespace kw::plan
