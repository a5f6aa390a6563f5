// Builds a kernel's expression DAG: equal expressions are made once, casts and trivial operations fold away.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/flat_kernel.hpp"
#include "plan/index_math.hpp"
#include "plan/lookup.hpp"

namespace kw::plan {

using flat::ExprId;
using flat::ReduceOp;
using flat::ScalarOp;

// 16-bit floats are computed in f32; every other type in itself.
DType compute_dtype(DType dtype);

// Removes the expressions that no store needs.
void drop_unused(flat::Kernel& kernel);

class KernelBuilder {
 public:
  // Axes of indices past the kernel's own are looked up (lookup.hpp): `coordinate` gives such an axis's expression, an
  // i32 or i64.
  using Coordinate = std::function<ExprId(int axis)>;
  explicit KernelBuilder(flat::Kernel& kernel, const Lookups* lookups = nullptr, Coordinate coordinate = {})
      : kernel_(kernel), lookups_(lookups), coordinate_(std::move(coordinate)) {}

  ExprId insert(flat::Expr expr);  // as it is
  ExprId constant(double number, DType dtype);
  ExprId integer(int64_t number, DType dtype);
  ExprId index(const Index& index, DType dtype);
  ExprId load(flat::Access access, DType dtype);  // a Gather where the index or a guard looks up
  // The store's value: what scatter() makes of a value for the element `index`, whose affine part remains in it.
  ExprId scatter(Index& index, std::optional<ReduceOp> fold, ExprId value);
  ExprId op(ScalarOp op, DType dtype, std::initializer_list<ExprId> operands);
  ExprId cast(ExprId value, DType dtype);
  ExprId scan(ReduceOp op, DType dtype, std::vector<ExprId> operands, int component = 0, int64_t first = 0);  // first:
                                                                                                              // of a
                                                                                                              // sort,
                                                                                                              // the
                                                                                                              // places
                                                                                                              // that
                                                                                                              // are
                                                                                                              // read
  ExprId reduce(ReduceOp op, DType dtype, std::vector<ExprId> operands, int component = 0,
                std::vector<flat::Guard> guards = {});

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
    return condition == flat::kNoExpr ? yes : op(ScalarOp::kSelect, dtype(yes), {condition, yes, no});
  }
  ExprId all_of(const std::vector<flat::Guard>& guards);  // b1; kNoExpr for none, and for those that always hold

  void name(ExprId value, const std::string& name);  // kept unless it has one; made unique
  DType dtype(ExprId value) const { return kernel_.exprs[value].dtype; }
  const flat::Expr& expr(ExprId value) const { return kernel_.exprs[value]; }
  const flat::Kernel& kernel() const { return kernel_; }
  bool is_constant(ExprId value, double number) const;
  int64_t highest(const Index& index) const;             // over all points of the axes
  std::vector<bool> reduce_axes_of(ExprId value) const;  // per axis of the kernel: does the value vary along it (reduce
                                                         // axes only)

 private:
  ExprId looked_up(const Index& index);  // the sum of the index's looked-up terms, an i32 where it fits

  flat::Kernel& kernel_;
  const Lookups* lookups_;
  Coordinate coordinate_;
  std::map<std::string, ExprId> known_;
  std::map<std::string, int> names_;
};

}  // namespace kw::plan
