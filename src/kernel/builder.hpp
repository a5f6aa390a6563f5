// Makes kernels: types are inferred, equal expressions are one, arithmetic on indices stays index algebra.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/kernel.hpp"

namespace kw::kernel {

// Equal expressions are one.
class ExprTable {
 public:
  ExprId insert(Kernel& kernel, Expr expr);  // where an equal one is, apart from the name, or where it is now

 private:
  std::unordered_multimap<size_t, ExprId> places_;  // by hash
};

class Builder {
 public:
  explicit Builder(std::string name, std::string doc = "");  // of a kernel of its own
  explicit Builder(Kernel& kernel) : kernel_(&kernel) {}     // of expressions in another's
  Builder(Builder&&) = default;
  Builder& operator=(Builder&&) = default;
  virtual ~Builder() = default;

  Symbol size(std::string name, SymbolRange range);
  Symbol axis(std::string name, Index extent, bool ordered = false);
  int buffer(std::string name, DType dtype, std::vector<Index> shape, BufferRole role, std::vector<Index> strides = {});
  void align(int buffer, int64_t bytes) { kernel_->buffers[buffer].alignment = bytes; }

  ExprId insert(Expr expr);  // as it is
  // Of an integral type a number without its fraction, of a boolean whether it is not zero.
  ExprId constant(DType dtype, double number);
  ExprId constant(DType dtype, int64_t integer);
  ExprId constant(DType dtype, int integer) { return constant(dtype, static_cast<int64_t>(integer)); }
  ExprId index(Index index, DType dtype = DType::i32);
  ExprId load(Access access);
  // The result's type is the operands', b1 for predicates.
  virtual ExprId op(ScalarOp op, std::vector<ExprId> operands);
  ExprId cast(DType dtype, ExprId operand);
  ExprId add(ExprId a, ExprId b) { return op(ScalarOp::kAdd, {a, b}); }
  ExprId sub(ExprId a, ExprId b) { return op(ScalarOp::kSub, {a, b}); }
  ExprId mul(ExprId a, ExprId b) { return op(ScalarOp::kMul, {a, b}); }
  ExprId div(ExprId a, ExprId b) { return op(ScalarOp::kDiv, {a, b}); }
  // kNoExpr is a condition that always holds.
  ExprId both(ExprId a, ExprId b);
  ExprId select(ExprId condition, ExprId yes, ExprId no);
  // `mask`: of the points that are folded, in the kernel of a group alone (plan/group_kernel.hpp).
  ExprId reduce(ReduceOp reduce, std::vector<ExprId> operands, std::vector<Symbol> axes, int component = 0,
                ExprId mask = kNoExpr);
  // The sum is f32 for narrow operands, else of their type.
  ExprId dot(ExprId left, ExprId right, std::vector<Symbol> axes, Precision precision = Precision::kFull);
  // `first`: of a sort, how many of the first places anything reads; 0: all.
  ExprId scan(ReduceOp reduce, std::vector<ExprId> operands, Symbol axis, bool reversed = false, int component = 0,
              int64_t first = 0);
  // States are declared, read, and then given their next value.
  int state(std::string name, DType dtype, std::vector<Symbol> axes, Symbol along, ExprId initial);
  ExprId previous(int state, std::vector<Index> coordinates);
  void set_next(int state, ExprId next);

  ExprId named(std::string name, ExprId expr);
  void store(Access access, ExprId value, std::vector<Symbol> over = {});
  void combine(ReduceOp reduce, Access access, ExprId value, std::vector<Symbol> over = {});

  const Kernel& kernel() const { return *kernel_; }
  const Expr& expr(ExprId value) const { return kernel_->exprs[value]; }
  DType dtype(ExprId value) const { return kernel_->exprs[value].dtype; }
  // Without what no store and no state needs; where each expression went, kNoExpr for those that are gone.
  std::vector<ExprId> drop_unused();
  // After check(), and without what is not used.
  Kernel finish();

 protected:
  ExprId operation(ScalarOp op, DType dtype, std::vector<ExprId> operands);
  DType dtype_of(ScalarOp op, const std::vector<ExprId>& operands) const;  // its result's; not of a cast

 private:
  std::unique_ptr<Kernel> own_;
  Kernel* kernel_;
  ExprTable table_;
};

}  // namespace kw::kernel
