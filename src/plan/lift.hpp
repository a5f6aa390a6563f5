// A flat kernel, pointwise or with folds or scans, said again as expressions of a Kernel (src/kernel): for
// a kernel of its own (lifted_kernel.hpp), or of what follows a product, over the product's own axes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/flat_kernel.hpp"
#include "kernel/builder.hpp"

namespace kw::plan {

// Is it pointwise, or folds or scans beside that?
bool can_lift(const flat::Kernel& kernel);

// What an unnamed expression is called where it needs a name: "difference", "exponential", its buffer's name for a
// load.
std::string noun_for(const flat::Expr& expr, const flat::Kernel& kernel);

// What the lifted kernel does with one of the buffers. Of what a kernel writes, it reads nothing (owns_destination in
// domain.hpp); where it scatters, it leaves the rest as it was.
kernel::BufferRole role_of(const flat::Kernel& kernel, int buffer);

// Can it be lifted to what follows a product, too: without places that data decide or that a store leaves out, and
// without steps (floor, round, remainders, 8-bit floats), which would make a last place of the product a whole one?
bool can_follow_product(const flat::Kernel& kernel);

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
  Lift(kernel::Builder& build, const flat::Kernel& kernel, std::vector<kernel::Index> axes,
       std::map<int, kernel::ExprId> known, std::function<kernel::Access(int buffer, const kernel::Index& index)> place,
       std::vector<kernel::Symbol> folded = {}, LiftedNumbers numbers = {});

  kernel::ExprId expr(flat::ExprId id);
  kernel::Access access(const flat::Access& access);
  // Every point scatters, also along axes on which neither the place nor the value depends.
  void store(const flat::Store& store);

 private:
  kernel::Index index(const flat::Index& index) const;
  kernel::ExprId load(const flat::Access& access);
  kernel::ExprId gather(const flat::Expr& expr);
  kernel::ExprId operation(const flat::Expr& expr);
  kernel::ExprId narrowed(kernel::ExprId index);
  kernel::ExprId constant(const flat::Expr& expr);
  kernel::ExprId fold(const flat::Expr& expr);
  kernel::ExprId scan(const flat::Expr& expr);
  kernel::ExprId along_all(const flat::Expr& fold, kernel::ExprId operand);
  bool leaves_out(const flat::Expr& fold) const;
  std::vector<kernel::Symbol> unseen_by(const flat::Store& scatter) const;
  kernel::ExprId within(const std::vector<flat::Guard>& guards);
  kernel::Index over_symbols(const kernel::Index& index) const;

  kernel::Builder& build_;
  const flat::Kernel& kernel_;
  std::vector<kernel::Index> axes_;
  std::map<int, kernel::ExprId> known_;
  std::function<kernel::Access(int, const kernel::Index&)> place_;
  std::vector<kernel::Symbol> folded_;
  LiftedNumbers numbers_;
  std::map<flat::ExprId, kernel::ExprId> done_;
};

}  // namespace kw::plan
