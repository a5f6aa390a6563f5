#include "lower/guarded_boxes.hpp"

#include <utility>
#include <vector>

#include "lower/appender.hpp"

namespace kw::lower {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::Symbol;
using tile::Value;

namespace {

class BoxGuards {
 public:
  explicit BoxGuards(tile::Program& program) : program_(program), values_(program), ranges_(tile::ranges_of(program)) {}

  void run(std::vector<Instruction>& body) {
    std::vector<Instruction> before = std::move(body);
    body.clear();
    for (Instruction& one : before) {
      run(one.body);
      run(one.otherwise_body);
      if (one.mode == tile::CopyMode::kBulk) {
        one.access.mask = inside(body, one.access);
        one.mode = tile::CopyMode::kPlain;
      }
      body.push_back(std::move(one));
    }
  }

 private:
  Value inside(std::vector<Instruction>& body, const tile::Access& access) {
    const tile::Buffer& buffer = program_.buffers[access.buffer];
    Value mask = access.mask;
    for (size_t i = 0; i < buffer.shape.size(); ++i) {
      const Index& at = access.coordinates[i].index;
      if (kernel::range_of(at, ranges_).low < 0) mask = both(body, mask, less(body, Index(-1), at));
      if (kernel::range_of(buffer.shape[i] - at, ranges_).low < 1)
        mask = both(body, mask, less(body, at, buffer.shape[i]));
    }
    return mask;
  }

  Value less(std::vector<Instruction>& body, const Index& left, const Index& right) {
    std::vector<Symbol> lanes = tile::lanes_of(program_, left);
    for (Symbol lane : tile::lanes_of(program_, right)) lanes.push_back(lane);
    return operation(body, ScalarOp::kLess, {number(body, left), number(body, right)}, std::move(lanes));
  }

  Value number(std::vector<Instruction>& body, const Index& index) {
    Instruction one;
    if (const auto constant = kernel::as_constant(index)) {
      one.integer = *constant;
    } else {
      one.kind = Kind::kIndex;
      one.index = index;
    }
    return add(body, std::move(one), "at", {DType::i64, tile::lanes_of(program_, index)});
  }

  Value both(std::vector<Instruction>& body, Value left, Value right) {
    if (left == tile::kNoValue) return right;
    std::vector<Symbol> lanes;
    for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol) {
      const auto lane = static_cast<Symbol>(symbol);
      if (tile::has_lane(program_.values[left].type.lanes, lane) ||
          tile::has_lane(program_.values[right].type.lanes, lane))
        lanes.push_back(lane);
    }
    return operation(body, ScalarOp::kLogicalAnd, {left, right}, std::move(lanes));
  }

  Value operation(std::vector<Instruction>& body, ScalarOp op, std::vector<Value> operands, std::vector<Symbol> lanes) {
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = std::move(operands);
    return add(body, std::move(one), "inside", {DType::b1, std::move(lanes)});
  }

  Value add(std::vector<Instruction>& body, Instruction one, const std::string& name, tile::TileType type) {
    one.results = {values_.value(name, std::move(type))};
    body.push_back(std::move(one));
    return body.back().results[0];
  }

  tile::Program& program_;
  Appender values_;
  const std::vector<kernel::SymbolRange> ranges_;  // [symbol]
};

}  // namespace

void guard_boxes(tile::Program& program) { BoxGuards(program).run(program.body); }

}  // namespace kw::lower
