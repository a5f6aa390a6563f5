// TileProgram: what one block of a kernel does, in order, with every tile's type and every buffer's place. The last
// form before text: printers spell it for a language, and decide nothing.
//
// Reading order: Symbol → Buffer → TileType → Instruction → Program. `text.hpp` prints and parses it, `verifier.hpp`
// checks it, `interpreter.hpp` runs it on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/types.hpp"
#include "kernel/index.hpp"
#include "kernel/operations.hpp"

namespace kw::tile {

using kernel::Index;
using kernel::ReduceOp;
using kernel::ScalarOp;
using kernel::Symbol;

// --- Symbols: the whole numbers that indices are made of ---

enum class SymbolKind {
  kSize,   // a run-time size, the same for all blocks: an argument of the kernel, or the number of threads
  kGrid,   // a block's own position along one dimension of the grid
  kBlock,  // the number of a block, or of blocks that run as one, in the order in which they begin (block_places.hpp)
  kConsumer,  // which one a block is of those that run as one
  kLoop,      // the variable of a For
  kLane,      // the position along one dimension of tiles
  kNamed,     // an index that has a name (definitions.hpp): a Define at the start of the program, or of a loop's body,
              // gives it its value; or one of `places`
};

inline constexpr int64_t kMostOfVector = 16;  // elements, of a byte each
inline constexpr int64_t kHighestRank = 8;    // of tiles that all have the same dimensions

struct SymbolInfo {
  std::string name;  // "row", "key_block": a Python and C++ identifier
  SymbolKind kind = SymbolKind::kLane;
  kernel::SymbolRange range;  // a lane's is [0, width)
  Index count;                // kGrid: number of blocks along it, an index over sizes
  int dimension = -1;         // kLane: of tiles, where all have the same ones (Program::rank)
  bool simd = false;          // kLane: the one that a CPU takes side by side
  int64_t vectors = 0;        // kLane: at most so many points of it are read or written at once; 0: as many as can be
  bool shared = false;        // kLane: threads of a CPU share its points, and fold their shares together
  int threads = 0;            // kSize: it is how many threads of a CPU there are, or 1 where they are fewer than this;
                              // 0: an argument
  Index value = {};           // kNamed: over symbols that are known where it is defined; kGrid: its place, where the
                              // program has some
  DType dtype = DType::i64;   // kNamed: i32 or i64, in which it is computed
};

// --- Buffers ---

enum class Space {
  kGlobal,
  kShared,   // of one block; its shape is numbers
  kCluster,  // of the shared memories of a cluster of blocks
};

enum class BufferRole { kInput, kOutput, kInOut, kScratch };

struct Buffer {
  std::string name;  // "x", "weight": a Python and C++ identifier
  DType dtype = DType::f32;
  std::vector<Index> shape;    // over sizes
  std::vector<Index> strides;  // in elements, as many; empty: row-major and dense
  BufferRole role = BufferRole::kInput;
  Space space = Space::kGlobal;
  int64_t alignment = 16;  // bytes that divide the address of its first element
};

// --- Values: tiles in registers. A tile without lanes is a scalar ---

using Value = int32_t;
inline constexpr Value kNoValue = -1;

struct TileType {
  DType dtype = DType::f32;
  std::vector<Symbol> lanes;  // its dimensions, outermost first; no lane twice
  bool operator==(const TileType&) const = default;
};

struct ValueInfo {
  std::string name;  // unique in the program: "x_tile", "total"
  TileType type;
};

// --- Accesses ---

// In which order a coordinate's parts are added, and in how many bits each is computed: a part of the index that is one
// number for the block, the value, and the rest of the index.
struct SumOrder {
  Index first;                            // 0: the index is not taken apart
  bool together = false;                  // the rest is a sum by itself, which is computed once for several accesses
  bool first_wide = false, wide = false;  // in 64 bits, in programs whose indices are narrow: the first part, the rest
  bool operator==(const SumOrder&) const = default;
};

// index + value: the affine part and, where data decide, an integer tile.
struct Coordinate {
  Index index;
  Value value = kNoValue;
  SumOrder sum = {};
};

// One element of a buffer for every point of the lanes. Where the mask does not hold nothing is read or written, and a
// load yields `otherwise`.
struct Access {
  int buffer = -1;
  std::vector<Coordinate> coordinates;  // one for each dimension of the buffer
  Value mask = kNoValue;                // b1; its lanes are among those of the access
  double otherwise = 0.0;
  bool any_otherwise = false;  // a load may yield anything there: nothing sees it
  bool wide = false;           // its place is computed in 64 bits, in programs whose indices are narrow
};

// How a scan goes about it, where that shows.
enum class ScanWay {
  kFree,     // in any order
  kNetwork,  // of a product: the second half of a row, of each half, and so on, by the last of the half before it
             // (Sklansky 1960), so that what overflows does not depend on the hardware
  kPicked,   // of a sort with places: the first ones one after the other
  kTopK,     // of a sort: only the first ones, a power of two, are put in order
  kAfter,    // one after the other, behind what further operands say, which lack lane `from`: what the walk met before;
             // further results are what it has met in the end
};

enum class Hint { kNone, kKeep /* other blocks read it too */, kStream /* read once */ };

// --- Instructions ---

enum class Kind {
  kConstant,  // result = number (or integer, for integral types)
  kDefine,    // from here to the end of the body `symbol`, a named index, is known
  kIndex,     // result = index, an i32 or i64 tile over the lanes that the index uses
  kOp,        // result = op(operands), element by element; operands broadcast along the lanes that they lack
  // The results of these two may have their lanes in another order.
  kRelabel,  // result = operand 0 with lane `from` called `to`; both have the same width
  kSplit,    // result = operand 0 with lane `from` as two, the quotient and the remainder of its position: `lanes`
  kStack,    // result = operands, of one type, one behind the other along a lane more, `to`, the last of its lanes
  kUnstack,  // results = operand 0 at each point of lane `from`, the last of its lanes
  kLoad,     // result = access
  kStore,    // access ← operand 0; with `combine`, folded atomically with what is there
  kCopy,     // `destination` ← access, from global to shared memory, for every point of `lanes`
  kWait,     // until what is `awaited` is there
  kRelease,  // of consumers: the producer may copy to where the boxes of the iteration `pending` before this one lie
  kSkip,     // of consumers in turn, behind their loop: the boxes of the other's block are the next ones
  kMove,     // result = operand 0, in the registers that `layout` says
  kDot,      // result = operand 0 + Σ operand 1 · operand 2 over the lanes that both have and operand 0 lacks
  // A second operand of a maximum or minimum comes along, as a scan's does (kernel/operations.hpp).
  kFold,  // results = operands folded by `reduce` over `lanes`
  kScan,  // results = operands folded by `reduce` over the points of lane `from` so far, this one included
  kFor,   // for symbol from begin to end by step (or the same values, the last first): body. Carried values below
  kIf,    // where operand 0, a scalar b1, holds: body, else `otherwise_body`; results from their yields
  // All that the block (cluster, grid) wrote before is seen by all of it after. A grid's may have a counter in memory,
  // of i32, which is zero at the start: blocks count there that they came. Along `lanes`, dimensions of the grid, only
  // the blocks of one row wait for each other: those whose positions along all others are the same.
  kBarrier,
};

enum class CopyMode { kPlain, kAsync, kBulk };

enum class Awaited {
  kCopies,   // no more than `pending` asynchronous copies of this block are under way
  kBoxes,    // of consumers: what the iteration loads is in shared memory
  kProduct,  // of consumers: no more than `pending` products are under way; operand 0, the sum of one, may be read then
};

// In which registers of which thread consumers have a tile's elements.
enum class Layout {
  kFree,    // as the compiler finds
  kSums,    // as products leave their sums
  kLeft,    // as products want left operands that are computed
  kStores,  // along which threads side by side store (Consumers::stored_along)
};

enum class Scope { kBlock, kCluster, kGrid };

// How exactly products of a dot of f32 operands are made. 16-bit and narrower operands are multiplied exactly, and
// summed in the type of operand 0, whatever this says.
enum class DotPrecision {
  kIeee,    // f32 products, f32 sums
  kTf32,    // operands rounded to 11 bits
  kTf32x3,  // three products of them, which lose little of what f32 has
  kBf16x6,  // six products of what three numbers of 8 bits each stand for, which lose hardly anything
  kFp16x3,  // three products of halves, the sum of which is added in f32, as the step 'three-products' writes them out
};

// How exactly an operation in f32 is computed, where the target has several forms of it.
enum class Exactness {
  kUsual,        // as the target's language does
  kApproximate,  // a fast form, a few places of the last digit off
  kExact,        // a quotient that is rounded correctly
};
// Has the operation a fast form, or a quotient in it that may be rounded correctly?
bool has_form(ScalarOp op, Exactness exactness);
// Does the operation have a form of its own for operands that are not negative? Of a power, the base.
bool has_nonnegative_form(ScalarOp op, DType dtype);

inline constexpr int64_t kMostUnrolled = 64;  // iterations of a loop

// A For carries values from iteration to iteration: operands are the first iteration's, `arguments` what the body calls
// them, `yields` the next iteration's, `results` what is left after the last. All four have the same number and types.
// An If has yields (and `otherwise_yields`) and results. Names in a body are not seen outside.
struct Instruction {
  Kind kind = Kind::kConstant;
  std::vector<Value> results;
  std::vector<Value> operands;

  ScalarOp op = ScalarOp::kAdd;             // kOp
  Exactness exactness = Exactness::kUsual;  // kOp
  bool nonnegative = false;                 // kOp: the operands, or a power's base, are known not to be negative
  ReduceOp reduce = ReduceOp::kSum;         // kFold, kScan
  bool reversed = false;                    // kScan, kFor: from the end to the start
  ScanWay way = ScanWay::kFree;             // kScan
  bool at_once = false;                     // kFold: all lanes in one fold, not one after the other
  bool to_number = false;                   // kFold: to a number, where tiles have dimensions that do not vary
  double number = 0.0;                      // kConstant of a floating type
  int64_t integer = 0;                      // kConstant of an integral type or b1; kScan of a sort: how many of
                                            // the first places anything reads, 0: all
  Index index;                              // kIndex; kBarrier: how often all waited before
  Symbol from = -1, to = -1;                // kRelabel; kScan, kSplit, kUnstack: from; kStack: to
  std::vector<Symbol> lanes;                // kFold: those folded; kCopy: those copied; kSplit: the two;
                                            // kBarrier: of the grid, along which blocks wait; none: all blocks
  Access access;                            // kLoad, kStore; kCopy: the source; kBarrier: a counter (without
                                            // coordinates: the buffer's first element)
  Access destination;                       // kCopy
  Hint hint = Hint::kNone;                  // kLoad, kStore
  bool coherent = false;                    // kLoad: sees what other blocks wrote, past the multiprocessor's own cache
  bool combines = false;                    // kStore: atomically, by `reduce` (kSum, kProd, kMax, kMin)
  bool in_order = false;               // kStore: points that meet in one element store one after the other, as loops
                                       // go; what runs side by side, or in several threads, never meets
  CopyMode mode = CopyMode::kPlain;    // kCopy; kLoad, kStore: kBulk for a box that may leave its buffer (box.hpp)
  Awaited awaited = Awaited::kCopies;  // kWait
  int pending = 0;                     // kWait, kRelease
  Layout layout = Layout::kFree;       // kConstant, kLoad, kMove
  Scope scope = Scope::kBlock;         // kBarrier
  DotPrecision precision = DotPrecision::kIeee;  // kDot
  bool from_zero = false;                        // kDot: operand 0 is zero, and need not be read

  bool wide = false;  // kIndex, kFor, kBarrier: its indices are computed in 64 bits, in programs whose indices are
                      // narrow

  Symbol symbol = -1;            // kFor: its variable; kDefine
  Symbol counter = -1;           // kFor, reversed: the number of the iteration, which is counted down, and the
                                 // variable is made of it; -1: the variable itself goes down
  Index begin, end;              // kFor: over sizes, grid and enclosing loops
  Value until = kNoValue;        // kFor: a scalar i32 or i64, and no iteration starts at it or beyond
  int64_t step = 1;              // kFor
  int stages = 0;                // kFor: iterations whose loads are in flight; 0: as the compiler likes
  bool unrolled = false;         // kFor: iterations stand one behind the other
  bool shared = false;           // kFor: threads of a CPU share its iterations, in any order
  bool simd = false;             // kFor: a CPU takes its iterations side by side
  std::vector<Value> arguments;  // kFor
  std::vector<Instruction> body, otherwise_body;
  std::vector<Value> yields, otherwise_yields;
};

// --- Program ---

// Blocks in the order in which they are started: `count` neighbours along the first symbol share what they read along
// the second (Triton's "grouped" order). Without symbols: the last of the grid varies fastest.
struct GridOrder {
  Symbol grouped = -1, along = -1;
  int64_t count = 1;
};

// `count` blocks that are neighbours along a dimension of the grid run as one: each is multiplied and stored by warps
// of its own, the consumers, and what their loops load by the bulk copy engine is copied by one warp more, the
// producer, once for those that read the same. It means what the blocks mean by themselves (consumers.hpp).
struct Consumers {
  Symbol along = -1;     // of blocks that are neighbours; −1: each takes other blocks of the program, in turn
  int64_t count = 1;     // 1: none
  int64_t programs = 0;  // that are started, each of which does one such group of blocks after another; 0: one for each

  // What a target decides of them (lower/consumers.hpp); before that, nothing.
  int registers = 0, producer_registers = 0;  // that a thread of a consumer, and of the producer, may take
  Symbol stored_along = -1;     // of those in turn: a lane of their sums, along which threads side by side store
  int64_t stored_together = 1;  // neighbours, each so many
};

struct Program {
  std::string name;  // "rms_norm_kernel"
  std::string doc;   // one line: what it computes
  std::vector<SymbolInfo> symbols;
  std::vector<Buffer> buffers;  // the global ones in the order of the kernel's parameters
  std::vector<ValueInfo> values;
  std::vector<Symbol> grid;  // outermost first
  GridOrder order;
  Consumers consumers;
  // How a block that only knows its number finds its place in the grid (block_places.hpp): named indices and, last, the
  // grid's symbols, each made of the number and of those before it. Empty: it is told its place.
  std::vector<Symbol> places;
  // A buffer of i32, whose first element is zero at the start: blocks take their places in the grid from it, one by one
  // as they begin. So all blocks before one have begun, too; -1: blocks begin in any order.
  int tickets = -1;
  std::vector<Instruction> body;
  int warps = 4;             // of 32 threads each, of a block
  int max_registers = 0;     // a thread may take; 0: as many as the compiler likes
  bool approximate = false;  // functions may be a few places of their last digit off, but where steps follow
  bool contracts = false;    // a product and the sum that takes it may be rounded once
  bool narrow = false;       // indices are computed in 32 bits where they fit, and nothing else is said
  int rank = -1;             // all tiles have so many dimensions, of size 1 where they do not vary; which one a lane is
                             // it says; of what is stacked, one more. -1: a tile has those of its lanes
};

// Is it a constant of zeros?
inline bool is_zero(const Instruction& one) {
  return one.kind == Kind::kConstant && one.number == 0 && one.integer == 0;
}

// Do data decide its place, in part?
inline bool is_decided_by_data(const Access& access) {
  return std::any_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const Coordinate& at) { return at.value != kNoValue; });
}

int64_t width_of(const Program& program, Symbol lane);
int64_t bytes_of(const Program& program, const TileType& type);
inline bool has_lane(const std::vector<Symbol>& lanes, Symbol lane) {
  return std::find(lanes.begin(), lanes.end(), lane) != lanes.end();
}
std::vector<kernel::SymbolRange> ranges_of(const Program& program);  // [symbol]
std::vector<Index> strides_of(const Buffer& buffer);                 // the given ones, or row-major
// From the buffer's first to its last element by its strides, at most; 0 where an extent is.
int64_t elements_spanned(const Program& program, const Buffer& buffer);
// What a block's position, of `count`, and a loop's variable can be. `ranges` are those of the symbols in the indices.
kernel::SymbolRange grid_range(const Index& count, kernel::SymbolRanges ranges);
kernel::SymbolRange loop_range(const Index& begin, const Index& end, int64_t step, kernel::SymbolRanges ranges);
// How often a loop goes round, if no value ends it.
Index iterations_of(const Program& program, const Instruction& loop);
// Elements from the buffer's start, of the affine part of the access.
Index offset_of(const Program& program, const Access& access);
// How far apart in the buffer neighbours along the symbol lie; nullopt where that is not the same for all.
std::optional<Index> stride_along(const Program& program, const Access& access, Symbol symbol);
// The lanes along which an access varies, by its indices, its values and its mask: in the order of the symbols' table.
std::vector<Symbol> lanes_of(const Program& program, const Access& access);
// In the order of the symbols' table.
std::vector<Symbol> lanes_of(const Program& program, const Index& index);

// The operands that a scan folds: those that say what the walk met before come behind them.
inline size_t scanned_operands(const Instruction& scan) {
  return scan.way == ScanWay::kAfter ? scan.operands.size() / 2 : scan.operands.size();
}

// Does it map elements, fold and scan them, in loops or without, but for products, from and to buffers that are rows of
// elements? Blocks may share rows.
bool maps_and_folds(const Program& program);

// Is there a barrier of all its blocks? They must then be able to run at once.
bool waits_for_grid(const Program& program);

// The dimensions of the grid along which blocks wait for each other; empty where they do not, or all blocks do.
std::vector<Symbol> shared_rows(const Program& program);
// How many blocks share a row, which must be able to run at once; 1 where they do not wait for each other. Blocks take
// tickets, and those of a row are neighbours: a row that waits has all its blocks running, or the next to begin.
int64_t blocks_of_row(const Program& program);
// Of a barrier whose blocks are counted: the count when all have come.
Index arrivals_at(const Program& program, const Instruction& barrier);
// Is the buffer one in which blocks are counted: zero at the start?
bool counts_blocks(const Program& program, int buffer);

// Does it store only where an If holds that asks what was loaded? Then its work is for rare inputs, as costs have it.
bool stores_for_rare_inputs(const Program& program);

// Calls visit(value) for what the instruction itself reads: operands, parts of accesses, a loop's end. Not for yields.
template <typename AnInstruction, typename Visit>
void for_each_operand(AnInstruction& one, const Visit& visit) {
  for (auto& operand : one.operands) visit(operand);
  for (auto* access : {&one.access, &one.destination}) {
    for (auto& coordinate : access->coordinates)
      if (coordinate.value != kNoValue) visit(coordinate.value);
    if (access->mask != kNoValue) visit(access->mask);
  }
  if (one.until != kNoValue) visit(one.until);
}

// Calls visit(instruction) for every instruction, outer ones before their bodies.
template <typename Visit>
void for_each(const std::vector<Instruction>& body, const Visit& visit) {
  for (const Instruction& instruction : body) {
    visit(instruction);
    for_each(instruction.body, visit);
    for_each(instruction.otherwise_body, visit);
  }
}

template <typename Change>
void for_each_mutable(std::vector<Instruction>& body, const Change& change) {
  for (Instruction& instruction : body) {
    change(instruction);
    for_each_mutable(instruction.body, change);
    for_each_mutable(instruction.otherwise_body, change);
  }
}

}  // namespace kw::tile
