// KernelIR: one kernel before printing. What it computes (axes, expressions, stores) is apart from the order in which
// it does so (body). All index arithmetic and every mask is decided here; a printer walks `body` and prints.
//
// Reading order: Index → Access → Expr → Kernel → Stmt.
// Text form (text.hpp) prints and parses back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/types.hpp"
#include "kernel/operations.hpp"

namespace kw::kernel_ir {

// --- Axes ---

enum class AxisKind {
  kParallel,  // programs or threads share it out
  kReduce,  // folded by Reduce expressions; may also be stored over (softmax writes every column). CPU: also walked in
            // order by Scatters that may meet there
  kScan,  // walked in order by Scan expressions and stored over; a kernel has at most one, and no reduce axes beside it
};

// A GPU's schedulers give axes their schedules beside the kernel (plan/lifted_kernel.hpp). What stands here is read by
// a CPU's choice of loops (emit/cpu/loop_nest.hpp) and by cost models; the axis with vector=true is the SIMD loop of a
// CPU.
struct Axis {
  std::string name;  // "row", "column", "channel": a Python and C++ identifier
  int64_t extent = 1;
  AxisKind kind = AxisKind::kParallel;
  int64_t block = 1;
  bool looped = false;    // reduce and scan axes: true = a loop of blocks; false = the block covers the whole extent
                          // (persistent)
  bool vector = false;    // CPU: the innermost SIMD axis
  bool unrolled = false;  // a looped reduce axis of few steps, known beforehand (the offsets of a window): Triton
                          // writes them out, the CPU never makes it the SIMD loop
  bool reversed = false;  // scan axes: walked from the end to the start
};

// --- Index: constant + Σ coefficient · ((axis / divisor) % modulus) ---

struct IndexTerm {
  int axis = 0;
  int64_t coefficient = 1;
  int64_t divisor = 1;  // 1: none
  int64_t modulus = 0;  // 0: none
  bool operator==(const IndexTerm&) const = default;
};

struct Index {
  int64_t constant = 0;
  std::vector<IndexTerm> terms;
  bool operator==(const Index&) const = default;
};

// A condition lower <= index < upper on the axes (padding, cat, slices; block overhang is not listed here: printers add
// `axis < extent` for each axis whose extent its block does not divide).
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
// is neither looped nor reversed.

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
  bool last = false;  // after all that its program reads: the memory may be that of a buffer which the kernel reads (a
                      // mutation in place)
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

// The body says in which order a program does its work on its block. A statement runs for every point of the tile's
// axes.
enum class StmtKind {
  kLet,    // compute expr and keep it under its name
  kStore,  // stores[index]
  kLoop,   // for each block of the looped reduce or scan axes: body
  kInit,   // start the accumulator of the Reduce expr, or what the Scan expr carries from block to block (its identity)
  kAccumulate,  // fold the operand's block into the accumulator of expr (elementwise in a tile, a scalar on the CPU)
  kFinish,      // expr = its accumulator folded over the reduce axes of the tile
  kScan,        // expr = its operands' block scanned, after what it carries; then what it carries moves on
};
struct Stmt {
  StmtKind kind = StmtKind::kLet;
  ExprId expr = kNoExpr;   // Let, Init, Accumulate, Finish, Scan
  int store = -1;          // Store
  std::vector<Stmt> body;  // Loop
};

// What a schedule decides about a CPU kernel's loops; 0: the printer chooses from the accesses (emit/cpu/loop_nest.hpp
// has its choices).
struct LoopChoices {
  int64_t along = 0;            // the SIMD loop: 0 along the axis that suits the accesses best, 1 the next, …
  int64_t columns = 0;          // that a program folds side by side
  int64_t tile = 0;             // side of the tiles where an operand is transposed
  int64_t rows = 0, piece = 0;  // of a scan: walked side by side, and elements of them at a time
  int64_t share = 0;            // elements from which on threads share the work
  bool operator==(const LoopChoices&) const = default;
};

struct Kernel {
  std::string name;             // "rms_norm_kernel"
  std::string doc;              // one line: what it computes, in the model's words
  std::vector<Buffer> buffers;  // in the order of the kernel's parameters
  std::vector<Axis> axes;       // parallel first, outermost first; then reduce axes, outermost first, or the scan axis
  std::vector<Expr> exprs;      // operands before users
  std::vector<Store> stores;
  std::vector<Stmt> body;  // filled by arrange()
  int num_warps = 4;
  int num_stages = 2;
  LoopChoices loops;
  int max_registers = 0;  // a thread may take; 0: as many as the compiler likes
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
// How far a Scatter's operand 0 reaches beyond its store's access: its values are less.
int64_t reach_of_scatter(const Kernel& kernel, const Store& store);

// Whether the value of an expression varies along each axis (through loads, guards, indices and operands; a Reduce ends
// reduce axes, a Scan varies along the scan axis).
std::vector<std::vector<bool>> axes_of_exprs(const Kernel& kernel);            // [expr][axis]
std::vector<bool> axes_of_access(const Kernel& kernel, const Access& access);  // [axis], index and guards

// Coefficient with which `axis` alone enters the index (0: not at all or only through divisions).
int64_t stride_along(const Index& index, int axis);
int64_t stride_along(const Access& access, int axis);

// The Reduce or Scan expressions that fold the same operands with the same operation: the components of one, `id` among
// them, ascending.
std::vector<ExprId> siblings_of(const Kernel& kernel, ExprId id);

// Smallest and largest value of the index over all points of the axes.
struct IndexRange {
  int64_t lowest = 0, highest = 0;
};
IndexRange range_of(const Index& index, const std::vector<Axis>& axes);

// What an unnamed expression is called where it needs a name: "difference", "exponential", its buffer's name for a
// load.
std::string noun_for(const Expr& expr, const Kernel& kernel);

// Is the axis folded or walked by a program rather than shared out among them?
inline bool is_serial(const Axis& axis) { return axis.kind != AxisKind::kParallel; }
// The axis of kind kScan; −1 where there is none.
int scan_axis_of(const Kernel& kernel);

inline int64_t blocks_of(const Axis& axis) { return (axis.extent + axis.block - 1) / axis.block; }

// Number of programs: product over parallel axes of ceil(extent / block).
int64_t program_count(const Kernel& kernel);

// Throws kInternal with the kernel's name and the broken rule: ids in range, operands before users, arity, one boolean
// condition per Select, identifiers valid and unique, accesses within their buffers wherever their guards hold.
void check_kernel(const Kernel& kernel);

// Fills kernel.body from the DAG.
// Phases: what needs a Reduce result stands after that Reduce's Finish. With looped reduce axes every phase that
// touches them is one Loop, in which loads and producers are issued again; what does not vary along them is computed
// once, outside. With persistent reduce axes there is no Loop, no Init and no Accumulate: Finish folds the operand's
// block itself. With a scan axis there is one phase; Scans stand among the Lets of its Loop, after an Init outside, or
// without a Loop and an Init where the block covers the axis. Lets stand for named expressions, loads, Reduces,
// anything used twice, and what a Loop must not compute again; the rest is printed inline. Expressions that need a name
// and have none get one ("difference", "exponential"). Init, Accumulate, Finish and Scan name the first of the
// siblings.
void arrange(Kernel& kernel);

// Would what is loaded at the start, of rows that a program has whole, take most of a thread's registers? Then what
// only a later round of folds needs is loaded then. `tile`: points of a block; `max_registers`: 0 where all may be
// taken.
bool delays_loads(const Kernel& kernel, double tile, int warps, int max_registers);

}  // namespace kw::kernel_ir
