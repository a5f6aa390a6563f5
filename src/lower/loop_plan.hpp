// How a CPU runs one block of a tile program: which instructions share loops over lanes, and where every tile lives.
// A printer of C++ spells this plan and decides nothing. `loop_text.hpp` prints it, `loop_verifier.hpp` checks it.
//
// Reading order: LaneBound → BegunFold → BegunScan → Product → SortedRows → PlaceStart → LoopStep → TilePlace →
// LoopPlan.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

// dividend / divisor, rounded towards zero, and a value, if there is one.
struct LaneBound {
  tile::Index dividend;
  int64_t divisor = 1;
  tile::Value value = tile::kNoValue;
};

// A fold that begins before a loop and is complete behind it.
struct BegunFold {
  const tile::Instruction* fold;
  bool in_parts = false;   // SIMD lanes, or threads, fold parts into variables, which are combined behind the loop
  bool flags_nan = false;  // in parts, points are compared, which loses NaN: a flag says whether any point was one
};

// A simple scan that goes along a loop.
struct BegunScan {
  const tile::Instruction* scan;
  std::vector<tile::Symbol> kept = {};  // lanes of rows that are walked side by side: of each it is kept, in an array,
                                        // what the walk has met; none: in a variable, or in the scan's further results
};

// How a dot is computed.
struct Product {
  enum class Way {
    kSums,     // each element as a sum, whose terms run side by side
    kColumns,  // columns side by side, one row and one term after the other
    kCall,     // by a function that keeps blocks of sums in registers
  };
  Way way = Way::kSums;
  tile::Symbol column = -1;  // the innermost lane of the result that only one operand has; -1: none
  tile::Value left = tile::kNoValue, right = tile::kNoValue;  // the operand without the column, and the one with it
  const tile::Instruction* load = nullptr;                    // of the left one, where it is read from memory
  // Lanes that have loops of their own, and those inside: of kSums, lanes that are summed over are `depth`; of kCall,
  // those that the function walks as one, behind each other in both arrays. The outermost first.
  std::vector<tile::Symbol> loops = {}, rows = {}, columns = {}, depth = {};
};

// Where a sort finds its rows, and where it leaves them.
struct SortedRows {
  const tile::Instruction* load = nullptr;  // reads them from memory, where they are sorted from; none: a tile has them
  bool takes_places = false;                // what comes along is each element's own place in its row
  std::vector<tile::Value> copied;          // tiles whose rows lie apart: each is copied to where it lies side by side
};

// A sum that is computed once before a step, of which accesses inside make their places.
struct PlaceStart {
  std::string name;
  tile::Index index;
  int after = -1;  // the start that it is added to, which another step around has computed; -1: none
};

// Where loops over a lane end, if that is no number: it has a name, and is computed once before a step.
struct NamedEnd {
  tile::Symbol lane;  // of the first of them
  tile::Index end;
  bool whole_vectors;
  tile::Index points = {};  // how many the loops do, before whole vectors are made of them
};

// What is left of an access's place behind the start.
struct LeftOfPlace {
  const tile::Access* access;
  int start;  // of the plan's
  tile::Index rest;
};

// A loop over a lane, or one instruction. A block is a list of steps; a For and an If have blocks of their own.
struct LoopStep {
  const tile::Instruction* instruction = nullptr;  // none: a loop over `lane`
  tile::Symbol lane = -1;
  tile::Index end;  // of the loop, if not the lane's width
  bool ends_early = false;
  std::vector<tile::Value> holds;       // masks of stores that hold up to the end, one for each store
  bool whole_vectors = false;           // the loop goes on from its end to whole vectors
  std::vector<LaneBound> begins, ends;  // no point before any of the first, or from any of the others on, counts
  std::set<tile::Value> known;          // comparisons that hold between them
  bool simd = false;                    // the loop's iterations may be done side by side
  bool moves = false;                   // the loop moves runs of memory as they are, each by one call
  bool transposes = false;              // this loop and the one inside load what lies along this one, by one call
  bool reversed = false;                // the loop goes from the end to the start
  int unroll = 0;                       // so many iterations stand one behind the other
  bool unless_refused = false;          // a store, or stores inside, that nothing reaches behind a refused index
  int shared = 0;                       // loops, this one first, that threads share together
  bool is_short = false;                // the variable is counted in 32 bits
  std::vector<BegunFold> folds;
  std::vector<BegunScan> scans;
  std::vector<tile::Value> declared;  // variables and arrays that are declared before this step
  std::vector<int> starts;            // of places, that are computed before this step
  std::vector<LeftOfPlace> left;      // of accesses inside, behind starts
  std::vector<int> named_ends;        // that are computed before this loop: its own first
  int end_name = -1;                  // of the plan's named ends, the loop's; -1: it ends at a number
  int64_t first = 0, last = 0;        // what numbers say of where a loop begins, and of where it ends, if that
                                      // has no name; `begins` and `ends` are then what is no number
  Product product;                    // of a dot
  SortedRows rows;                    // of a sort
  std::vector<LoopStep> body, otherwise_body;
};

enum class Home {
  kWritten,   // a constant, or a position that is only compared: written where it is used
  kVariable,  // one element at a time, in the loops that make and use it
  kStack,     // an array on the stack
  kScratch,   // an array in the thread's scratch memory
  kMemory,    // where its load would read it: a product's operand
};

struct TilePlace {
  Home home = Home::kVariable;
  // The value whose variable or array it shares; itself where it has its own.
  tile::Value storage = tile::kNoValue;
  std::vector<tile::Symbol> lanes;  // of an array, in the order of memory; what is missing is open where it is used
  int64_t spare = 0;                // elements behind an array's, so that arrays do not begin at like addresses
  bool packed = false;              // a float of 16 bits or fewer that is only moved, or sorted: held in its own bits
  bool has_statement = false;       // a variable with a statement of its own, however short its text is
  bool extended = false;            // an extended sum: held in more digits than f64 has
  int64_t offset = 0;               // kScratch: bytes from the beginning of the scratch memory
};

// Steps fill it in one after the other. It refers to instructions of the program, which has to stay.
struct LoopPlan {
  std::vector<int> ranks;         // [symbol] of a lane: its place in the order of loops and memory (lane_order.hpp)
  std::vector<bool> is_repeated;  // [value] computed again wherever it is needed (repeated.hpp)
  std::vector<LoopStep> body;
  std::vector<PlaceStart> starts;
  std::vector<NamedEnd> named_ends;
  std::vector<TilePlace> places;  // [value]
  std::vector<int64_t> shared;    // [buffer] kShared: bytes from the beginning of the scratch memory
  int64_t scratch_bytes = 0;      // of each thread
  bool is_uneven = false;         // blocks may differ much in work: threads take the next one when they are done
};

// The number of bytes that an element takes in a variable or an array: floats of fewer than 32 bits are held as f32.
int64_t held_bytes(DType dtype);
inline constexpr int64_t kExtendedBytes = 16;     // of an extended sum
inline constexpr int64_t kScratchAlignment = 64;  // of arrays in scratch memory, in bytes: a line of the cache
// Of an array, in elements: from one point of the lane to the next. 0 where it has no such lane.
int64_t stride_of(const tile::Program& program, const TilePlace& array, tile::Symbol lane);
// What a buffer in shared memory takes.
int64_t bytes_of(const tile::Buffer& buffer);

}  // namespace kw::lower
