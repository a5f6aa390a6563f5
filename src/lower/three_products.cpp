#include "lower/three_products.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lower/appender.hpp"
#include "lower/dead_code.hpp"

namespace kw::lower {
namespace {

using tile::DotPrecision;
using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::TileType;
using tile::Value;

class ThreeProducts {
 public:
  explicit ThreeProducts(tile::Program& program) : program_(program), values_(program) {
    tile::for_each(program.body, [&](const Instruction& one) {
      for (const Value result : one.results) makers_[result] = one;
      if (one.kind == Kind::kDot && one.precision == DotPrecision::kFp16x3)
        operands_.insert({one.operands[1], one.operands[2]});
    });
  }

  void run(std::vector<Instruction>& body) {
    std::vector<Instruction> before = std::move(body);
    body.clear();
    for (Instruction& one : before) {
      run(one.body);
      run(one.otherwise_body);
      if (one.kind == Kind::kDot && one.precision == DotPrecision::kFp16x3) {
        multiply(body, one);
        continue;
      }
      const std::vector<Value> results = one.results;
      body.push_back(std::move(one));
      // Right behind what makes them, which may be outside of the loop that multiplies.
      for (const Value result : results)
        if (operands_.contains(result)) halves_[result] = split(body, result);
    }
  }

 private:
  struct Halves {
    Value high = tile::kNoValue, low = tile::kNoValue;
  };

  const Instruction* made_by(Value value, ScalarOp op) const {
    const auto found = makers_.find(value);
    return found != makers_.end() && found->second.kind == Kind::kOp && found->second.op == op ? &found->second
                                                                                               : nullptr;
  }
  bool is_zero(Value value) const {
    const auto found = makers_.find(value);
    return found != makers_.end() && found->second.kind == Kind::kConstant && found->second.number == 0.0;
  }
  const TileType& type(Value value) const { return program_.values[value].type; }

  Value add(std::vector<Instruction>& body, Instruction one, const std::string& name, TileType type) {
    one.results = {values_.value(name, std::move(type))};
    makers_[one.results[0]] = one;
    body.push_back(std::move(one));
    return body.back().results[0];
  }

  Value op(std::vector<Instruction>& body, ScalarOp op, std::vector<Value> operands, const std::string& name,
           TileType type) {
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = std::move(operands);
    return add(body, std::move(one), name, std::move(type));
  }

  // The two halves of which the value is the sum.
  std::optional<Halves> summands_of(Value value) const {
    const Instruction* sum = made_by(value, ScalarOp::kAdd);
    if (!sum) return std::nullopt;
    const auto uncast = [&](Value one) {
      const Instruction* cast = made_by(one, ScalarOp::kCast);
      return cast ? cast->operands[0] : one;
    };
    const Halves halves{uncast(sum->operands[0]), uncast(sum->operands[1])};
    const TileType half{DType::f16, type(value).lanes};
    return type(halves.high) == half && type(halves.low) == half ? std::optional(halves) : std::nullopt;
  }

  Halves split(std::vector<Instruction>& body, Value value) {
    if (const auto given = summands_of(value)) return *given;
    // A sum of halves that is zero beyond the end of what is folded: so is each half, if it is not loaded so.
    if (const Instruction* choice = made_by(value, ScalarOp::kSelect); choice && is_zero(choice->operands[2]))
      if (const auto given = summands_of(choice->operands[1])) {
        const Value mask = choice->operands[0];
        return {zero_beyond(body, mask, given->high), zero_beyond(body, mask, given->low)};
      }
    const std::string name = program_.values[value].name;
    const TileType whole = type(value), half{DType::f16, whole.lanes};
    const Value high = op(body, ScalarOp::kCast, {value}, name + "_high", half);
    const Value again = op(body, ScalarOp::kCast, {high}, name + "_high", whole);
    const Value rest = op(body, ScalarOp::kSub, {value, again}, "sub", whole);
    return {high, op(body, ScalarOp::kCast, {rest}, name + "_low", half)};
  }

  Value zero_beyond(std::vector<Instruction>& body, Value mask, Value half) {
    const auto maker = makers_.find(half);
    if (maker != makers_.end() && maker->second.kind == Kind::kLoad && maker->second.access.otherwise == 0.0)
      return half;
    Instruction zero;
    zero.kind = Kind::kConstant;
    const Value nothing = add(body, std::move(zero), "zero", {DType::f16, {}});
    const std::string name = program_.values[half].name;
    return op(body, ScalarOp::kSelect, {mask, half, nothing}, name, type(half));
  }

  void multiply(std::vector<Instruction>& body, const Instruction& dot) {
    const Value total = dot.operands[0], result = dot.results[0];
    const auto halves_of = [&](Value operand) {  // of what a loop carries: here
      const auto known = halves_.find(operand);
      return known == halves_.end() ? split(body, operand) : known->second;
    };
    const Halves left = halves_of(dot.operands[1]), right = halves_of(dot.operands[2]);
    const TileType sum = type(result);
    const std::string name = program_.values[result].name;
    const auto product = [&](Value before, Value one, Value other) {
      Instruction made = dot;
      made.precision = DotPrecision::kIeee;
      made.operands = {before, one, other};
      return made;
    };
    const bool is_first = is_zero(total);
    const Value first = add(body, product(is_first ? total : nothing(body, sum), left.high, right.low), name + "_small",
                            sum);
    const Value small = add(body, product(first, left.low, right.high), name + "_small", sum);
    Instruction last = product(small, left.high, right.high);
    if (is_first) {
      program_.values[result].name = values_.free_name(name + "_part");
      body.push_back(std::move(last));  // is the result
      return;
    }
    const Value part = add(body, std::move(last), name + "_part", sum);
    Instruction added;
    added.kind = Kind::kOp;
    added.op = ScalarOp::kAdd;
    added.operands = {total, part};
    added.results = {result};
    body.push_back(std::move(added));
  }

  // A tile of zeros that a loop starts from, or another.
  Value nothing(std::vector<Instruction>& body, const TileType& sum) {
    for (const auto& [value, maker] : makers_)
      if (maker.kind == Kind::kConstant && maker.number == 0.0 && type(value) == sum) return value;
    Instruction zero;
    zero.kind = Kind::kConstant;
    return add(body, std::move(zero), "zero", sum);
  }

  tile::Program& program_;
  Appender values_;
  std::map<Value, Instruction> makers_;
  std::set<Value> operands_;  // of these products
  std::map<Value, Halves> halves_;
};

}  // namespace

void write_three_products(tile::Program& program) {
  ThreeProducts(program).run(program.body);
  remove_dead_code(program);
}

}  // namespace kw::lower
