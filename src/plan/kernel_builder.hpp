// Builds a kernel's expression DAG: equal expressions are made once, casts and trivial operations fold away.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/builder.hpp"
#include "plan/group_kernel.hpp"
#include "plan/index_math.hpp"
#include "plan/lookup.hpp"

namespace kw::plan {

// 16-bit floats are computed in f32; every other type in itself.
DType compute_dtype(DType dtype);

class KernelBuilder {
 public:
  // Axes of indices past the kernel's own are looked up (lookup.hpp): `coordinate` gives such an axis's expression, an
  // i32 or i64.
  using Coordinate = std::function<ExprId(int axis)>;
  explicit KernelBuilder(GroupKernel& kernel, const Lookups* lookups = nullptr, Coordinate coordinate = {})
      : kernel_(kernel), lookups_(lookups), coordinate_(std::move(coordinate)) {}

  ExprId insert(Expr expr);  // as it is
  ExprId constant(double number, DType dtype);
  ExprId integer(int64_t number, DType dtype);
  ExprId index(const Index& index, DType dtype);
  // What the index or a guard looks up moves the load, or is a condition of its mask.
  ExprId load(Access access, const std::vector<Guard>& guards, DType dtype);
  // Of a value into the element `index`, which is looked up: folded with what is there, or in its place.
  Store scatter(int buffer, const Index& index, std::optional<ReduceOp> fold, ExprId value);
  ExprId op(ScalarOp op, DType dtype, std::initializer_list<ExprId> operands);
  ExprId cast(ExprId value, DType dtype);
  // `first`: of a sort, how many of the first places anything reads; 0: all.
  ExprId scan(ReduceOp op, DType dtype, std::vector<ExprId> operands, int component = 0, int64_t first = 0);
  ExprId reduce(ReduceOp op, DType dtype, std::vector<ExprId> operands, int component = 0,
                const std::vector<Guard>& guards = {});

  // Shorthands in the dtype of the first operand; comparisons give b1.
  ExprId add(ExprId a, ExprId b) { return op(ScalarOp::kAdd, dtype(a), {a, b}); }
  ExprId sub(ExprId a, ExprId b) { return op(ScalarOp::kSub, dtype(a), {a, b}); }
  ExprId mul(ExprId a, ExprId b) { return op(ScalarOp::kMul, dtype(a), {a, b}); }
  ExprId div(ExprId a, ExprId b) { return op(ScalarOp::kDiv, dtype(a), {a, b}); }
  ExprId unary(ScalarOp code, ExprId a) { return op(code, dtype(a), {a}); }
  ExprId binary(ScalarOp code, ExprId a, ExprId b) { return op(code, dtype(a), {a, b}); }
  ExprId compare(ScalarOp code, ExprId a, ExprId b) { return op(code, DType::b1, {a, b}); }
  // No condition, as all_of answers for guards that always hold, is always true.
  ExprId select(ExprId condition, ExprId yes, ExprId no) {
    return condition == kNoExpr ? yes : op(ScalarOp::kSelect, dtype(yes), {condition, yes, no});
  }
  ExprId all_of(const std::vector<Guard>& guards);  // b1; kNoExpr for none, and for those that always hold
  // A mask: bounds that always hold are kept, for axes may be made longer.
  ExprId mask_of(const std::vector<Guard>& guards);
  ExprId both(ExprId a, ExprId b);  // of which kNoExpr always holds

  void name(ExprId value, const std::string& name);  // kept unless it has one; made unique
  DType dtype(ExprId value) const { return kernel_.exprs[value].dtype; }
  const Expr& expr(ExprId value) const { return kernel_.exprs[value]; }
  const GroupKernel& kernel() const { return kernel_; }
  bool is_constant(ExprId value, double number) const;
  int64_t highest(const Index& index) const;             // over all points of the axes
  std::vector<bool> reduce_axes_of(ExprId value) const;  // per axis of the kernel: does the value vary along it (reduce
                                                         // axes only)

 private:
  ExprId looked_up(const Index& index);  // the sum of the index's looked-up terms, an i32 where it fits

  GroupKernel& kernel_;
  const Lookups* lookups_;
  Coordinate coordinate_;
  kernel::ExprTable table_;
  std::map<std::string, int> names_;
};

}  // namespace kw::plan
