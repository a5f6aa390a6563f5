#include "lower/extreme_places.hpp"

#include <limits>
#include <utility>

#include "lower/appender.hpp"

namespace kw::lower {
namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::ReduceOp;
using tile::ScalarOp;
using tile::Value;

class PlaceFolds {
 public:
  explicit PlaceFolds(tile::Program& program) : program_(program), appender_(program) {}

  void rewrite(std::vector<Instruction>& body) {
    std::vector<Instruction> result;
    for (Instruction& one : body) {
      rewrite(one.body);
      rewrite(one.otherwise_body);
      const bool finds_place = one.kind == Kind::kFold &&
                               (one.reduce == ReduceOp::kArgMax || one.reduce == ReduceOp::kArgMin);
      if (finds_place) add_fold(one, result);
      else result.push_back(std::move(one));
    }
    body = std::move(result);
  }

 private:
  const tile::TileType& type(Value value) const { return program_.values[value].type; }

  void add_fold(const Instruction& place, std::vector<Instruction>& body) {
    const Value found = place.results[0];
    const std::string name = program_.values[found].name;
    const int64_t last = last_place(place);
    const DType dtype = last <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    Instruction fold = place;
    fold.reduce = place.reduce == ReduceOp::kArgMax ? ReduceOp::kMax : ReduceOp::kMin;
    fold.operands = {number(place.operands[0], name, body),
                     position(Index(last) - place_of(place), place, name + "_from_last", dtype, body)};
    fold.results = {appender_.value(name + "_extreme", {type(fold.operands[0]).dtype, type(found).lanes}),
                    appender_.value(name + "_left", {dtype, type(found).lanes})};
    const Value left = fold.results[1];
    body.push_back(std::move(fold));
    const Value end = constant(last, name + "_last", {dtype, {}}, body);
    if (type(found).dtype == dtype) return add_op(ScalarOp::kSub, {end, left}, found, body);
    const Value counted = appender_.value(name + "_counted", {dtype, type(found).lanes});
    add_op(ScalarOp::kSub, {end, left}, counted, body);
    add_op(ScalarOp::kCast, {counted}, found, body);
  }

  // The last of the fold's lanes varies fastest.
  Index place_of(const Instruction& fold) const {
    Index place;
    for (const tile::Symbol lane : fold.lanes)
      place = place * Index(tile::width_of(program_, lane)) + kernel::symbol_index(lane);
    return place;
  }

  int64_t last_place(const Instruction& fold) const {
    int64_t points = 1;
    for (const tile::Symbol lane : fold.lanes) points *= tile::width_of(program_, lane);
    return points - 1;
  }

  // Truths have no maximum.
  Value number(Value value, const std::string& name, std::vector<Instruction>& body) {
    if (type(value).dtype != DType::b1) return value;
    const Value whole = appender_.value(name + "_number", {DType::i32, type(value).lanes});
    add_op(ScalarOp::kCast, {value}, whole, body);
    return whole;
  }

  // With all lanes of what is folded.
  Value position(const Index& index, const Instruction& fold, const std::string& name, DType dtype,
                 std::vector<Instruction>& body) {
    const std::vector<tile::Symbol> lanes = type(fold.operands[0]).lanes;
    std::vector<tile::Symbol> own = lanes;
    std::erase_if(own, [&](tile::Symbol lane) { return !tile::has_lane(fold.lanes, lane); });
    const Value position = appender_.value(name, {dtype, own});
    Instruction one;
    one.kind = Kind::kIndex;
    one.index = index;
    one.results = {position};
    body.push_back(std::move(one));
    if (own == lanes) return position;
    const Value everywhere = constant(1, "everywhere", {DType::b1, lanes}, body);
    const Value broadcast = appender_.value(name, {dtype, lanes});
    add_op(ScalarOp::kSelect, {everywhere, position, constant(0, "nowhere", {dtype, {}}, body)}, broadcast, body);
    return broadcast;
  }

  Value constant(int64_t number, const std::string& name, tile::TileType type, std::vector<Instruction>& body) {
    Instruction one;
    one.kind = Kind::kConstant;
    one.integer = number;
    one.results = {appender_.value(name, std::move(type))};
    const Value value = one.results[0];
    body.push_back(std::move(one));
    return value;
  }

  static void add_op(ScalarOp op, std::vector<Value> operands, Value result, std::vector<Instruction>& body) {
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = std::move(operands);
    one.results = {result};
    body.push_back(std::move(one));
  }

  tile::Program& program_;
  Appender appender_;
};

}  // namespace

void fold_places_along(tile::Program& program) { PlaceFolds(program).rewrite(program.body); }

}  // namespace kw::lower
