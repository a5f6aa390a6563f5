#include "lower/unrolled_tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "kernel/scalar_values.hpp"
#include "lower/emission.hpp"
#include "support/error.hpp"

namespace kw::lower {
namespace {

using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Index;
using tile::Instruction;
using tile::kNoValue;
using tile::Kind;
using tile::Symbol;
using tile::TileType;
using tile::Value;
using Lanes = std::vector<Symbol>;

// A comparison of whole numbers in these ranges, where it is the same for all of them.
std::optional<bool> decided(ScalarOp op, const kernel::Interval& left, const kernel::Interval& right) {
  const auto less = [](const kernel::Interval& a, const kernel::Interval& b) -> std::optional<bool> {
    if (a.high < b.low) return true;
    return a.low >= b.high ? std::optional(false) : std::nullopt;
  };
  const auto negated = [](std::optional<bool> one) { return one ? std::optional(!*one) : one; };
  switch (op) {
    case ScalarOp::kLess: return less(left, right);
    case ScalarOp::kGreaterEqual: return negated(less(left, right));
    case ScalarOp::kGreater: return less(right, left);
    case ScalarOp::kLessEqual: return negated(less(right, left));
    default: return std::nullopt;
  }
}

class TakenApart {
 public:
  TakenApart(const tile::Program& program, std::span<const Symbol> lanes)
      : old_(program), lanes_(lanes.begin(), lanes.end()), program_(without_code()), emission_(program_) {}

  tile::Program run() {
    emit(old_.body);
    program_.body = emission_.finish();
    return std::move(program_);
  }

 private:
  using Point = std::vector<int64_t>;          // along each of the lanes; 0 where a value has none of them
  using Points = std::map<Point, Value>;       // of one value
  using Replaced = std::map<Symbol, int64_t>;  // loop variables that are numbers here

  [[noreturn]] void refuse(const std::string& what) const {
    ErrorText text;
    text.message = fmt::format("kernel '{}' cannot be scheduled so: {}", old_.name, what);
    text.hint = "An unrolled tile is computed point by point: give the axis another mapping.";
    text.code = "bad-schedule";
    throw Error(ErrorKind::kUser, std::move(text));
  }

  bool is_apart(Symbol lane) const { return std::find(lanes_.begin(), lanes_.end(), lane) != lanes_.end(); }
  Lanes apart_among(const Lanes& lanes) const {
    Lanes found;
    std::copy_if(lanes.begin(), lanes.end(), std::back_inserter(found), [&](Symbol lane) { return is_apart(lane); });
    return found;
  }
  const Lanes& lanes_of(Value value) const { return old_.values[value].type.lanes; }
  Lanes kept_of(Value value) const {
    Lanes kept;
    for (Symbol lane : lanes_of(value))
      if (!is_apart(lane)) kept.push_back(renumbered_.at(lane));
    return kept;
  }

  // --- Symbols: those that stay, in their order ---

  // Is it computed along one of the lanes, and unrolled?
  bool becomes_iterations(const Instruction& loop) const {
    if (loop.kind != Kind::kFor || !loop.unrolled) return false;
    bool along = false;
    tile::for_each(loop.body, [&](const Instruction& one) {
      for (Value result : one.results) along = along || !apart_among(lanes_of(result)).empty();
    });
    return along;
  }

  tile::Program without_code() {
    std::vector<bool> leaves(old_.symbols.size());
    for (Symbol lane : lanes_) leaves[lane] = true;
    for (const bool vanishes : {true, false})  // another loop may have the same variable, and stay
      tile::for_each(old_.body, [&](const Instruction& one) {
        if (one.kind == Kind::kFor && becomes_iterations(one) == vanishes) leaves[one.symbol] = vanishes;
      });
    tile::Program made;
    made.name = old_.name;
    made.doc = old_.doc;
    made.warps = old_.warps;
    made.max_registers = old_.max_registers;
    made.approximate = old_.approximate;
    for (size_t symbol = 0; symbol < old_.symbols.size(); ++symbol) {
      if (leaves[symbol]) continue;
      renumbered_[static_cast<Symbol>(symbol)] = static_cast<Symbol>(made.symbols.size());
      tile::SymbolInfo info = old_.symbols[symbol];
      info.count = renumber(info.count);
      made.symbols.push_back(std::move(info));
      ranges_ = tile::ranges_of(made);
    }
    for (tile::Buffer buffer : old_.buffers) {
      for (std::vector<Index>* sizes : {&buffer.shape, &buffer.strides})
        for (Index& size : *sizes) size = renumber(size);
      made.buffers.push_back(std::move(buffer));
    }
    for (Symbol symbol : old_.grid) made.grid.push_back(renumbered_.at(symbol));
    made.order = old_.order;
    if (made.order.grouped >= 0) made.order.grouped = renumbered_.at(made.order.grouped);
    if (made.order.along >= 0) made.order.along = renumbered_.at(made.order.along);
    return made;
  }

  // Over symbols that stay.
  Index renumber(const Index& index) const {
    return kernel::substitute(
        index, [&](Symbol symbol) { return kernel::symbol_index(renumbered_.at(symbol)); }, ranges_);
  }

  Index at(const Index& index, const Point& point) const {
    return kernel::substitute(
        index,
        [&](Symbol symbol) -> Index {
          if (const auto number = numbers_.find(symbol); number != numbers_.end()) return number->second;
          for (size_t lane = 0; lane < lanes_.size(); ++lane)
            if (lanes_[lane] == symbol) return point[lane];
          return kernel::symbol_index(renumbered_.at(symbol));
        },
        ranges_);
  }

  // --- Values at points ---

  // Calls visit(point) for all points along those of the lanes that are taken apart.
  template <typename Visit>
  void for_points(const Lanes& lanes, const Point& from, const Visit& visit, size_t place = 0) const {
    if (place == lanes_.size()) {
      visit(from);
      return;
    }
    const bool along = std::find(lanes.begin(), lanes.end(), lanes_[place]) != lanes.end();
    for (int64_t at = 0; at < (along ? tile::width_of(old_, lanes_[place]) : 1); ++at) {
      Point point = from;
      if (along) point[place] = at;
      for_points(lanes, point, visit, place + 1);
    }
  }
  template <typename Visit>
  void for_points(const Lanes& lanes, const Visit& visit) const {
    for_points(lanes, Point(lanes_.size()), visit);
  }

  Value at(Value value, Point point) const {
    if (value == kNoValue) return kNoValue;
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      if (std::find(lanes_of(value).begin(), lanes_of(value).end(), lanes_[lane]) == lanes_of(value).end())
        point[lane] = 0;
    return values_.at(value).at(point);
  }

  std::vector<Value> at(const std::vector<Value>& values, const Point& point) const {
    std::vector<Value> found;
    for (Value value : values) found.push_back(at(value, point));
    return found;
  }

  // With all the lanes that it had but those taken apart, though it is now the same along some.
  Value wide_at(Value value, const Point& point) { return emission_.broadcast(at(value, point), kept_of(value)); }

  tile::Access at(const tile::Access& access, const Point& point) const {
    tile::Access made = access;
    for (tile::Coordinate& coordinate : made.coordinates) {
      coordinate.index = at(coordinate.index, point);
      coordinate.value = at(coordinate.value, point);
    }
    made.mask = at(access.mask, point);
    if (made.mask != kNoValue && known_number(made.mask) == 1) made.mask = kNoValue;
    return made;
  }

  // --- What is known of values ---

  std::optional<int64_t> known_number(Value value) const {
    const auto found = indices_.find(value);
    return found == indices_.end() ? std::nullopt : kernel::as_constant(found->second);
  }

  Value constant(DType dtype, int64_t number, const Lanes& lanes = {}) {
    const Value value = emission_.constant({dtype, lanes}, static_cast<double>(number));
    indices_[value] = Index(number);
    return value;
  }

  // What it is where the operands are whole numbers of which enough is known, or one of them alone decides.
  std::optional<Value> folded(ScalarOp op, const std::vector<Value>& operands) {
    if (operands.size() != 2) return std::nullopt;
    if (op == ScalarOp::kLogicalAnd || op == ScalarOp::kLogicalOr) {
      for (size_t one = 0; one < 2; ++one)
        if (const auto known = known_number(operands[one]))
          return (*known != 0) == (op == ScalarOp::kLogicalAnd) ? operands[1 - one] : operands[one];
      return std::nullopt;
    }
    const auto left = indices_.find(operands[0]), right = indices_.find(operands[1]);
    if (left == indices_.end() || right == indices_.end()) return std::nullopt;
    const auto range = [&](const Index& index) { return kernel::range_of(index, ranges_); };
    const std::optional<bool> result = decided(op, range(left->second), range(right->second));
    return result ? std::optional(constant(DType::b1, *result ? 1 : 0)) : std::nullopt;
  }

  // --- Instructions ---

  void emit(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) emit(one);
  }

  void emit(const Instruction& one) {
    switch (one.kind) {
      case Kind::kFor: return becomes_iterations(one) ? unroll(one) : emit_for(one);
      case Kind::kStore: return emit_store(one);
      case Kind::kFold:
        if (!apart_among(one.lanes).empty()) return emit_fold(one);
        break;
      case Kind::kScan:
      case Kind::kRelabel:
      case Kind::kSplit:
      case Kind::kStack:
      case Kind::kUnstack:
        if (is_apart(one.from) || (one.kind == Kind::kRelabel && is_apart(one.to)))
          refuse(fmt::format("'{}' is computed along an unrolled tile", old_.values[one.results[0]].name));
        break;
      case Kind::kDot:
        for (Value operand : one.operands)
          if (!apart_among(lanes_of(operand)).empty())
            refuse(fmt::format("'{}' is a product along an unrolled tile", old_.values[one.results[0]].name));
        break;
      case Kind::kLoad:
        if (one.mode == tile::CopyMode::kBulk && !apart_among(lanes_of(one.results[0])).empty())
          refuse(fmt::format("'{}' is copied in bulk along an unrolled tile", old_.values[one.results[0]].name));
        break;
      case Kind::kConstant:
      case Kind::kIndex:
      case Kind::kOp: break;
      case Kind::kIf:
      case Kind::kCopy:
      case Kind::kWait:
      case Kind::kRelease:
      case Kind::kSkip:
      case Kind::kMove:
      case Kind::kDefine:
      case Kind::kBarrier: KW_ASSERT(false, "lowering has not made such an instruction yet");
    }
    for_points(lanes_of(one.results[0]), [&](const Point& point) {
      const std::vector<Value> made = emit_at(one, point);
      for (size_t result = 0; result < made.size(); ++result) values_[one.results[result]][point] = made[result];
    });
  }

  std::vector<Value> emit_at(const Instruction& one, const Point& point) {
    const std::string& name = old_.values[one.results[0]].name;
    const TileType type{old_.values[one.results[0]].type.dtype, kept_of(one.results[0])};
    Instruction made = one;
    made.results.clear();
    made.operands = at(one.operands, point);
    switch (one.kind) {
      case Kind::kConstant: {
        const Value value = emission_.add(std::move(made), {type}, name)[0];
        if (!is_floating(type.dtype)) indices_[value] = Index(one.integer);
        return {value};
      }
      case Kind::kIndex: {
        const Index index = at(one.index, point);
        const Value value = emission_.index(index, type.dtype);
        indices_[value] = index;
        return {value};
      }
      case Kind::kOp:
        if (const auto known = folded(one.op, made.operands)) return {*known};
        return {emission_.op(one.op, std::move(made.operands), type.dtype, name)};
      case Kind::kLoad: {
        made.access = at(one.access, point);
        const Lanes lanes = tile::lanes_of(program_, made.access);
        return {emission_.add(std::move(made), {{type.dtype, lanes}}, name)[0]};
      }
      default: break;
    }
    // Folds, scans and what else has its lanes named.
    made.operands.clear();
    for (Value operand : one.operands) made.operands.push_back(wide_at(operand, point));
    for (Symbol& lane : made.lanes) lane = renumbered_.at(lane);
    for (Symbol* lane : {&made.from, &made.to})
      if (*lane >= 0) *lane = renumbered_.at(*lane);
    std::vector<TileType> types;
    for (Value result : one.results) types.push_back({old_.values[result].type.dtype, kept_of(result)});
    return emission_.add(std::move(made), types, name);
  }

  // Point after point, and then along what lanes are left.
  void emit_fold(const Instruction& one) {
    const std::optional<ScalarOp> step = kernel::step_of(one.reduce);
    if (!step || one.results.size() > 1 || one.reduce == ReduceOp::kExtendedSum)
      refuse(fmt::format("a {} folds an unrolled tile", kernel::name_of(one.reduce)));
    const TileType& type = old_.values[one.results[0]].type;
    const std::string& name = old_.values[one.results[0]].name;
    for_points(lanes_of(one.results[0]), [&](const Point& kept) {
      Value total = kNoValue;
      for_points(apart_among(one.lanes), kept, [&](const Point& point) {
        const Value value = wide_at(one.operands[0], point);
        total = total == kNoValue ? value : emission_.op(*step, {total, value}, type.dtype, name);
      });
      Instruction rest = one;
      rest.results.clear();
      rest.operands = {total};
      rest.lanes.clear();
      for (Symbol lane : one.lanes)
        if (!is_apart(lane)) rest.lanes.push_back(renumbered_.at(lane));
      values_[one.results[0]][kept] = rest.lanes.empty()
                                          ? total
                                          : emission_.add(std::move(rest), {{type.dtype, kept_of(one.results[0])}},
                                                          name)[0];
    });
  }

  void emit_store(const Instruction& one) {
    Lanes lanes = tile::lanes_of(old_, one.access);
    for (Symbol lane : lanes_of(one.operands[0])) lanes.push_back(lane);
    for_points(lanes, [&](const Point& point) {
      Instruction made = one;
      made.access = at(one.access, point);
      if (made.access.mask != kNoValue && known_number(made.access.mask) == 0) return;
      made.operands = at(one.operands, point);
      emission_.add_here(std::move(made));
    });
  }

  void unroll(const Instruction& loop) {
    const auto begin = kernel::as_constant(loop.begin), end = kernel::as_constant(loop.end);
    KW_ASSERT(begin && end, "an unrolled loop between bounds that are not known");
    std::vector<Points> carried;
    for (Value operand : loop.operands) carried.push_back(values_.at(operand));
    const auto carry = [&](const std::vector<Value>& values) {
      for (size_t one = 0; one < values.size(); ++one) values_[values[one]] = carried[one];
    };
    const int64_t iterations = (*end - *begin + loop.step - 1) / loop.step;
    for (int64_t turn = 0; turn < iterations; ++turn) {
      numbers_[loop.symbol] = *begin + (loop.reversed ? iterations - 1 - turn : turn) * loop.step;
      carry(loop.arguments);
      emit(loop.body);
      for (size_t one = 0; one < carried.size(); ++one) carried[one] = values_.at(loop.yields[one]);
    }
    numbers_.erase(loop.symbol);
    carry(loop.results);
  }

  void emit_for(const Instruction& loop) {
    Instruction made = loop;
    if (loop.until != kNoValue) made.until = wide_at(loop.until, Point(lanes_.size()));
    made.symbol = renumbered_.at(loop.symbol);
    const Point nowhere(lanes_.size());
    made.begin = at(loop.begin, nowhere);
    made.end = at(loop.end, nowhere);
    for (std::vector<Value>* values : {&made.operands, &made.arguments, &made.yields, &made.results}) values->clear();
    const auto for_carried = [&](const std::vector<Value>& values, const auto& visit) {
      for (Value value : values) for_points(lanes_of(value), [&](const Point& point) { visit(value, point); });
    };
    const auto define = [&](const std::vector<Value>& values, std::vector<Value>& defined) {
      for_carried(values, [&](Value value, const Point& point) {
        const tile::ValueInfo& info = old_.values[value];
        defined.push_back(emission_.define(info.name, {info.type.dtype, kept_of(value)}));
        values_[value][point] = defined.back();
      });
    };
    for_carried(loop.operands,
                [&](Value value, const Point& point) { made.operands.push_back(wide_at(value, point)); });
    emission_.open(made.symbol);
    define(loop.arguments, made.arguments);
    emit(loop.body);
    for_carried(loop.yields, [&](Value value, const Point& point) { made.yields.push_back(wide_at(value, point)); });
    made.body = emission_.close();
    define(loop.results, made.results);
    emission_.add_here(std::move(made));
  }

  const tile::Program& old_;
  const Lanes lanes_;
  std::map<Symbol, Symbol> renumbered_;  // symbols that stay
  std::vector<kernel::SymbolRange> ranges_;
  tile::Program program_;
  Emission emission_;
  std::map<Value, Points> values_;  // [value of the old program]
  std::map<Value, Index> indices_;  // what whole numbers of the new program are
  Replaced numbers_;
};

}  // namespace

tile::Program take_apart(const tile::Program& program, std::span<const Symbol> lanes) {
  return TakenApart(program, lanes).run();
}

}  // namespace kw::lower
