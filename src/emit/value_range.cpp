#include "emit/value_range.hpp"

#include <map>

namespace kw::kernel_ir {

namespace {

class Ranges {
 public:
  explicit Ranges(const Kernel& kernel) : kernel_(kernel) {}

  ValueRange of(ExprId id) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Expr& expr = kernel_.exprs[id];
    const ValueRange range = is_floating(expr.dtype) ? found(expr) : ValueRange{};
    known_.emplace(id, range);
    return range;
  }

 private:
  ValueRange found(const Expr& expr) {
    if (expr.kind == ExprKind::kConstant) return kernel::range_of_constant(expr.number);
    if (expr.kind == ExprKind::kReduce && expr.access.guards.empty())
      return kernel::range_of(expr.reduce, of(expr.operands[0]));
    if (expr.kind != ExprKind::kOp) return {};
    std::vector<ValueRange> operands;
    for (ExprId operand : expr.operands) operands.push_back(of(operand));
    const bool same = operands.size() == 2 && expr.operands[0] == expr.operands[1];
    return kernel::range_of(expr.op, expr.dtype, operands, same);
  }

  const Kernel& kernel_;
  std::map<ExprId, ValueRange> known_;
};

}  // namespace

ValueRange value_range(const Kernel& kernel, ExprId id) { return Ranges(kernel).of(id); }

}  // namespace kw::kernel_ir
