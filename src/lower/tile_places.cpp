#include "lower/tile_places.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "lower/memory_operands.hpp"
#include "lower/sorted_rows.hpp"
#include "lower/touches.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;

// Arrays beyond these are kept in memory of the thread's own: its stack may be small.
constexpr int64_t kMostOfArray = 16 * 1024, kMostOfStack = 256 * 1024;
constexpr int64_t kHalfPage = 2048;

int64_t in_lines(int64_t bytes) { return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }

// Of arrays of whole or half pages: elements at the same place of several, which are walked together, would share the
// few lines of the nearest cache that have the same address within a page (sixteen of 8 KB: 0.39 ms for 0.45).
int64_t spare_bytes(int64_t bytes) { return in_lines(bytes) % kHalfPage == 0 ? kScratchAlignment : 0; }

class PlaceFinder {
 public:
  PlaceFinder(const tile::Program& program, LoopPlan& plan)
      : program_(program),
        plan_(plan),
        touches_(find_touches(program, plan.body)),
        in_memory_(find_memory_operands(program)),
        roots_(program.values.size()),
        is_extended_(program.values.size()) {
    std::iota(roots_.begin(), roots_.end(), 0);
    tile::for_each(program.body, [&](const Instruction& one) {
      if (one.kind == Kind::kFold && one.reduce == tile::ReduceOp::kExtendedSum) is_extended_[one.results[0]] = true;
    });
  }

  void run() {
    share();
    plan_.places.assign(program_.values.size(), {});
    for (Value value = 0; value < count(); ++value)
      if (!touches_.of[value].empty() && root(value) == value) place(value);
    for (Value value = 0; value < count(); ++value)
      if (root(value) != value) plan_.places[value] = plan_.places[root(value)];
    place_shared_buffers();
  }

 private:
  Value count() const { return static_cast<Value>(program_.values.size()); }
  const tile::TileType& type(Value value) const { return program_.values[value].type; }

  // --- Who shares an array ---

  Value root(Value value) const {
    while (roots_[value] != value) value = roots_[value];
    return value;
  }

  std::vector<Value> members(Value value) const {
    std::vector<Value> result;
    for (Value other = 0; other < count(); ++other)
      if (root(other) == root(value)) result.push_back(other);
    return result;
  }

  void join(Value keeper, Value other) { roots_[root(other)] = root(keeper); }

  // Is it an array with all its lanes, which another of the same form could take over?
  bool is_whole_array(Value value) const {
    if (plan_.is_repeated[value] || type(value).lanes.empty()) return false;
    return spot_of({value}).lanes.size() == type(value).lanes.size();
  }

  bool have_one_form(Value left, Value right) const {
    const auto sorted = [&](Value value) {
      Lanes lanes = type(value).lanes;
      std::sort(lanes.begin(), lanes.end());
      return lanes;
    };
    const auto held = [&](Value value) { return is_narrow_float(type(value).dtype) ? DType::f32 : type(value).dtype; };
    return is_whole_array(left) && is_whole_array(right) && sorted(left) == sorted(right) &&
           held(left) == held(right) && is_extended_[left] == is_extended_[right];
  }

  // Within these moments, is all that shares the value's array done with it by this moment?
  bool is_done(Value value, Moments within, int by) const {
    for (Value member : members(value))
      for (const Touch& touch : touches_.of[member])
        if (touch.moment >= within.first && touch.moment <= within.last && touch.moment > by) return false;
    return true;
  }

  int first_moment(Value value, Moments within) const {
    int first = within.last;
    for (Value member : members(value))
      for (const Touch& touch : touches_.of[member])
        if (touch.moment >= within.first) first = std::min(first, touch.moment);
    return first;
  }

  void share() {
    for (const Touches::Loop& loop : touches_.loops)
      for (size_t i = 0; i < loop.instruction->results.size(); ++i)
        join(loop.instruction->arguments[i], loop.instruction->results[i]);
    tile::for_each(program_.body, [&](const Instruction& one) { share_operand(one); });
    for (size_t i = touches_.loops.size(); i-- > 0;) share_yields(touches_.loops[i]);
    for (const Touches::Loop& loop : touches_.loops) share_first_values(loop);
  }

  // A result takes its operand's place where that is not needed any more.
  void share_operand(const Instruction& one) {
    if (one.kind == Kind::kScan) return share_what_was_met(one);
    if (one.kind != Kind::kOp && one.kind != Kind::kDot) return;
    const Value result = one.results[0];
    // What a loop carries comes first: its next value then stands where it has to.
    std::vector<Value> operands = one.operands;
    if (one.kind == Kind::kOp)
      std::stable_partition(operands.begin(), operands.end(), [&](Value value) { return is_carried(value); });
    for (Value operand : operands) {
      if (touches_.of[result].empty() || touches_.body[operand] != touches_.body[result]) continue;
      if (root(operand) == root(result) || !have_one_form(operand, result)) continue;
      const Moments within = touches_.of_bodies[result];
      if (is_done(operand, within, first_moment(result, within))) return join(operand, result);
      if (one.kind == Kind::kDot) return;
    }
  }

  void share_what_was_met(const Instruction& scan) {
    for (size_t i = tile::scanned_operands(scan); i < scan.operands.size(); ++i) {
      const Value before = scan.operands[i], met = scan.results[i];
      if (touches_.body[before] != touches_.body[met] || root(before) == root(met) || !have_one_form(before, met))
        continue;
      const Moments within = touches_.of_bodies[met];
      if (is_done(before, within, first_moment(met, within))) join(before, met);
    }
  }

  bool is_carried(Value value) const {
    return std::any_of(touches_.loops.begin(), touches_.loops.end(), [&](const Touches::Loop& loop) {
      const std::vector<Value>& arguments = loop.instruction->arguments;
      return std::find(arguments.begin(), arguments.end(), value) != arguments.end();
    });
  }

  void share_yields(const Touches::Loop& loop) {
    const Instruction& one = *loop.instruction;
    for (size_t i = 0; i < one.yields.size(); ++i) {
      const Value yield = one.yields[i], argument = one.arguments[i];
      if (touches_.body[yield] != &one.body || root(yield) == root(argument) || !have_one_form(yield, argument))
        continue;
      const bool taken = std::any_of(one.arguments.begin(), one.arguments.end(),
                                     [&](Value other) { return root(other) == root(yield); });
      if (!taken && is_done(argument, loop.inside, first_moment(yield, loop.inside))) join(argument, yield);
    }
  }

  void share_first_values(const Touches::Loop& loop) {
    const Instruction& one = *loop.instruction;
    for (size_t i = 0; i < one.operands.size(); ++i) {
      const Value first = one.operands[i], argument = one.arguments[i];
      if (root(first) == root(argument) || !have_one_form(first, argument)) continue;
      if (touches_.body[first] != touches_.body[one.results[i]]) continue;
      size_t starts = 0;
      for (Value other : one.operands) starts += root(other) == root(first);
      if (starts == 1 && is_done(first, touches_.of_bodies[first], loop.start)) join(first, argument);
    }
  }

  // --- Places ---

  // The innermost block that all that touches these values is in, and the first of its steps that does.
  struct Spot {
    int block, step;
    Lanes lanes;  // those of the values that are not open there
  };

  Spot spot_of(const std::vector<Value>& values) const {
    Spot spot{-1, 0, {}};
    for (Value value : values)
      for (const Touch& touch : touches_.of[value]) widen(spot, touch.block, touch.step);
    for (Symbol lane : type(values[0]).lanes)
      if (!is_open(spot.block, lane)) spot.lanes.push_back(lane);
    std::sort(spot.lanes.begin(), spot.lanes.end(),
              [&](Symbol a, Symbol b) { return plan_.ranks[a] < plan_.ranks[b]; });
    return spot;
  }

  void widen(Spot& spot, int block, int step) const {
    if (spot.block < 0) {
      spot = {block, step, {}};
      return;
    }
    // Blocks have greater numbers than those around them.
    while (block != spot.block) {
      int &deeper = block > spot.block ? block : spot.block, &place = &deeper == &block ? step : spot.step;
      place = touches_.blocks[deeper].step;
      deeper = touches_.blocks[deeper].parent;
    }
    spot.step = std::min(spot.step, step);
  }

  bool is_open(int block, Symbol lane) const {
    for (; block >= 0; block = touches_.blocks[block].parent)
      if (touches_.blocks[block].lane == lane) return true;
    return false;
  }

  void place(Value value) {
    TilePlace& place = plan_.places[value];
    place.storage = value;
    place.extended = is_extended_[value];
    if (plan_.is_repeated[value]) {
      place.home = in_memory_[value] ? Home::kMemory : is_constant(value) ? Home::kWritten : Home::kVariable;
      return;
    }
    const std::vector<Value> sharing = members(value);
    const Spot spot = spot_of(sharing);
    place.lanes = spot.lanes;
    const bool is_set_later = std::any_of(sharing.begin(), sharing.end(),
                                          [&](Value one) { return touches_.is_set_later[one]; });
    if (!spot.lanes.empty()) settle(value);
    if ((!spot.lanes.empty() && place.home == Home::kStack) || (spot.lanes.empty() && is_set_later))
      (*touches_.blocks[spot.block].steps)[spot.step].declared.push_back(value);
  }

  void settle(Value value) {
    TilePlace& place = plan_.places[value];
    const int64_t element = place.extended ? kExtendedBytes : held_bytes(type(value).dtype);
    int64_t bytes = element;
    for (Symbol lane : place.lanes) bytes *= tile::width_of(program_, lane);
    const int64_t spare = spare_bytes(bytes);
    place.spare = spare / element;
    // Scratch memory is a block's: loops of their own have none.
    if ((bytes <= kMostOfArray || program_.grid.empty()) && stack_ + bytes + spare <= kMostOfStack) {
      place.home = Home::kStack;
      stack_ += bytes + spare;
      return;
    }
    place.home = Home::kScratch;
    place.offset = plan_.scratch_bytes;
    plan_.scratch_bytes += in_lines(bytes) + spare;
  }

  bool is_constant(Value value) const {
    if (constants_.empty())
      tile::for_each(program_.body, [&](const Instruction& one) {
        if (one.kind == Kind::kConstant) constants_.insert(one.results[0]);
      });
    return constants_.count(value) != 0;
  }

  void place_shared_buffers() {
    plan_.shared.assign(program_.buffers.size(), 0);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const tile::Buffer& buffer = program_.buffers[i];
      if (buffer.space != tile::Space::kShared) continue;
      plan_.shared[i] = plan_.scratch_bytes;
      plan_.scratch_bytes += in_lines(bytes_of(buffer)) + spare_bytes(bytes_of(buffer));
    }
  }

  const tile::Program& program_;
  LoopPlan& plan_;
  Touches touches_;
  std::vector<bool> in_memory_;    // [value] is it an operand that is read where it lies?
  std::vector<Value> roots_;       // [value] who it shares an array with
  std::vector<bool> is_extended_;  // [value] is it an extended sum?
  mutable std::set<Value> constants_;
  int64_t stack_ = 0;
};

}  // namespace

void place_tiles(const tile::Program& program, LoopPlan& plan) {
  PlaceFinder(program, plan).run();
  find_sorted_rows(program, plan);
}

}  // namespace kw::lower
