// A kernel in KernelIR, pointwise or with folds or scans, said again as expressions of a Kernel (src/kernel): for
// a kernel of its own (lifted_kernel.hpp), or of what follows a product, over the product's own axes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "emit/kernel_ir.hpp"
#include "kernel/builder.hpp"

namespace kw::plan {

// Is it pointwise, or folds or scans beside that?
bool can_lift(const kernel_ir::Kernel& kernel);

// What an unnamed expression is called where it needs a name: "difference", "exponential", its buffer's name for a
// load.
std::string noun_for(const kernel_ir::Expr& expr, const kernel_ir::Kernel& kernel);

// What the lifted kernel does with one of the buffers. Of what a kernel writes, it reads nothing (owns_destination in
// domain.hpp); where it scatters, it leaves the rest as it was.
kernel::BufferRole role_of(const kernel_ir::Kernel& kernel, int buffer);

// Can it be lifted to what follows a product, too: without places that data decide or that a store leaves out, and
// without steps (floor, round, remainders, 8-bit floats), which would make a last place of the product a whole one?
bool can_follow_product(const kernel_ir::Kernel& kernel);

// Numbers that the lifted kernel's axes may be written over besides the builder's symbols.
struct LiftedNumbers {
  std::vector<kernel::SymbolRange> ranges;                          // of the builder's symbols and then of these
  std::function<kernel::Index(const kernel::Index&)> over_symbols;  // an index over both, over the symbols alone
};

class Lift {
 public:
  // `axes`: what each of the kernel's axes is over the builder's symbols. `known`: what loads of these buffers are.
  // `place`: where the builder's kernel finds the element at an index of one of the kernel's buffers. `folded`: the
  // axes that the kernel's reduce axes are. `numbers`: `axes` and the indices that `place` is given are over these,
  // too.
  Lift(kernel::Builder& build, const kernel_ir::Kernel& kernel, std::vector<kernel::Index> axes,
       std::map<int, kernel::ExprId> known, std::function<kernel::Access(int buffer, const kernel::Index& index)> place,
       std::vector<kernel::Symbol> folded = {}, LiftedNumbers numbers = {});

  kernel::ExprId expr(kernel_ir::ExprId id);
  kernel::Access access(const kernel_ir::Access& access);
  // Every point scatters, also along axes on which neither the place nor the value depends.
  void store(const kernel_ir::Store& store);

 private:
  kernel::Index index(const kernel_ir::Index& index) const;
  kernel::ExprId load(const kernel_ir::Access& access);
  kernel::ExprId gather(const kernel_ir::Expr& expr);
  kernel::ExprId operation(const kernel_ir::Expr& expr);
  kernel::ExprId narrowed(kernel::ExprId index);
  kernel::ExprId constant(const kernel_ir::Expr& expr);
  kernel::ExprId fold(const kernel_ir::Expr& expr);
  kernel::ExprId scan(const kernel_ir::Expr& expr);
  kernel::ExprId along_all(const kernel_ir::Expr& fold, kernel::ExprId operand);
  bool leaves_out(const kernel_ir::Expr& fold) const;
  std::vector<kernel::Symbol> unseen_by(const kernel_ir::Store& scatter) const;
  kernel::ExprId within(const std::vector<kernel_ir::Guard>& guards);
  kernel::Index over_symbols(const kernel::Index& index) const;

  kernel::Builder& build_;
  const kernel_ir::Kernel& kernel_;
  std::vector<kernel::Index> axes_;
  std::map<int, kernel::ExprId> known_;
  std::function<kernel::Access(int, const kernel::Index&)> place_;
  std::vector<kernel::Symbol> folded_;
  LiftedNumbers numbers_;
  std::map<kernel_ir::ExprId, kernel::ExprId> done_;
};

}  // namespace kw::plan
