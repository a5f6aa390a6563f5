// Kernel: what one kernel computes, as mathematics over axes. It knows no block, no target and no order of work.
//
// Reading order: Symbol → Buffer → Access → Expr → State → Store → Kernel. `builder.hpp` makes kernels, `text.hpp`
// prints and parses them, `evaluate.hpp` says what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/types.hpp"
#include "kernel/index.hpp"
#include "kernel/operations.hpp"

namespace kw::kernel {

// --- Symbols: run-time sizes, and the axes over which everything is computed ---

enum class SymbolKind { kSize, kAxis };

struct SymbolInfo {
  std::string name;  // "row", "key": a Python and C++ identifier
  SymbolKind kind = SymbolKind::kAxis;
  SymbolRange range;     // of an axis: [0, largest extent)
  Index extent;          // of an axis: a number, or an index over sizes
  bool ordered = false;  // an axis along which states are carried
};

// --- Buffers and accesses ---

enum class BufferRole { kInput, kOutput, kInOut };

struct Buffer {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;    // over sizes
  std::vector<Index> strides;  // in elements; empty: row-major and dense
  BufferRole role = BufferRole::kInput;
  int64_t alignment = 16;  // bytes that divide the address of its first element
};

using ExprId = int32_t;
inline constexpr ExprId kNoExpr = -1;

// index + value: the affine part, and where data decide, an integer expression.
struct Coordinate {
  Index index;
  ExprId value = kNoExpr;
  bool operator==(const Coordinate&) const = default;
};

// One element for each point of the axes. Where the mask (b1) does not hold, a load yields `otherwise` and a store does
// nothing; there the coordinates may lie outside the buffer.
struct Access {
  int buffer = -1;
  std::vector<Coordinate> coordinates;  // one for each dimension
  ExprId mask = kNoExpr;
  double otherwise = 0.0;
};

// --- Expressions: values for each point of the axes that they depend on ---

enum class ExprKind {
  kConstant,  // number, or integer for integral types
  kIndex,     // index, as a whole number of `dtype` (i32 or i64)
  kLoad,      // access
  kOp,        // op over operands
  kReduce,    // `reduce` of the operands over `axes`: the result does not depend on them
  kDot,       // Σ operand 0 · operand 1 over `axes`, in `dtype`, at least as exact as `precision`
  kScan,   // `reduce` of the operands over the points of axes[0] so far, this one included; from the end if `reversed`.
           // A second operand that comes along (operations.hpp) ascends in that order
  kState,  // a state as it was before this step of its ordered axis, at `access.coordinates`
};

// How exact a dot of f32 operands must be. Narrower operands are multiplied exactly whatever this says.
enum class Precision {
  kFull,    // as a sum of f32 products
  kTf32,    // operands may be rounded to 11 bits
  kTf32x3,  // nearly as a sum of f32 products: operands are sums of two numbers of 11 bits
  kBf16x6,  // … of three numbers of 8 bits, with the range of f32
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  DType dtype = DType::f32;  // arithmetic is done in it; narrow operands are cast explicitly
  std::string name;          // what it holds: "total"; empty: written where it is used
  ScalarOp op = ScalarOp::kAdd;
  ReduceOp reduce = ReduceOp::kSum;
  int component = 0;  // of a Reduce or Scan with several results
  bool reversed = false;
  Precision precision = Precision::kFull;
  std::vector<ExprId> operands;
  std::vector<Symbol> axes;  // ascending
  Access access;
  int state = -1;
  Index index;
  double number = 0.0;
  int64_t integer = 0;  // a constant's; of a sort how many of the first places anything reads, 0: all
};

// A value that is carried along an ordered axis: `initial` before the first step, `next` after each.
struct State {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Symbol> axes;  // on which it depends, without the ordered one
  Symbol along = -1;         // the ordered axis
  ExprId initial = kNoExpr, next = kNoExpr;
};

// Where data decide the place, points may meet: one of those that do is left there.
struct Store {
  Access access;
  ExprId value = kNoExpr;
  bool combines = false;  // folded with what is there by `reduce` (kSum, kProd, kMax, kMin): points may meet
  ReduceOp reduce = ReduceOp::kSum;
  std::vector<Symbol> over = {};  // axes that neither place nor value depends on, whose every point stores, too
};

struct Kernel {
  std::string name;  // "rms_norm"
  std::string doc;   // one line: what it computes
  std::vector<SymbolInfo> symbols;
  std::vector<Buffer> buffers;
  std::vector<Expr> exprs;  // operands before users; only a state's `next` may come after who reads the state
  std::vector<State> states;
  std::vector<Store> stores;
};

// --- Analysis ---

std::vector<SymbolRange> ranges_of(const Kernel& kernel);
std::vector<Symbol> axes_of(const Kernel& kernel);  // its axes, in order
// The axes on which an expression (an access) depends: [expr][symbol].
std::vector<std::vector<bool>> dependences(const Kernel& kernel);
std::vector<bool> dependences(const Kernel& kernel, const Access& access,
                              const std::vector<std::vector<bool>>& of_exprs);
// The axes whose every point stores.
std::vector<bool> dependences(const Kernel& kernel, const Store& store, const std::vector<std::vector<bool>>& of_exprs);
bool is_decided_by_data(const Access& access);  // is its place, in part?
// The expressions that an expression reads directly: operands, and those of its access.
std::vector<ExprId> inputs_of(const Expr& expr);
std::vector<ExprId> inputs_of(const Access& access);

// --- Rewriting ---

bool is_same(const Expr& left, const Expr& right);  // apart from the name
// Every expression that one reads, by the place where it now is.
void renumber(Expr& expr, const std::vector<ExprId>& place);
void renumber(Access& access, const std::vector<ExprId>& place);
// The kernel without what no store and no state needs. Where each expression went; kNoExpr for those that are gone.
std::vector<ExprId> drop_unused(Kernel& kernel);

// --- Checks ---

// Throws kInternal with the kernel's name and the broken rule: identifiers valid and unique, operands before users,
// arity, types, coordinates as many as dimensions, accesses within their buffers wherever they are affine and not
// masked, axes that exist, states with an initial and a next value that depend on the state's axes only, and stores
// that write every element once unless they combine: no two plain ones have one place and one mask.
void check(const Kernel& kernel);

// What check() finds first, and in what.
struct Fault {
  enum class Part { kKernel, kSymbol, kBuffer, kExpr, kState, kStore };
  Part part = Part::kKernel;
  int place = 0;     // among the kernel's parts of this kind
  std::string rule;  // the broken one
};
std::optional<Fault> first_fault(const Kernel& kernel);

}  // namespace kw::kernel
