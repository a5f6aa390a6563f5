// What the parts of the printer of tile programs share: the text so far, and what stands for values in it.
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/tile_notes.hpp"
#include "emit/cpu/tile_text.hpp"
#include "lower/lane_bounds.hpp"

namespace kw::cpu {

// A result of a fold while its loops run.
struct RunningFold {
  std::string sum;        // the variable that it is folded into; empty: an array
  std::string is_nan;     // its flag; empty: none
  bool in_parts = false;  // as its loop says (lower::BegunFold)
};

// A simple scan that begins with nothing: where it keeps what it has met, an element for each row.
struct RunningScan {
  std::string name;
  std::vector<tile::Symbol> lanes;  // none: a variable
};

struct TileContext {
  TileContext(const tile::Program& program, const lower::LoopPlan& plan, HelperSet& helpers)
      : text(program, plan, helpers), masks(program), notes(program, plan) {}

  // What the value is called at this point of the loops, or the expression in its place.
  Text value(tile::Value value, const LanePositions& positions = {}) const {
    if (const auto found = written.find(value); found != written.end()) return found->second;
    const Text element = text.element(value, positions);
    if (!text.place(value).extended) return element;
    return {"static_cast<double>(" + element.text + ")", precedence::kPrimary};
  }
  bool is_open(tile::Symbol lane) const {
    for (tile::Symbol one : open)
      if (one == lane) return true;
    return false;
  }
  bool is_short(tile::Symbol lane) const { return short_open.count(lane) != 0; }
  void open_loop(tile::Symbol lane) { open_loop(lane, std::to_string(text.width(lane))); }
  void open_backwards(tile::Symbol lane, const std::string& end) {
    out.open(fmt::format("for (int64_t {0} = {1}; {0}-- > 0;)", text.symbol(lane), end));
    open.push_back(lane);
  }
  void open_loop(tile::Symbol lane, const std::string& end, bool is_short = false, const std::string& begin = "0") {
    const std::string& name = text.symbol(lane);
    out.open((is_short ? "for (int32_t " : "for (int64_t ") + name + " = " + begin + "; " + name + " < " + end +
             "; ++" + name + ")");
    open.push_back(lane);
    if (is_short) short_open.insert(lane);
  }
  void close_loop() {
    out.close();
    short_open.erase(open.back());
    open.pop_back();
  }

  // What is still to be asked of a mask here; kNoValue: nothing.
  tile::Value asked(tile::Value mask) const { return masks.left_of(mask, known); }

  // Says why, the first time.
  void note(Reason reason) {
    if (const std::string_view comment = notes.take(reason); !comment.empty()) out.line(std::string(comment));
  }

  TileText text;
  const lower::Masks masks;
  Notes notes;
  CodeWriter out;
  std::set<tile::Value> known;        // comparisons that hold in the loops around
  std::vector<tile::Symbol> open;     // lanes of the loops around
  std::set<tile::Symbol> short_open;  // of these, what is counted in 32 bits
  std::map<tile::Value, Text> written;
  std::map<tile::Value, RunningFold> running;
  std::map<tile::Value, RunningScan> walks;
  std::set<tile::Value> holding;  // masks that nothing asks for: they hold wherever they are used
};

// Each first value becomes what the second one is, all at once; those that share an array already are left.
using Assignments = std::vector<std::pair<tile::Value, tile::Value>>;
// `declared`: the first values that are variables without a declaration yet.
void assign(TileContext& at, const Assignments& assignments, const std::set<tile::Value>& declared = {});

// Where a loop over a lane begins or ends, `plain` but for its bounds: a number or the name of one, which is declared.
std::string bound_text(TileContext& at, const lower::LoopStep& loop, bool begins, const std::string& plain);

// Of a For, which a value may end: a number, or the name of one.
Text end_of_for(TileContext& at, const tile::Instruction& loop);

class TileAccesses;
void print_dot(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step);
void print_sort(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step);

// Folds: before, in and behind the loop that they run in.
void begin_fold(TileContext& at, const lower::BegunFold& begun);
void print_fold_step(TileContext& at, const tile::Instruction& fold);
void end_fold(TileContext& at, const tile::Instruction& fold);
// Simple scans: before the loop that they go along, and in it.
void begin_scans(TileContext& at, const lower::LoopStep& loop);
void print_scan_step(TileContext& at, const tile::Instruction& scan);
// The clauses of a SIMD loop's folds, or of those of a loop that threads share, as " reduction(+ : total)".
std::string reduction_clauses(const TileContext& at, const lower::LoopStep& loop, bool shared);
// The value that changes nothing, as the type holds it.
Text identity_text(const TileContext& at, kernel::ReduceOp reduce, tile::Value value);

}  // namespace kw::cpu
