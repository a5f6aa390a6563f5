#include "lower/loop_marks.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lower/fold_parts.hpp"
#include "lower/loop_tree.hpp"
#include "lower/products.hpp"
#include "lower/shared_loops.hpp"
#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using kernel::IndexFactor;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;

// Is the symbol in a quotient, a remainder or a minimum?
bool is_divided(const Index& index, Symbol symbol) {
  return std::any_of(index.terms.begin(), index.terms.end(), [&](const kernel::IndexTerm& term) {
    return std::any_of(term.factors.begin(), term.factors.end(), [&](const IndexFactor& factor) {
      return factor.kind != IndexFactor::Kind::kSymbol &&
             (kernel::uses(*factor.dividend, symbol) || kernel::uses(*factor.divisor, symbol));
    });
  });
}

// What places along a loop are made of.
class Counter {
 public:
  Counter(const tile::Program& program, Symbol symbol)
      : program_(program), symbol_(symbol), ranges_(tile::ranges_of(program)) {}

  // Gathers by 32-bit places take twice as many elements at once, and so does what computes with such places.
  bool is_short(const std::vector<LoopStep>& body, const Index& end) {
    fits_ = kernel::range_of(end, ranges_).high <= std::numeric_limits<int32_t>::max();
    look_at(body);
    return (divides_ || computes_) && fits_;
  }

 private:
  void look_at(const std::vector<LoopStep>& body) {
    for (const LoopStep& step : body) {
      look_at(step.body);
      look_at(step.otherwise_body);
      if (!step.instruction) continue;
      const Instruction& one = *step.instruction;
      if (one.kind == Kind::kIndex) {
        look_at(one.index);
        const bool is_narrow = program_.values[one.results[0]].type.dtype == DType::i32;
        computes_ = computes_ || (is_narrow && kernel::uses(one.index, symbol_));
      }
      if (one.kind == Kind::kLoad || one.kind == Kind::kStore) look_at(tile::offset_of(program_, one.access));
    }
  }

  void look_at(const Index& index) {
    divides_ = divides_ || is_divided(index, symbol_);
    Index along;  // the terms that depend on the loop
    for (const kernel::IndexTerm& term : index.terms) {
      Index one;
      one.terms = {term};
      if (kernel::uses(one, symbol_)) along = along + one;
    }
    const kernel::Interval range = kernel::range_of(along, ranges_);
    fits_ = fits_ && range.low >= std::numeric_limits<int32_t>::min() &&
            range.high <= std::numeric_limits<int32_t>::max();
  }

  const tile::Program& program_;
  const Symbol symbol_;
  std::vector<kernel::SymbolRange> ranges_;
  bool divides_ = false;   // are there quotients or remainders?
  bool computes_ = false;  // are places values of 32 bits?
  bool fits_ = true;
};

bool is_side_by_side(const tile::Program& program, const tile::Access& access, Symbol lane) {
  return tile::stride_along(program, access, lane) == Index(1) && access.mask == kNoValue &&
         std::all_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const tile::Coordinate& at) { return at.value == kNoValue; });
}

// Does the loop over a lane only load and store what lies side by side, as it is?
bool moves(const tile::Program& program, const LoopStep& loop) {
  bool stores = false;
  for (const LoopStep& step : loop.body) {
    if (!step.instruction) return false;
    const Instruction& one = *step.instruction;
    if ((one.kind != Kind::kLoad && one.kind != Kind::kStore) || one.combines || one.mode != tile::CopyMode::kPlain ||
        !is_side_by_side(program, one.access, loop.lane))
      return false;
    stores = stores || one.kind == Kind::kStore;
  }
  return stores && std::all_of(loop.body.begin(), loop.body.end(), [&](const LoopStep& step) {
           if (step.instruction->kind != Kind::kStore) return true;
           return std::any_of(loop.body.begin(), loop.body.end(), [&](const LoopStep& load) {
             return load.instruction->kind == Kind::kLoad &&
                    load.instruction->results[0] == step.instruction->operands[0] &&
                    program.buffers[load.instruction->access.buffer].dtype ==
                        program.buffers[step.instruction->access.buffer].dtype;
           });
         });
}

// Can the iterations of a loop over the lane be done side by side?
bool is_vectorisable(const tile::Program& program, const Instruction& one, Symbol lane) {
  switch (one.kind) {
    case Kind::kScan: return is_simple_scan(one) && one.from != lane;
    case Kind::kFold:
      if (folds_along(one) && tile::has_lane(one.lanes, lane)) return false;
      return one.reduce != tile::ReduceOp::kExtendedSum && !is_narrow_float(program.values[one.operands[0]].type.dtype);
    case Kind::kOp: return one.op != tile::ScalarOp::kBounded;
    case Kind::kStore:
      // Data may send two points to one element, but for those that are side by side where there is an order.
      return one.in_order || (!one.combines && !tile::is_decided_by_data(one.access));
    default: return true;
  }
}

bool uses_grid(const tile::Program& program, const Index& index) {
  std::vector<bool> used;
  collect_symbols(index, used);
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && program.symbols[symbol].kind == tile::SymbolKind::kGrid) return true;
  return false;
}

// Do loops end where a block's position says, or do only some blocks do all the work?
bool is_uneven(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kFor)
      found = found || uses_grid(program, one.begin) || uses_grid(program, one.end) || one.until != kNoValue;
    if (one.kind == Kind::kIf) found = true;
  });
  return found;
}

class Marker {
 public:
  Marker(const tile::Program& program, const LoopPlan& plan) : program_(program), plan_(plan) {}

  // `shares_lane`: threads share a lane around.
  void mark(std::vector<LoopStep>& steps, bool shares_lane = false) const {
    for (LoopStep& step : steps) {
      if (!step.instruction) mark_lane(step, shares_lane);
      else if (step.instruction->kind == Kind::kFor) mark_for(step);
      else if (step.instruction->kind == Kind::kDot) step.product = product_of(program_, plan_, *step.instruction);
      mark(step.body, shares_lane || (!step.instruction && step.shared > 0));
      mark(step.otherwise_body, shares_lane);
    }
  }

 private:
  static constexpr int kRowsAtOnce = 8;

  void mark_for(LoopStep& step) const {
    step.simd = step.instruction->simd;
    step.shared = shared_together(*step.instruction);
    step.is_short = step.simd && Counter(program_, step.instruction->symbol).is_short(step.body, step.instruction->end);
  }

  void mark_lane(LoopStep& step, bool shares_lane) const {
    step.simd = std::all_of(step.body.begin(), step.body.end(), [&](const LoopStep& inner) {
      return inner.instruction && is_vectorisable(program_, *inner.instruction, step.lane);
    });
    if (step.simd && is_across_walk(step)) {
      step.simd = false;
      step.unroll = kRowsAtOnce;
    }
    step.moves = moves(program_, step);
    step.transposes = transposes(step);
    const bool may_share = program_.symbols[step.lane].shared && !folds_along(step.body, step.lane);
    step.shared = may_share && !shares_lane && !step.moves ? 1 : 0;
    step.is_short = step.simd && program_.symbols[step.lane].simd &&
                    Counter(program_, step.lane).is_short(step.body, tile::width_of(program_, step.lane));
  }

  // Does the loop load, with the one inside, what lies side by side along it to where the other's points do? Bytes may
  // be converted on the way.
  bool transposes(const LoopStep& outer) const {
    if (outer.body.size() != 1 || outer.body[0].instruction || outer.body[0].body.empty()) return false;
    const LoopStep& inner = outer.body[0];
    const auto is_plain = [](const LoopStep& loop) {
      return loop.begins.empty() && loop.ends.empty() && loop.declared.empty() && !loop.whole_vectors && !loop.reversed;
    };
    const auto is_single = [](const LoopStep& step) { return step.instruction && step.declared.empty(); };
    if (!is_plain(outer) || !is_plain(inner) || !std::all_of(inner.body.begin(), inner.body.end(), is_single))
      return false;
    const Instruction &load = *inner.body.front().instruction, &last = *inner.body.back().instruction;
    if (load.kind != Kind::kLoad || load.mode != tile::CopyMode::kPlain || last.results.size() != 1) return false;
    const DType loaded = program_.values[load.results[0]].type.dtype;
    const bool is_byte = loaded == DType::i8 || loaded == DType::u8;
    const bool converts = inner.body.size() == 2 && is_byte && last.kind == Kind::kOp &&
                          last.op == kernel::ScalarOp::kCast && last.operands[0] == load.results[0] &&
                          plan_.places[load.results[0]].lanes.empty();
    const Value made = last.results[0];
    const TilePlace& place = plan_.places[made];
    if (program_.values[made].type.dtype != DType::f32 || (inner.body.size() > 1 && !converts) ||
        !tile::has_lane(place.lanes, outer.lane) || stride_of(program_, place, inner.lane) != 1 ||
        !is_side_by_side(program_, load.access, outer.lane))
      return false;
    const auto across = tile::stride_along(program_, load.access, inner.lane);
    return across && *across != Index(0) && !kernel::uses(*across, outer.lane);
  }

  // Is something taken along the lane? Shares of it are not folded together.
  static bool folds_along(const std::vector<LoopStep>& steps, Symbol lane) {
    return std::any_of(steps.begin(), steps.end(), [&](const LoopStep& step) {
      if (step.instruction && lower::folds_along(*step.instruction) && tile::has_lane(step.instruction->lanes, lane))
        return true;
      return folds_along(step.body, lane) || folds_along(step.otherwise_body, lane);
    });
  }

  // Rows of a walk that goes along them in memory: side by side they would be gathered.
  bool is_across_walk(const LoopStep& loop) const {
    return std::any_of(loop.body.begin(), loop.body.end(), [&](const LoopStep& step) {
      return is_simple_scan(*step.instruction) && plan_.ranks[step.instruction->from] > plan_.ranks[loop.lane];
    });
  }

  const tile::Program& program_;
  const LoopPlan& plan_;
};

}  // namespace

void mark_loops(const tile::Program& program, LoopPlan& plan) {
  Marker(program, plan).mark(plan.body);
  find_parts(program, plan.body);
  plan.is_uneven = is_uneven(program);
}

}  // namespace kw::lower
