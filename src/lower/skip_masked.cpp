#include "lower/skip_masked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class MaskedBlocks {
 public:
  explicit MaskedBlocks(tile::Program& program) : program_(program), needed_(program.values.size()) {}

  void run() {
    collect_masks();
    std::vector<Instruction> first, rest;
    std::vector<bool> is_first(program_.body.size());
    for (size_t place = program_.body.size(); place-- > 0;) is_first[place] = is_needed(program_.body[place]);
    for (size_t place = 0; place < program_.body.size(); ++place)
      (is_first[place] ? first : rest).push_back(std::move(program_.body[place]));
    program_.body = std::move(first);
    Instruction branch;
    branch.kind = Kind::kIf;
    branch.operands = {anywhere()};
    branch.body = std::move(rest);
    program_.body.push_back(std::move(branch));
  }

 private:
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

  void need(Value value) {
    if (value != tile::kNoValue) needed_[value] = true;
  }

  void need(const tile::Access& access) {
    need(access.mask);
    for (const tile::Coordinate& coordinate : access.coordinates) need(coordinate.value);
  }

  bool is_needed(const Instruction& one) {
    if (std::none_of(one.results.begin(), one.results.end(), [&](Value value) { return needed_[value]; })) return false;
    if (one.kind == Kind::kFor || one.kind == Kind::kIf) refuse("a mask is known only after a loop");
    for (Value value : one.operands) need(value);
    need(one.access);
    return true;
  }

  Value define(const std::string& name, tile::TileType type) {
    const auto taken = [&](const std::string& wanted) {
      return std::any_of(program_.values.begin(), program_.values.end(),
                         [&](const tile::ValueInfo& value) { return value.name == wanted; });
    };
    std::string unique = name;
    for (int count = 2; taken(unique); ++count) unique = fmt::format("{}_{}", name, count);
    program_.values.push_back({unique, std::move(type)});
    return static_cast<Value>(program_.values.size()) - 1;
  }

  Value emit(Instruction instruction, const std::string& name, tile::TileType type) {
    const Value value = define(name, std::move(type));
    instruction.results = {value};
    program_.body.push_back(std::move(instruction));
    return value;
  }

  Value op(tile::ScalarOp op, std::vector<Value> operands) {
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = std::move(operands);
    return emit(std::move(one), "anywhere", {DType::b1, {}});
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
    return emit(std::move(one), name, {type.dtype, {}});
  }

  const Instruction* maker_of(Value value) const {
    for (const Instruction& one : program_.body)
      if (one.results.size() == 1 && one.results[0] == value) return &one;
    return nullptr;
  }

  bool share_no_lane(Value left, Value right) const {
    const auto &a = program_.values[left].type.lanes, &b = program_.values[right].type.lanes;
    return std::none_of(a.begin(), a.end(),
                        [&](tile::Symbol lane) { return std::count(b.begin(), b.end(), lane) > 0; });
  }

  // Does the mask hold at any point? A scalar, from tiles of as few dimensions as possible: it may hold where the mask
  // nowhere does, never the other way round.
  Value anywhere(Value mask) {
    const Instruction* maker = maker_of(mask);
    if (maker == nullptr || maker->kind != Kind::kOp || program_.values[mask].type.lanes.size() < 2)
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
  std::vector<bool> needed_;  // [value] by a mask
  std::set<Value> masks_;
};

}  // namespace

void skip_masked_blocks(tile::Program& program) { MaskedBlocks(program).run(); }

}  // namespace kw::lower
