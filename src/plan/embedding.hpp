// The expressions of a group's kernel in another kernel, at the places that its axes have there: in the one that is
// scheduled (group_tiles.hpp), behind a product, over the product's own axes, or in front of a convolution's image.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/builder.hpp"
#include "plan/group_kernel.hpp"

namespace kw::plan {

// Is it pointwise, or folds or scans beside that?
bool can_embed(const GroupKernel& kernel);

// What an unnamed expression is called where it needs a name: "difference", "exponential", its buffer's name for a
// load.
std::string noun_for(const Expr& expr, const GroupKernel& kernel);

// What the kernel does with one of its buffers. Of what a kernel writes, it reads nothing (owns_destination in
// domain.hpp); where it scatters, it leaves the rest as it was.
kernel::BufferRole role_of(const GroupKernel& kernel, int buffer);

// Can it be embedded behind a product, too: without places that data decide or that a store leaves out, and
// without steps (floor, round, remainders, 8-bit floats), which would make a last place of the product a whole one?
bool can_follow_product(const GroupKernel& kernel);

// Can it be embedded in front of a convolution, whose image it makes element by element? As behind a product, but that
// places may be computed (borders that are reflected, repeated or go round, shifts, resizing): what no tensor decides
// needs no look at whether it is within its buffer.
bool can_make_image(const GroupKernel& kernel);

// Numbers that the embedded kernel's axes may be written over besides the builder's symbols.
struct EmbeddedNumbers {
  std::vector<kernel::SymbolRange> ranges;          // of the builder's symbols and then of these
  std::function<Index(const Index&)> over_symbols;  // an index over both, over the symbols alone
};

class Embedding {
 public:
  // `axes`: what each of the kernel's axes is over the builder's symbols. `known`: what loads of these buffers are.
  // `place`: where the builder's kernel finds the element at an index of one of the kernel's buffers. `folded`: the
  // axes that the kernel's folded ones are. `numbers`: `axes` and the indices that `place` is given are over these,
  // too.
  Embedding(kernel::Builder& build, const GroupKernel& kernel, std::vector<Index> axes, std::map<int, ExprId> known,
            std::function<Access(int buffer, const Index& index)> place, std::vector<kernel::Symbol> folded = {},
            EmbeddedNumbers numbers = {});

  ExprId expr(ExprId id);
  Access access(const Access& access);
  // An index over the kernel's axes, over the builder's symbols.
  Index place(const Index& index) const { return over_symbols(this->index(index)); }
  // Of a Reduce's components that one, be it one that the kernel did not ask for.
  ExprId fold(const Expr& expr, int component);
  // Folds leave out points where this does not hold.
  void fold_where(ExprId condition) { counted_ = condition; }
  // Every point scatters, also along axes on which neither the place nor the value depends.
  void store(const Store& store);

 private:
  Index index(const Index& index) const;
  ExprId operation(const Expr& expr);
  ExprId narrowed(ExprId index);
  ExprId constant(const Expr& expr);
  ExprId scan(const Expr& expr);
  ExprId along_all(const Expr& fold, ExprId operand);
  bool leaves_out(const Expr& fold) const;
  std::vector<kernel::Symbol> unseen_by(const Store& scatter) const;
  ExprId within(ExprId guards);
  Index over_symbols(const Index& index) const;

  kernel::Builder& build_;
  const GroupKernel& kernel_;
  std::vector<Index> axes_;
  std::map<int, ExprId> known_;
  std::function<Access(int, const Index&)> place_;
  std::vector<kernel::Symbol> folded_;
  EmbeddedNumbers numbers_;
  ExprId counted_ = kNoExpr;
  std::map<ExprId, ExprId> done_;
};

}  // namespace kw::plan
