#include "emit/cpu/tile_notes.hpp"

#include <algorithm>
#include <functional>

namespace kw::cpu {
namespace {

using kernel::ReduceOp;
using kernel::ScalarOp;
using lower::LoopStep;
using tile::Instruction;
using tile::Kind;
using tile::Value;

constexpr int64_t kLeastOfBlock = 1024;  // bytes of an array, below which it is no reason for blocks
constexpr size_t kLeastForms = 4;
constexpr int64_t kLeastApart = 16;  // elements: none of them share a line

std::string_view text_of(Reason reason) {
  switch (reason) {
    case Reason::kWideFold:
      return "// In double precision: neither the length of the row nor the order of its parts shows in the result.";
    case Reason::kExtendedSum: return "// In long double, rounded once: in double a sum of doubles would lose digits.";
    case Reason::kNanFlag: return "// Comparisons pass over NaN: a flag says whether one was met.";
    case Reason::kPlaces:
      return "// Places in a second walk: an extreme alone, and then the least place that has it, fit into SIMD lanes.";
    case Reason::kFirstElement:
      return "// Counted from the first element, if finite: squares of large numbers alike would cancel.";
    case Reason::kShortCounter: return "// Counted in 32 bits: a SIMD register has twice as many places as of 64.";
    case Reason::kLoopEnds: return "// Begins and ends where masks do: no element is asked whether it is inside.";
    case Reason::kWholeVectors:
      return "// On to whole vectors, masked: the last elements one by one would cost as much as all before.";
    case Reason::kDataEnd: return "// The data say where it ends: what lies behind is not met.";
    case Reason::kScratch: return "// More than a thread's stack may have room for.";
    case Reason::kSpare:
      return "// Some elements more: arrays of whole half pages would share few lines of the nearest cache.";
    case Reason::kBlocks:
      return "// A block at a time: loops inside find in the core's cache what those before them left.";
    case Reason::kSquares:
      return "// In squares: the lines that a row crosses are still in the cache when the next one does.";
    case Reason::kTransposed: return "// Turned in squares: down its columns each element would take a cache line.";
    case Reason::kRowsAtOnce: return "// Rows side by side: a step of one need not wait for the step before it.";
    case Reason::kLateStores:
      return "// Stores come last: a load behind one to the same place of another page would wait for it.";
    case Reason::kRefused: return "// Nothing is stored behind a refused index: it may be a place that nobody named.";
    case Reason::kOwners:
      return "// Each owner stores at its own places, in order: results are the same at every call.";
    case Reason::kUneven: return "// Blocks differ in work: a thread that is done takes the next one.";
    case Reason::kSharedForms:
      return "// Winograd: neighbouring results share these products of sums and differences, fewer than each by "
             "itself.";
    case Reason::kOnlyWhere: return "// The data say which blocks need these products: the others are done here.";
  }
  return "";
}

bool is_op(const Instruction* one, ScalarOp op) { return one && one->kind == Kind::kOp && one->op == op; }

bool is_array(const lower::TilePlace& place) {
  return place.home == lower::Home::kStack || place.home == lower::Home::kScratch;
}

}  // namespace

Notes::Notes(const tile::Program& program, const lower::LoopPlan& plan)
    : program_(program), plan_(plan), makers_(program.values.size()) {
  tile::for_each(program.body, [&](const Instruction& one) {
    order_.emplace(&one, static_cast<int>(order_.size()));
    if (one.kind != Kind::kFor && one.kind != Kind::kIf)
      for (const Value result : one.results) makers_[result] = &one;
  });
  find_forms(program.body);
  find_late_stores(plan.body);
}

std::string_view Notes::take(Reason reason) { return said_.insert(reason).second ? text_of(reason) : ""; }

bool Notes::is_widened(const Instruction& one) const {
  if ((one.reduce != ReduceOp::kSum && one.reduce != ReduceOp::kProd) ||
      program_.values[one.results[0]].type.dtype != DType::f64)
    return false;
  std::set<Value> seen;
  const std::function<bool(Value)> is_wide = [&](Value value) {
    const Instruction* made = maker(value);
    if (!made || made->kind != Kind::kOp || !seen.insert(value).second) return false;
    const DType from = program_.values[made->operands[0]].type.dtype;
    if (made->op == ScalarOp::kCast && is_floating(from)) return from != DType::f64;
    return std::any_of(made->operands.begin(), made->operands.end(), is_wide);
  };
  return is_wide(one.operands[0]);
}

bool Notes::finds_place(const Instruction& fold) const {
  if (fold.kind != Kind::kFold || fold.reduce != ReduceOp::kMin) return false;
  const Instruction* chosen = maker(fold.operands[0]);
  if (!is_op(chosen, ScalarOp::kSelect)) return false;
  const auto is_place = [&](Value value) {
    const Instruction* made = maker(value);
    return made && made->kind == Kind::kIndex;
  };
  const std::function<bool(Value)> is_extreme = [&](Value value) {
    const Instruction* made = maker(value);
    if (is_op(made, ScalarOp::kLogicalOr)) return is_extreme(made->operands[0]);
    if (!is_op(made, ScalarOp::kEqual)) return false;
    const Instruction* found = maker(made->operands[1]);
    return found && found->kind == Kind::kFold && (found->reduce == ReduceOp::kMax || found->reduce == ReduceOp::kMin);
  };
  return is_place(chosen->operands[1]) && is_extreme(chosen->operands[0]);
}

bool Notes::is_first_or_zero(const Instruction& one) const {
  if (!is_op(&one, ScalarOp::kSelect)) return false;
  const Instruction* is_finite = maker(one.operands[0]);
  if (!is_op(is_finite, ScalarOp::kEqual)) return false;
  const Instruction* nothing = maker(is_finite->operands[0]);
  return is_op(nothing, ScalarOp::kSub) && nothing->operands[0] == nothing->operands[1] &&
         nothing->operands[0] == one.operands[1];
}

bool Notes::reads_data(Value value) const {
  std::set<Value> seen;
  const std::function<bool(Value)> reads = [&](Value one) {
    const Instruction* made = maker(one);
    if (!made || !seen.insert(one).second) return false;
    return made->kind == Kind::kLoad || std::any_of(made->operands.begin(), made->operands.end(), reads);
  };
  return reads(value);
}

bool Notes::is_form(Value value, std::set<const Instruction*>& loads) const {
  std::set<Value> seen;
  const std::function<bool(Value)> is_sum = [&](Value one) {
    const Instruction* made = maker(one);
    if (!is_op(made, ScalarOp::kAdd) && !is_op(made, ScalarOp::kSub)) return false;
    return std::all_of(made->operands.begin(), made->operands.end(), [&](Value operand) {
      if (!seen.insert(operand).second) return true;
      const Instruction* read = maker(operand);
      if (!read || read->kind != Kind::kLoad) return is_sum(operand);
      loads.insert(read);
      return true;
    });
  };
  return is_sum(value);
}

void Notes::find_forms(const std::vector<Instruction>& body) {
  std::set<Value> forms;
  std::set<const Instruction*> dots, loads;
  bool shares = false;
  for (const Instruction& one : body) {
    find_forms(one.body);
    find_forms(one.otherwise_body);
    if (one.kind != Kind::kDot) continue;
    for (const size_t operand : {1, 2}) {
      std::set<const Instruction*> own;
      if (!is_form(one.operands[operand], own) || !forms.insert(one.operands[operand]).second) continue;
      shares = shares || std::any_of(own.begin(), own.end(), [&](const auto* load) { return loads.count(load) != 0; });
      loads.merge(own);
      dots.insert(&one);
    }
  }
  if (shares && dots.size() >= kLeastForms) with_forms_.merge(dots);
}

bool Notes::asks_data(const Instruction& branch) const {
  bool multiplies = false;
  tile::for_each(branch.body, [&](const Instruction& one) { multiplies = multiplies || one.kind == Kind::kDot; });
  return multiplies && branch.otherwise_body.empty() && reads_data(branch.operands[0]);
}

void Notes::find_late_stores(const std::vector<LoopStep>& steps) {
  int last_load = -1;
  for (const LoopStep& step : steps) {
    find_late_stores(step.body);
    find_late_stores(step.otherwise_body);
    if (!step.instruction) continue;
    const int place = order_.at(step.instruction);
    if (step.instruction->kind == Kind::kLoad) last_load = std::max(last_load, place);
    if (step.instruction->kind == Kind::kStore && last_load > place) late_.insert(step.instruction);
  }
}

bool Notes::fills_arrays(const Instruction& loop) const {
  if (loop.step <= 1) return false;
  std::set<Value> carried;
  for (const Value argument : loop.arguments) carried.insert(plan_.places[argument].storage);
  bool fills = false;
  tile::for_each(loop.body, [&](const Instruction& one) {
    for (const Value result : one.results) {
      const lower::TilePlace& place = plan_.places[result];
      if (!is_array(place) || carried.count(place.storage) != 0) continue;
      int64_t bytes = lower::held_bytes(program_.values[result].type.dtype);
      for (const tile::Symbol lane : place.lanes) bytes *= tile::width_of(program_, lane);
      fills = fills || bytes >= kLeastOfBlock;
    }
  });
  return fills;
}

bool Notes::crosses_lines(const Instruction& loop) const {
  bool crosses = false;
  if (loop.step <= 1) return false;
  tile::for_each(loop.body, [&](const Instruction& one) {
    if (one.kind != Kind::kLoad && one.kind != Kind::kStore) return;
    for (size_t lane = 0; lane < program_.symbols.size(); ++lane) {
      if (program_.symbols[lane].kind != tile::SymbolKind::kLane || !program_.symbols[lane].simd) continue;
      const auto stride = tile::stride_along(program_, one.access, static_cast<tile::Symbol>(lane));
      const auto elements = stride ? kernel::as_constant(*stride) : std::nullopt;
      crosses = crosses || (elements && *elements >= kLeastApart);
    }
  });
  return crosses;
}

}  // namespace kw::cpu
