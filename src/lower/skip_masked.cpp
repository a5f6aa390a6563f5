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

  // Does any of the masks hold at any point? A scalar.
  Value anywhere() {
    Value all = tile::kNoValue;
    for (Value mask : masks_) {
      Instruction fold;
      fold.kind = Kind::kFold;
      fold.reduce = tile::ReduceOp::kAny;
      fold.operands = {mask};
      fold.lanes = program_.values[mask].type.lanes;
      Value one = mask;
      if (!fold.lanes.empty()) {
        one = define("stores_here", {DType::b1, {}});
        fold.results = {one};
        program_.body.push_back(std::move(fold));
      }
      if (all != tile::kNoValue) {
        Instruction either;
        either.kind = Kind::kOp;
        either.op = tile::ScalarOp::kLogicalOr;
        either.operands = {all, one};
        one = define("stores_anything", {DType::b1, {}});
        either.results = {one};
        program_.body.push_back(std::move(either));
      }
      all = one;
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
