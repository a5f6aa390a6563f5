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

// What places along the loop are made of, with `divides` where they have quotients or remainders.
class Counter {
 public:
  Counter(const tile::Program& program, const Instruction& loop)
      : program_(program), loop_(loop), ranges_(tile::ranges_of(program)) {}

  // Gathers by 32-bit places take twice as many elements at once.
  bool is_short() {
    fits_ = kernel::range_of(loop_.end, ranges_).high <= std::numeric_limits<int32_t>::max();
    tile::for_each(loop_.body, [&](const Instruction& one) {
      if (one.kind == Kind::kIndex) look_at(one.index);
      if (one.kind == Kind::kLoad || one.kind == Kind::kStore) look_at(tile::offset_of(program_, one.access));
    });
    return divides_ && fits_;
  }

 private:
  void look_at(const Index& index) {
    divides_ = divides_ || is_divided(index, loop_.symbol);
    Index along;  // the terms that hang on the loop
    for (const kernel::IndexTerm& term : index.terms) {
      Index one;
      one.terms = {term};
      if (kernel::uses(one, loop_.symbol)) along = along + one;
    }
    const kernel::Interval range = kernel::range_of(along, ranges_);
    fits_ = fits_ && range.low >= std::numeric_limits<int32_t>::min() &&
            range.high <= std::numeric_limits<int32_t>::max();
  }

  const tile::Program& program_;
  const Instruction& loop_;
  std::vector<kernel::SymbolRange> ranges_;
  bool divides_ = false, fits_ = true;
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
      step.is_short = step.instruction->simd && Counter(program, *step.instruction).is_short();
    } else if (!step.instruction) {
      step.moves = moves(program, step);
    }
    mark_loops(program, step.body);
    mark_loops(program, step.otherwise_body);
  }
}

}  // namespace kw::lower
