#include "lower/loop_marks.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lower/shared_loops.hpp"

namespace kw::lower {
namespace {

using kernel::IndexFactor;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;

// Is the symbol in a quotient or remainder?
bool is_divided(const Index& index, Symbol symbol) {
  return std::any_of(index.terms.begin(), index.terms.end(), [&](const kernel::IndexTerm& term) {
    return std::any_of(term.factors.begin(), term.factors.end(), [&](const IndexFactor& factor) {
      return factor.kind != IndexFactor::Kind::kSymbol && kernel::uses(*factor.dividend, symbol);
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
  const auto parts = kernel::linear_in(tile::offset_of(program, access), lane);
  return parts && parts->coefficient == Index(1) && access.mask == kNoValue &&
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

}  // namespace

void mark_loops(const tile::Program& program, std::vector<LoopStep>& steps) {
  for (LoopStep& step : steps) {
    if (step.instruction && step.instruction->kind == Kind::kFor) {
      step.simd = step.instruction->simd;
      step.shared = shared_together(*step.instruction);
      step.is_short = step.simd &&
                      Counter(program, step.instruction->symbol).is_short(step.body, step.instruction->end);
    } else if (!step.instruction) {
      step.moves = moves(program, step);
      step.is_short = step.simd && program.symbols[step.lane].simd &&
                      Counter(program, step.lane).is_short(step.body, tile::width_of(program, step.lane));
    }
    mark_loops(program, step.body);
    mark_loops(program, step.otherwise_body);
  }
}

}  // namespace kw::lower
