// What kernels of matrix products share (contraction_kernels.cpp, attention_kernels.cpp): their tensors, operands as
// sums of halves, and what follows a product element by element.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernel/builder.hpp"
#include "lower/schedule.hpp"
#include "plan/halves.hpp"
#include "plan/scheduler.hpp"

namespace kw::plan {

// Blocks that look whether there is anything to compute again, where there are many more (KernelSchedule::walkers).
// 65,536 blocks that stop at once are 0.67 ms of an H200's time.
constexpr int64_t kProductWalkers = 2048;

// An operand as halves: in tensors of the group's own, or those in which the kernel that makes it has stored them. They
// are numbered as buffers' tensors are.
struct SplitOperand {
  Side side = Side::kLeft;
  std::string name;
  StoredHalves stored;

  const std::vector<OperandDimension>& dimensions() const { return stored.layout.dimensions; }
};

// A product's axes among a kernel's symbols; −1: not among them.
struct ProductSymbols {
  std::vector<kernel::Symbol> batch;
  kernel::Symbol row = -1, column = -1, depth = -1;
  // Where the depth is walked in chunks of so many: the axis that counts them.
  kernel::Symbol chunk = -1;
  int64_t chunk_size = 1;
  // Where blocks have parts of the depth, of so many points: the axis that counts them.
  kernel::Symbol part = -1;
  int64_t part_size = 1;
  // The same of the columns.
  kernel::Symbol part_of_columns = -1;
  // Where `column` and `depth` begin.
  int64_t first_column = 0, first_depth = 0;
  // Where blocks fold what they have of the rows (the columns), so many: the axis that counts blocks. Those of a block
  // are the axis of rows (columns) then.
  kernel::Symbol row_block = -1, column_block = -1;
  int64_t block_size = 1;
  // Where so many neighbouring columns are folded together: the axis that counts them, and that of columns windows.
  kernel::Symbol window = -1;
  int64_t window_size = 1;

  kernel::Index depth_index() const;
  kernel::Index row_index() const;
  kernel::Index column_index() const;
  std::vector<kernel::Index> result_places() const;  // batch axes, row, column
  // Of what each part has: the part, where there is such an axis, and then these.
  std::vector<kernel::Index> places_of_part(std::vector<kernel::Index> places) const;
};

// What blocks fold of a product's rows or columns, for another kernel to combine: a tensor of [block][point of the
// other dimensions] for each component of each fold, in their order.
struct FoldsOfBlocks {
  kernel::Symbol lanes = -1, block = -1;
  ExprId inside = kernel::kNoExpr;  // are the lanes among what is folded? kNoExpr: all are
  int64_t blocks = 1;
  std::vector<std::vector<int>> scratch;  // [fold][component]
};

// A kernel under construction, and the tensors that its buffers are.
class KernelDraft {
 public:
  KernelDraft(std::string name, std::string doc) : build(std::move(name), std::move(doc)) {}

  kernel::Symbol axis(const std::string& name, int64_t extent, bool ordered = false);
  kernel::Symbol size(const std::string& name, kernel::SymbolRange range);
  std::vector<kernel::Symbol> batch_axes(const Shape& batch);
  // `tensor`: a graph value, or −1 − scratch; the buffer starts `offset` elements into it.
  int buffer(const std::string& name, DType dtype, const Shape& shape, const Shape& strides, kernel::BufferRole role,
             int tensor, int64_t offset = 0);
  // Zero, or `otherwise`, beyond the buffer and where the mask does not hold. Places that may be beyond it, but for
  // those that a mask is given for, are tested.
  kernel::ExprId load(int buffer, const std::vector<kernel::Index>& places, double otherwise = 0.0,
                      kernel::ExprId mask = kernel::kNoExpr);
  void store(int buffer, const std::vector<kernel::Index>& places, kernel::ExprId value,
             kernel::ExprId mask = kernel::kNoExpr);

  // Named so, or as near to it as the graph's own names leave it.
  kernel::ExprId named(const std::string& name, kernel::ExprId expr) { return build.named(unique(name), expr); }

  kernel::Builder build;
  std::vector<int> tensors;      // [buffer]
  std::vector<int64_t> offsets;  // [buffer]
  static kernel::Access access(int buffer, const std::vector<kernel::Index>& places,
                               kernel::ExprId mask = kernel::kNoExpr);
  // Does the place lie within the buffer? kNoExpr where all places do.
  kernel::ExprId within(int buffer, const std::vector<kernel::Index>& places);

 private:
  std::string unique(const std::string& text);

  std::set<std::string> names_ = {"gl", "gluon", "hopper", "tl", "triton"};
};

// Of a finished draft.
ScheduledTiles lowered(KernelDraft& draft, const lower::KernelSchedule& schedule);

class ProductKernels {
 protected:
  // `operands`: those whose alignment is known besides the group's buffers.
  ProductKernels(const LoweredGroup& group, std::vector<const ProductOperand*> operands)
      : group_(group), operands_(std::move(operands)) {}

  int scratch(const std::string& name, DType dtype, const Shape& shape, const Shape& strides);
  void finish(KernelDraft& draft, const lower::KernelSchedule& schedule);

  // x = scale · (high + low), or scale · high, where the largest of a row (column) over its scale lies between 2^14 and
  // 2^15. What is
  // smaller than 2^-112 counts as that: nothing that f32 could tell from zero in a product is lost. A row with a NaN
  // has that for its scale, one with an infinity that. `large` is how many of a row's numbers are near its largest. A
  // row that has small ones `needs` another that has more than so many: then large ones meet, and what is lost is
  // little beside their product (docs/precision.md). It is −1 where no digits are lost. By a kernel of the group's own,
  // unless what makes the operand has done it (LoweredGroup::halves).
  SplitOperand split(const Product& product, Side side, Halves halves = Halves::kTwo);
  // The sum of two halves in f32, or the one half.
  static kernel::ExprId halves(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols);
  // A number for each row (column): its scale, or its `large` or `needs`.
  static kernel::ExprId scale(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols);
  static kernel::ExprId large(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols);
  static kernel::ExprId needs(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols);
  // 0 where `inside` does not hold.
  static kernel::ExprId operand(KernelDraft& draft, const Product& product, Side side, const ProductSymbols& symbols,
                                kernel::ExprId inside = kernel::kNoExpr);
  // An operand of which some rows may be nowhere but in its halves: what these are, to 22 digits (or 11), else itself.
  // `of_halves`: the axes where they differ, for halves have parts of the depth as one of a batch.
  static kernel::ExprId whole_operand(KernelDraft& draft, const Product& product, const SplitOperand& split,
                                      const ProductSymbols& symbols, const ProductSymbols& of_halves);
  // What has strides along a product's axes, and is shared by the points of those along which they are 0.
  static kernel::ExprId shared_operand(KernelDraft& draft, const Product& product, const ProductOperand& operand,
                                       const ProductSymbols& symbols);

  // What a product's operands give, as its result: alpha · value + beta · addend.
  static kernel::ExprId result_of(KernelDraft& draft, const Product& product, const ProductSymbols& symbols,
                                  kernel::ExprId value);

  // The stores of what follows its product, whose element at `places` (batch axes, row, column) `value` is. Places
  // exist whatever the mask; what is walked like the product is stored at `stored`, which are the same where the mask
  // holds (none: those). Returns what the group's statistics fold, for each fold in order. Where the group folds
  // windows, the places are along each dimension of the columns, and `window` counts those of one window; or `lanes`,
  // where the columns have one dimension. `known`: what else loads of the group's buffers are, at that element.
  static std::vector<kernel::ExprId> store_results(KernelDraft& draft, const LoweredGroup& after,
                                                   const std::vector<kernel::Index>& places, kernel::ExprId value,
                                                   kernel::ExprId mask, const std::vector<kernel::Index>& stored = {},
                                                   const std::vector<kernel::Symbol>& window = {},
                                                   kernel::Symbol lanes = -1, std::map<int, kernel::ExprId> known = {});
  // The same of a group that blocks fold in parts: what they fold is stored, and what is walked like the product.
  static void store_folds(KernelDraft& draft, const LoweredGroup& after, const std::vector<kernel::Index>& places,
                          kernel::ExprId value, kernel::ExprId mask, const FoldsOfBlocks& folds);
  // An expression of such a group's kernel that does not depend on the product.
  static kernel::ExprId beside_product(KernelDraft& draft, const LoweredGroup& after,
                                       const std::vector<kernel::Index>& places, ExprId id);
  // The one value that such a group stores.
  static kernel::ExprId value_after(KernelDraft& draft, const LoweredGroup& after, const ProductSymbols& symbols,
                                    kernel::ExprId value);

  const LoweredGroup& group_;
  ScheduledGroup result_;

 private:
  static kernel::ExprId of_row(KernelDraft& draft, const SplitOperand& split, const ProductSymbols& symbols,
                               const std::string& name, int tensor, DType dtype, double beyond);
  bool is_aligned(int value, int64_t offset, DType dtype) const;

  std::vector<const ProductOperand*> operands_;
};

}  // namespace kw::plan
