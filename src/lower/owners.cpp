#include "lower/owners.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "lower/appender.hpp"
#include "lower/loop_tree.hpp"
#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Value;
using Body = std::vector<Instruction>;

constexpr int64_t kMostThreads = 1 << 16;

// Of the values that decide a place: how many there are, and the thread's own ones.
struct OwnedRange {
  int64_t reach = 0;
  std::string buffer;
  Value first = tile::kNoValue, end = tile::kNoValue;
};

class Owners {
 public:
  Owners(tile::Program& program, int threads) : program_(program), appender_(program) {
    tile::SymbolInfo owners{"owners", tile::SymbolKind::kSize, {1, kMostThreads}, {}};
    owners.threads = threads;
    owners_ = appender_.symbol(std::move(owners));
    owner_ = appender_.symbol({"owner", tile::SymbolKind::kLoop, {0, kMostThreads - 1}, {}});
  }

  void run() {
    tile::for_each(program_.body, [&](const Instruction& one) { note(one); });
    Body whole = std::exchange(program_.body, {});
    const auto is_loop = [](const Instruction& one) { return one.kind == Kind::kFor; };
    const auto first = std::find_if(whole.begin(), whole.end(), is_loop);
    Body loops(std::make_move_iterator(first), std::make_move_iterator(whole.end()));
    whole.erase(first, whole.end());
    Instruction shared;
    shared.kind = Kind::kFor;
    shared.symbol = owner_;
    shared.end = kernel::symbol_index(owners_);
    shared.shared = true;
    for (auto& [value, range] : ranges_) find_range(program_.values[value].type.dtype, range);
    shared.body = std::exchange(program_.body, {});
    if (ranges_.size() > 1) mask_stores(loops);
    else if (!guard_maker(loops)) guard(loops);
    append(shared.body, std::move(loops));
    append(program_.body, std::move(whole));
    program_.body.push_back(std::move(shared));
  }

 private:
  static Value place_of(const Instruction& store) {
    Value place = tile::kNoValue;
    for (const tile::Coordinate& at : store.access.coordinates) {
      KW_ASSERT(at.value == tile::kNoValue || place == tile::kNoValue,
                "a place that several values decide has no owner");
      if (at.value != tile::kNoValue) place = at.value;
    }
    KW_ASSERT(place != tile::kNoValue && store.in_order, "a place that data do not decide has no owner");
    return place;
  }

  static void append(Body& body, Body more) {
    body.insert(body.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  void note(const Instruction& one) {
    if (one.kind != Kind::kStore) return;
    const tile::Buffer& buffer = program_.buffers[one.access.buffer];
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program_);
    OwnedRange& range = ranges_[place_of(one)];
    if (range.buffer.empty()) range.buffer = buffer.name;
    for (size_t i = 0; i < one.access.coordinates.size(); ++i) {
      const tile::Coordinate& at = one.access.coordinates[i];
      if (at.value == tile::kNoValue) continue;
      const int64_t reach = kernel::range_of(buffer.shape[i], ranges).high - kernel::range_of(at.index, ranges).high;
      range.reach = std::max(range.reach, reach);
    }
  }

  // In 64 bits, as the number of threads may be large, and then as the value that it is compared with.
  Value index(const Index& index, DType dtype, const std::string& name) {
    Instruction one;
    one.kind = Kind::kIndex;
    one.index = index;
    const bool is_wide = dtype == DType::i64;
    const Value wide = appender_.emit(std::move(one), is_wide ? name : name + "_wide", {DType::i64, {}});
    return is_wide ? wide : appender_.op(tile::ScalarOp::kCast, {wide}, name, {dtype, {}});
  }

  void find_range(DType dtype, OwnedRange& range) {
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program_);
    const Index owner = kernel::symbol_index(owner_), owners = kernel::symbol_index(owners_), reach(range.reach);
    range.first = index(kernel::floor_divide(owner * reach, owners, ranges), dtype, range.buffer + "_first");
    range.end = index(kernel::floor_divide((owner + Index(1)) * reach, owners, ranges), dtype, range.buffer + "_end");
  }

  // Is the place the thread's own? In the program's body.
  Value is_own(Value place) {
    const OwnedRange& range = ranges_.at(place);
    const tile::TileType truth{DType::b1, program_.values[place].type.lanes};
    const Value begun = appender_.op(tile::ScalarOp::kGreaterEqual, {place, range.first}, "begun", truth),
                inside = appender_.op(tile::ScalarOp::kLess, {place, range.end}, "inside", truth);
    return appender_.op(tile::ScalarOp::kLogicalAnd, {begun, inside}, "own", truth);
  }

  // In the body that makes the one value.
  bool guard_maker(Body& body) {
    const Value place = ranges_.begin()->first;
    for (Instruction& one : body) {
      if (std::count(one.results.begin(), one.results.end(), place) != 0) return guard(body), true;
      if (guard_maker(one.body)) return true;
    }
    return false;
  }

  // What the value is made of stays; all else of the body runs where the place is the thread's own.
  void guard(Body& body) {
    const Value place = ranges_.begin()->first;
    std::set<Value> needed = {place};
    std::vector<bool> keeps(body.size());
    for (size_t i = body.size(); i-- > 0;) {
      keeps[i] = std::any_of(body[i].results.begin(), body[i].results.end(),
                             [&](Value result) { return needed.count(result) != 0; });
      if (keeps[i]) for_each_use(body[i], [&](Value value, Use) { needed.insert(value); });
    }
    Body kept;
    Instruction branch;
    branch.kind = Kind::kIf;
    for (size_t i = 0; i < body.size(); ++i) (keeps[i] ? kept : branch.body).push_back(std::move(body[i]));
    branch.operands = {is_own(place)};
    append(kept, std::exchange(program_.body, {}));
    kept.push_back(std::move(branch));
    body = std::move(kept);
  }

  void mask_stores(Body& body) {
    Body result;
    for (Instruction& one : body) {
      mask_stores(one.body);
      if (one.kind == Kind::kStore) {
        Value& mask = one.access.mask;
        const Value own = is_own(place_of(one));
        std::vector<tile::Symbol> lanes = program_.values[own].type.lanes;
        if (mask != tile::kNoValue) {
          for (const tile::Symbol lane : program_.values[mask].type.lanes)
            if (!tile::has_lane(lanes, lane)) lanes.push_back(lane);
          std::sort(lanes.begin(), lanes.end());
        }
        mask = mask == tile::kNoValue
                   ? own
                   : appender_.op(tile::ScalarOp::kLogicalAnd, {mask, own}, "own", {DType::b1, lanes});
        append(result, std::exchange(program_.body, {}));
      }
      result.push_back(std::move(one));
    }
    body = std::move(result);
  }

  tile::Program& program_;
  Appender appender_;
  tile::Symbol owners_ = -1, owner_ = -1;
  std::map<Value, OwnedRange> ranges_;  // by the value that decides a place
};

}  // namespace

void own_places(tile::Program& program, int threads) { Owners(program, threads).run(); }

}  // namespace kw::lower
