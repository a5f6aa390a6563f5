// Makes kernels: types are inferred, equal expressions are one, arithmetic on indices stays index algebra.
#pragma once

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
  explicit Builder(std::string name, std::string doc = "");

  Symbol size(std::string name, SymbolRange range);
  Symbol axis(std::string name, Index extent, bool ordered = false);
  int buffer(std::string name, DType dtype, std::vector<Index> shape, BufferRole role, std::vector<Index> strides = {});
  void align(int buffer, int64_t bytes) { kernel_.buffers[buffer].alignment = bytes; }

  ExprId constant(DType dtype, double number);
  ExprId constant(DType dtype, int64_t integer);
  ExprId index(Index index, DType dtype = DType::i32);
  ExprId load(Access access);
  // The result's type is the operands', b1 for predicates. `dtype` is that of a cast.
  ExprId op(ScalarOp op, std::vector<ExprId> operands);
  ExprId cast(DType dtype, ExprId operand);
  ExprId reduce(ReduceOp reduce, std::vector<ExprId> operands, std::vector<Symbol> axes, int component = 0);
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

  const Kernel& kernel() const { return kernel_; }
  // Without what no store and no state needs; where each expression went, kNoExpr for those that are gone.
  std::vector<ExprId> drop_unused();
  // After check(), and without what is not used.
  Kernel finish();

 private:
  ExprId add(Expr expr);

  Kernel kernel_;
  ExprTable table_;
};

}  // namespace kw::kernel
