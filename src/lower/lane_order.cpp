#include "lower/lane_order.hpp"

#include <algorithm>
#include <set>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using Lanes = std::vector<Symbol>;

class LaneOrder {
 public:
  explicit LaneOrder(const tile::Program& program)
      : program_(program), scores_(program.symbols.size()), before_(program.symbols.size()) {}

  std::vector<int> run() {
    visit(program_.body, 1.0);
    std::vector<int> ranks(program_.symbols.size(), -1);
    Lanes left;
    for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
      if (program_.symbols[symbol].kind == tile::SymbolKind::kLane) left.push_back(static_cast<Symbol>(symbol));
    for (int rank = 0; !left.empty(); ++rank) {
      const Symbol next = next_of(left);
      ranks[next] = rank;
      std::erase(left, next);
    }
    return ranks;
  }

 private:
  // What a loop's body does counts as often as the loop is taken to run.
  static constexpr double kIterations = 8.0;

  void visit(const std::vector<Instruction>& body, double times) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kLoad || one.kind == Kind::kStore || one.kind == Kind::kCopy) count(one, times);
      if (one.kind == Kind::kDot) put_column_last(one);
      visit(one.body, one.kind == Kind::kFor ? times * kIterations : times);
      visit(one.otherwise_body, times);
    }
  }

  void count(const Instruction& one, double times) {
    const tile::Index offset = tile::offset_of(program_, one.access);
    const Lanes lanes = tile::lanes_of(program_, offset);
    for (Symbol lane : lanes) times *= static_cast<double>(tile::width_of(program_, lane));
    for (Symbol lane : lanes) {
      const auto parts = kernel::linear_in(offset, lane);
      if (parts && parts->coefficient == tile::Index(1)) scores_[lane] += times;
    }
  }

  void put_column_last(const Instruction& dot) {
    const Symbol column = column_of(program_, dot);
    if (column < 0) return;
    for (tile::Value operand : dot.operands)
      for (Symbol lane : program_.values[operand].type.lanes)
        if (lane != column && !is_before(column, lane)) before_[column].insert(lane);
  }

  // Does the order have `first` before `second` already?
  bool is_before(Symbol first, Symbol second) const {
    return std::any_of(before_[second].begin(), before_[second].end(),
                       [&](Symbol one) { return one == first || is_before(first, one); });
  }

  Symbol next_of(const Lanes& left) const {
    Symbol best = -1;
    for (Symbol lane : left) {
      const bool waits = std::any_of(before_[lane].begin(), before_[lane].end(),
                                     [&](Symbol one) { return tile::has_lane(left, one); });
      if (!waits && (best < 0 || is_outside(lane, best))) best = lane;
    }
    return best;
  }

  bool is_outside(Symbol left, Symbol right) const {
    const bool left_simd = program_.symbols[left].simd, right_simd = program_.symbols[right].simd;
    return left_simd != right_simd ? right_simd : scores_[left] < scores_[right];
  }

  const tile::Program& program_;
  std::vector<double> scores_;            // [symbol] elements of dense accesses along it
  std::vector<std::set<Symbol>> before_;  // [symbol] lanes that come before it
};

}  // namespace

Symbol column_of(const tile::Program& program, const Instruction& dot) {
  const auto lanes = [&](size_t operand) -> const Lanes& { return program.values[dot.operands[operand]].type.lanes; };
  for (size_t i = lanes(0).size(); i-- > 0;)
    if (tile::has_lane(lanes(1), lanes(0)[i]) != tile::has_lane(lanes(2), lanes(0)[i])) return lanes(0)[i];
  return -1;
}

std::vector<int> rank_lanes(const tile::Program& program) { return LaneOrder(program).run(); }

}  // namespace kw::lower
