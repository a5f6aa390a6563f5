// Builds the expressions of a group's kernel: indices keep their digits, casts and trivial operations fold away, guards
// become masks.
#pragma once

#include <functional>
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

class GroupBuilder final : public kernel::Builder {
 public:
  // Axes of indices past the kernel's own are looked up (lookup.hpp): `coordinate` gives such an axis's expression, an
  // i32 or i64.
  using Coordinate = std::function<ExprId(int axis)>;
  explicit GroupBuilder(GroupKernel& kernel, const Lookups* lookups = nullptr, Coordinate coordinate = {})
      : Builder(kernel), kernel_(kernel), lookups_(lookups), coordinate_(std::move(coordinate)) {}

  ExprId index(const Index& index, DType dtype);
  // What the index or a guard looks up moves the load, or is a condition of its mask.
  ExprId load(Access access, const std::vector<Guard>& guards);
  // Of a value into the element `index`, which is looked up: folded with what is there, or in its place.
  Store scatter(int buffer, const Index& index, std::optional<ReduceOp> fold, ExprId value);
  ExprId op(ScalarOp op, std::vector<ExprId> operands) override;
  ExprId cast(DType dtype, ExprId value);
  // Along the one axis that is scanned, and over all that are folded.
  ExprId scan(ReduceOp op, std::vector<ExprId> operands, int component = 0, int64_t first = 0);
  ExprId reduce(ReduceOp op, std::vector<ExprId> operands, int component = 0, const std::vector<Guard>& guards = {});

  ExprId all_of(const std::vector<Guard>& guards);  // b1; kNoExpr for none, and for those that always hold
  // A mask: bounds that always hold are kept, for axes may be made longer.
  ExprId mask_of(const std::vector<Guard>& guards);

  void name(ExprId value, const std::string& name);  // kept unless it has one; made unique
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
  std::map<std::string, int> names_;
};

}  // namespace kw::plan
