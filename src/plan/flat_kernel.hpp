// A flat kernel: what a group of nodes computes, as axes, expressions that read and write buffers at flat element
// indices under guards, and stores. It has no order and no schedule: schedulers rewrite its axes (axes.hpp), and make a
// kernel of src/kernel of it, with a schedule (lifted_kernel.hpp).
//
// Reading order: Access → Expr → Kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/types.hpp"
#include "kernel/digits.hpp"
#include "kernel/operations.hpp"

namespace kw::plan::flat {

// --- Axes ---

enum class AxisKind {
  kParallel,  // programs or threads share it out
  kReduce,  // folded by Reduce expressions; may also be stored over (softmax writes every column). CPU: also walked in
            // order by Scatters that may meet there
  kScan,  // walked in order by Scan expressions and stored over; a kernel has at most one, and no reduce axes beside it
};

struct Axis {
  std::string name;  // "row", "column", "channel": a Python and C++ identifier
  int64_t extent = 1;
  AxisKind kind = AxisKind::kParallel;
  bool reversed = false;  // scan axes: walked from the end to the start
};

// --- Accesses ---

using kernel::Index;  // made of digits (kernel/digits.hpp)

// A condition lower <= index < upper on the axes (padding, cat, slices).
struct Guard {
  Index index;
  int64_t lower = 0, upper = 0;
  bool operator==(const Guard&) const = default;
};

// One element of a buffer for each point of the axes. Outside the guards a load yields `otherwise` and a store does
// nothing.
struct Access {
  int buffer = 0;
  Index index;  // in elements from the buffer's data pointer
  std::vector<Guard> guards;
  double otherwise = 0.0;
};

// --- Expressions ---

using ExprId = int32_t;
inline constexpr ExprId kNoExpr = -1;

enum class ExprKind {
  kConstant,  // `number` (or `integer` for integral dtypes)
  kIndex,     // the value of `access.index` as an integer of `dtype`
  kLoad,      // access
  kGather,    // access moved by operand 0 (i32 or i64, in elements), where operand 1 (b1, may be missing) holds;
              // `access.otherwise` elsewhere
  kOp,        // `op` over operands
  kReduce,    // `reduce` of operands over all reduce axes of the kernel, as far as access.guards hold
  kScan,      // `reduce` of operands over the points of the scan axis walked so far, this one included
  kScatter,   // what a store does with operand 1: it takes it to the element that operand 0 (i32 or i64, in elements)
              // moves its access to, and folds it with what is there by `reduce` (kSum, kProd, kMax, kMin), or
              // `overwrites` it. Points may meet in one element. Only a store's value
};

using kernel::ReduceOp;
using kernel::ScalarOp;

// A Scan is of kSum, kProd, kMax, kMin, kLogSumExp or a sort. kMax and kMin may have a second operand, which must
// ascend along the walk: component 1 is its value where the extreme stands, the last of equals. A sort may have one
// too, the place along the axis: component 1 is the place where the element stood. A sort needs its row whole: its axis
// is not reversed.

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  DType dtype = DType::f32;  // of the result; arithmetic is done in it (16-bit operands are cast to f32 explicitly)
  std::string name;          // what it holds ("scale", "row_max"); empty: printed inline where used once
  ScalarOp op = ScalarOp::kAdd;
  ReduceOp reduce = ReduceOp::kSum;
  int component = 0;        // of a Reduce or Scan with several results; siblings share `operands` and `reduce`
  bool overwrites = false;  // of a Scatter
  std::vector<ExprId> operands;
  Access access;
  double number = 0.0;
  int64_t integer = 0;  // a constant's, and of a sort how many of the first places anything reads; 0: all
};

struct Store {
  Access access;
  ExprId value = kNoExpr;
};

// --- Kernel ---

enum class BufferRole { kInput, kOutput, kScratch };
struct Buffer {
  std::string name;  // "x", "weight", "out": a Python and C++ identifier
  DType dtype = DType::f32;
  int64_t elements = 0;  // extent reached by the accesses, for guard bands and 64-bit indexing
  BufferRole role = BufferRole::kInput;
  bool aligned = true;  // data pointer divisible by 16 bytes
};

struct Kernel {
  std::string name;             // "rms_norm_kernel"
  std::string doc;              // one line: what it computes, in the model's words
  std::vector<Buffer> buffers;  // in the order of the kernel's parameters
  std::vector<Axis> axes;       // parallel first, outermost first; then reduce axes, outermost first, or the scan axis
  std::vector<Expr> exprs;      // operands before users
  std::vector<Store> stores;
};

// Does the expression read its access's buffer?
inline bool is_load(const Expr& expr) { return expr.kind == ExprKind::kLoad || expr.kind == ExprKind::kGather; }

// The Scatter that a store's value is, or nullptr.
inline const Expr* scatter_of(const Kernel& kernel, const Store& store) {
  const Expr& expr = kernel.exprs[store.value];
  return expr.kind == ExprKind::kScatter ? &expr : nullptr;
}
bool scatters(const Kernel& kernel);
inline bool is_sort(const Expr& expr) {
  return (expr.kind == ExprKind::kScan || expr.kind == ExprKind::kReduce) && kernel::is_sort(expr.reduce);
}
bool sorts(const Kernel& kernel);

// Whether the value of an expression varies along each axis (through loads, guards, indices and operands; a Reduce ends
// reduce axes, a Scan varies along the scan axis).
std::vector<std::vector<bool>> axes_of_exprs(const Kernel& kernel);            // [expr][axis]
std::vector<bool> axes_of_access(const Kernel& kernel, const Access& access);  // [axis], index and guards

int64_t stride_along(const Access& access, int axis);

// The Reduce or Scan expressions that fold the same operands with the same operation: the components of one, `id` among
// them, ascending.
std::vector<ExprId> siblings_of(const Kernel& kernel, ExprId id);

std::vector<kernel::SymbolRange> ranges_of(const std::vector<Axis>& axes);

// Is the axis folded or walked by a program rather than shared out among them?
inline bool is_serial(const Axis& axis) { return axis.kind != AxisKind::kParallel; }
// The axis of kind kScan; −1 where there is none.
int scan_axis_of(const Kernel& kernel);

}  // namespace kw::plan::flat
