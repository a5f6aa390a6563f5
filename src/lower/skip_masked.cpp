#include "lower/skip_masked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lower/appender.hpp"
#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class MaskedBlocks {
 public:
  explicit MaskedBlocks(tile::Program& program)
      : program_(program), appender_(program), needed_(program.values.size()) {}

  void run() {
    collect_masks();
    std::vector<Instruction> rest = take_needless();
    Instruction branch;
    branch.kind = Kind::kIf;
    branch.operands = {anywhere()};
    // What only the masks need waits for the condition, and for all else that is stored: it would take registers.
    needed_.assign(program_.values.size(), false);
    need(branch.operands[0]);
    std::vector<Instruction> of_masks = take_needless(), asked = std::exchange(program_.body, std::move(of_masks));
    needed_.assign(program_.values.size(), false);
    tile::for_each(rest, [&](const Instruction& one) { need_of_all_but_masks(one); });
    const std::vector<Instruction> late = take_needless();
    const auto first_store = std::find_if(rest.begin(), rest.end(),
                                          [](const Instruction& one) { return one.kind == Kind::kStore; });
    rest.insert(first_store, late.begin(), late.end());
    branch.body = std::exchange(program_.body, std::move(asked));
    branch.body.insert(branch.body.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
    program_.body.push_back(std::move(branch));
  }

 private:
  // --- Masks ---
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::kUser, fmt::format("kernel schedule: '{}' cannot skip blocks: {}", program_.name, why));
  }

  void collect_masks() {
    size_t stores = 0, outside = 0;
    tile::for_each(program_.body, [&](const Instruction& one) { stores += one.kind == Kind::kStore ? 1 : 0; });
    for (const Instruction& one : program_.body) {
      if (one.kind != Kind::kStore) continue;
      ++outside;
      if (one.access.mask == tile::kNoValue) refuse("a store is not masked");
      masks_.insert(one.access.mask);
      needed_[one.access.mask] = true;
    }
    if (stores == 0 || stores != outside) refuse("it stores within a loop");
  }

  // Leaves in the body what is needed, and returns the rest.
  std::vector<Instruction> take_needless() {
    std::vector<Instruction> kept, taken;
    std::vector<bool> keeps(program_.body.size());
    for (size_t place = program_.body.size(); place-- > 0;) keeps[place] = is_needed(program_.body[place]);
    for (size_t place = 0; place < program_.body.size(); ++place)
      (keeps[place] ? kept : taken).push_back(std::move(program_.body[place]));
    program_.body = std::move(kept);
    return taken;
  }

  void need(Value value) {
    if (value != tile::kNoValue) needed_[value] = true;
  }

  void need(const tile::Access& access) {
    need(access.mask);
    need_coordinates(access);
  }

  void need_coordinates(const tile::Access& access) {
    for (const tile::Coordinate& coordinate : access.coordinates) need(coordinate.value);
  }

  void need_of_all_but_masks(const Instruction& one) {
    for (const auto* values : {&one.operands, &one.yields, &one.otherwise_yields})
      for (const Value value : *values) need(value);
    need(one.destination);
    need(one.until);
    if (one.kind != Kind::kStore) need(one.access);
    else need_coordinates(one.access);
  }

  bool is_needed(const Instruction& one) {
    if (std::none_of(one.results.begin(), one.results.end(), [&](Value value) { return needed_[value]; })) return false;
    if (one.kind == Kind::kFor || one.kind == Kind::kIf) refuse("a mask is known only after a loop");
    for (Value value : one.operands) need(value);
    need(one.access);
    return true;
  }

  Value op(tile::ScalarOp op, std::vector<Value> operands) {
    return appender_.op(op, std::move(operands), "anywhere", {DType::b1, {}});
  }

  Value fold(tile::ReduceOp reduce, Value value) {
    const tile::TileType type = program_.values[value].type;
    if (type.lanes.empty()) return value;
    Instruction one;
    one.kind = Kind::kFold;
    one.reduce = reduce;
    one.operands = {value};
    one.lanes = type.lanes;
    const char* name = reduce == tile::ReduceOp::kAny ? "anywhere" : reduce == tile::ReduceOp::kMax ? "most" : "least";
    return appender_.emit(std::move(one), name, {type.dtype, {}});
  }

  bool share_no_lane(Value left, Value right) const {
    const auto &a = program_.values[left].type.lanes, &b = program_.values[right].type.lanes;
    return std::none_of(a.begin(), a.end(),
                        [&](tile::Symbol lane) { return std::count(b.begin(), b.end(), lane) > 0; });
  }

  // Does it hold only where some scalar does?
  bool asks_scalar(Value mask) const {
    if (program_.values[mask].type.lanes.empty()) return true;
    const Instruction* maker = appender_.maker_of(mask);
    return maker != nullptr && maker->kind == Kind::kOp && maker->op == tile::ScalarOp::kLogicalAnd &&
           std::any_of(maker->operands.begin(), maker->operands.end(), [&](Value one) { return asks_scalar(one); });
  }

  // Does the mask hold at any point? A scalar, from tiles of as few dimensions as possible: it may hold where the mask
  // nowhere does, never the other way round.
  Value anywhere(Value mask) {
    const Instruction* maker = appender_.maker_of(mask);
    const size_t lanes = program_.values[mask].type.lanes.size();
    if (maker != nullptr && maker->kind == Kind::kFold && maker->reduce == tile::ReduceOp::kAny)
      return anywhere(maker->operands[0]);
    if (maker == nullptr || maker->kind != Kind::kOp || (lanes < 2 && !asks_scalar(mask)))
      return fold(tile::ReduceOp::kAny, mask);
    const Instruction made = *maker;
    switch (made.op) {
      case tile::ScalarOp::kLogicalOr:
      case tile::ScalarOp::kLogicalAnd: return op(made.op, {anywhere(made.operands[0]), anywhere(made.operands[1])});
      case tile::ScalarOp::kGreater:
      case tile::ScalarOp::kGreaterEqual: {
        const DType dtype = program_.values[made.operands[0]].type.dtype;
        // Where one of them is NaN its extreme is, and nothing is greater.
        if (!is_integral(dtype) || !share_no_lane(made.operands[0], made.operands[1])) break;
        return op(made.op,
                  {fold(tile::ReduceOp::kMax, made.operands[0]), fold(tile::ReduceOp::kMin, made.operands[1])});
      }
      default: break;
    }
    return fold(tile::ReduceOp::kAny, mask);
  }

  // Does any of the masks hold at any point?
  Value anywhere() {
    Value all = tile::kNoValue;
    for (Value mask : masks_) {
      const Value one = anywhere(mask);
      all = all == tile::kNoValue ? one : op(tile::ScalarOp::kLogicalOr, {all, one});
    }
    return all;
  }

  tile::Program& program_;
  Appender appender_;
  std::vector<bool> needed_;  // [value]
  std::set<Value> masks_;
};

}  // namespace

void skip_masked_blocks(tile::Program& program) { MaskedBlocks(program).run(); }

}  // namespace kw::lower
