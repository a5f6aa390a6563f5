#include "lower/repeated.hpp"

#include <algorithm>
#include <set>

#include "lower/lane_bounds.hpp"
#include "lower/loop_plan.hpp"
#include "lower/loop_tree.hpp"
#include "lower/memory_operands.hpp"
#include "lower/walks.hpp"
#include "kernel/operations.hpp"

namespace kw::lower {
namespace {

using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

bool is_cheap(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kNeg:
    case ScalarOp::kMinimum:
    case ScalarOp::kMaximum:
    case ScalarOp::kBitAnd:
    case ScalarOp::kBitOr:
    case ScalarOp::kBitXor:
    case ScalarOp::kBitNot: return true;
    default: return kernel::is_predicate(op);
  }
}

// In programs of loops that fold: what reads memory and computes little is done again in every loop over what is folded
// that needs it. An array would be written and read for it. What is computed of columns that are folded side by side
// does not vary along what is folded, and is computed once, before the loop over that.
class FoldedValues {
 public:
  FoldedValues(const tile::Program& program, const std::vector<int>& ranks, std::vector<bool>& repeated)
      : program_(program),
        ranks_(ranks),
        repeated_(repeated),
        definers_(program.values.size()),
        stored_(program.buffers.size()) {}

  void find() {
    bool folds = false, carries = false;
    tile::for_each(program_.body, [&](const Instruction& one) {
      folds = folds || one.kind == Kind::kFold;
      if (one.kind == Kind::kFold) folded_.insert(one.lanes.begin(), one.lanes.end());
      const bool maps = one.kind == Kind::kFor ? one.arguments.empty() : one.results.empty() || one.results.size() == 1;
      const bool whole = one.kind == Kind::kScan || one.kind == Kind::kDot || one.kind == Kind::kRelabel ||
                         one.kind == Kind::kSplit || one.kind == Kind::kIf;
      carries = carries || !maps || whole;
      if (one.kind == Kind::kStore) stored_[one.access.buffer] = true;
      if (one.results.size() == 1) definers_[one.results[0]] = &one;
    });
    if (!program_.grid.empty() || !folds || carries) return;
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.results.size() == 1 && !repeated_[one.results[0]] && may_repeat(one)) repeated_[one.results[0]] = true;
    });
  }

 private:
  static constexpr int kWorthKeeping = 8;
  static constexpr int64_t kKeptBytes = 1024 * 1024;  // in the caches of a core

  bool may_repeat(const Instruction& one) {
    const Value value = one.results[0];
    const bool loads = one.kind == Kind::kLoad && one.mode == tile::CopyMode::kPlain && !stored_[one.access.buffer];
    const bool computes = one.kind == Kind::kOp && one.op != ScalarOp::kBounded;
    if (program_.values[value].type.lanes.empty() || (!loads && !computes)) return false;
    if (computes && is_of_columns(program_.values[value].type.lanes)) return false;
    std::set<Value> seen;
    if (cost(value, seen) < kWorthKeeping) return true;
    int64_t bytes = held_bytes(program_.values[value].type.dtype);
    for (Symbol lane : program_.values[value].type.lanes) bytes *= tile::width_of(program_, lane);
    if (bytes > room_) return true;
    room_ -= bytes;
    return false;
  }

  // Would a loop around those over its lanes compute it again?
  bool is_of_columns(const std::vector<Symbol>& lanes) const {
    return std::any_of(folded_.begin(), folded_.end(), [&](Symbol folded) {
      const auto is_inside = [&](Symbol lane) { return ranks_[lane] > ranks_[folded]; };
      return !tile::has_lane(lanes, folded) && std::any_of(lanes.begin(), lanes.end(), is_inside);
    });
  }

  // With what it needs inside the loop.
  int cost(Value value, std::set<Value>& seen) const {
    const Instruction* one = definers_[value];
    if (!one || !seen.insert(value).second || program_.values[value].type.lanes.empty()) return 0;
    int sum = one->kind == Kind::kLoad ? 1 : one->kind == Kind::kOp ? kernel::vector_instructions_of(one->op) : 0;
    for_each_use(*one, [&](Value operand, Use) {
      if (repeated_[operand]) sum += cost(operand, seen);
    });
    return sum;
  }

  const tile::Program& program_;
  const std::vector<int>& ranks_;
  std::vector<bool>& repeated_;
  std::vector<const Instruction*> definers_;  // [value]
  std::vector<bool> stored_;                  // [buffer]
  std::set<Symbol> folded_;
  int64_t room_ = kKeptBytes;
};

class RepeatedPlaces {
 public:
  RepeatedPlaces(const tile::Program& program, const std::vector<bool>& is_repeated)
      : program_(program),
        is_repeated_(is_repeated),
        masks_(program),
        definers_(program.values.size()),
        bodies_(program.values.size()) {
    note(program.body);
  }

  // `known`: comparisons that hold in all iterations.
  void place(std::vector<LoopStep>& block, const std::set<Symbol>& open, std::set<Value> there,
             const std::set<Value>& known) {
    std::vector<LoopStep> result;
    for (LoopStep& step : block) {
      std::set<Value> needed;
      add_needed(step, known, needed);
      for (Value value : needed)
        if (is_open(value, open)) put(value, known, there, result);
      enter(step, open, there, known);
      result.push_back(std::move(step));
    }
    block = std::move(result);
  }

  void open_body(const std::vector<Instruction>& body) { open_bodies_.insert(&body); }

 private:
  void note(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) {
      for (Value value : one.results) definers_[value] = &one, bodies_[value] = &body;
      note(one.body);
      note(one.otherwise_body);
    }
  }

  // After its operands.
  void put(Value value, const std::set<Value>& known, std::set<Value>& there, std::vector<LoopStep>& block) const {
    if (!is_repeated_[value] || definers_[value]->kind == Kind::kConstant || !there.insert(value).second) return;
    for (Value input : masks_.inputs_of(*definers_[value], known)) put(input, known, there, block);
    LoopStep own;
    own.instruction = definers_[value];
    block.push_back(std::move(own));
  }

  void enter(LoopStep& step, std::set<Symbol> open, const std::set<Value>& there, std::set<Value> known) {
    if (!step.instruction) {
      open.insert(step.lane);
      known.insert(step.known.begin(), step.known.end());
      return place(step.body, open, there, known);
    }
    known.insert(step.known.begin(), step.known.end());
    for (auto [block, body] : {std::pair{&step.body, &step.instruction->body},
                               std::pair{&step.otherwise_body, &step.instruction->otherwise_body}}) {
      open_bodies_.insert(body);
      place(*block, open, there, known);
      open_bodies_.erase(body);
    }
  }

  bool is_open(Value value, const std::set<Symbol>& open) const {
    const std::vector<Symbol>& lanes = program_.values[value].type.lanes;
    return open_bodies_.count(bodies_[value]) &&
           std::all_of(lanes.begin(), lanes.end(), [&](Symbol lane) { return open.count(lane) != 0; });
  }

  void add_needed(const LoopStep& step, std::set<Value> known, std::set<Value>& needed) const {
    for (const LaneBound& bound : step.ends) {
      std::set<Value> seen;
      if (bound.value != tile::kNoValue) add(bound.value, known, seen, needed);
    }
    known.insert(step.known.begin(), step.known.end());
    if (step.instruction) {
      std::set<Value> seen;
      for (Value input : masks_.inputs_of(*step.instruction, known)) add(input, known, seen, needed);
    }
    for (const LoopStep& inner : step.body) add_needed(inner, known, needed);
    for (const LoopStep& inner : step.otherwise_body) add_needed(inner, known, needed);
  }

  void add(Value value, const std::set<Value>& known, std::set<Value>& seen, std::set<Value>& needed) const {
    if (!is_repeated_[value] || definers_[value]->kind == Kind::kConstant || !seen.insert(value).second) return;
    needed.insert(value);
    for (Value input : masks_.inputs_of(*definers_[value], known)) add(input, known, seen, needed);
  }

  const tile::Program& program_;
  const std::vector<bool>& is_repeated_;
  const Masks masks_;
  std::vector<const Instruction*> definers_;             // [value]
  std::vector<const std::vector<Instruction>*> bodies_;  // [value] of its definer
  std::set<const std::vector<Instruction>*> open_bodies_;
};

}  // namespace

std::vector<bool> find_repeated(const tile::Program& program, const std::vector<int>& ranks) {
  std::vector<bool> whole(program.values.size()), started(program.values.size()), result(program.values.size()),
      is_constant(program.values.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kConstant) is_constant[one.results[0]] = true;
    for_each_use(one, [&](Value value, Use use) {
      if (use == Use::kWhole) whole[value] = true;
      if (use == Use::kStart) started[value] = true;
    });
  });
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.results.size() != 1 || whole[one.results[0]]) return;
    const Value value = one.results[0];
    if (one.kind == Kind::kConstant) result[value] = true;
    if (one.kind == Kind::kIndex) result[value] = !started[value];
    const bool is_broadcast = one.kind == Kind::kOp && one.op == ScalarOp::kSelect && is_constant[one.operands[0]];
    if (one.kind != Kind::kOp || (!is_cheap(one.op) && !is_broadcast) || started[value]) return;
    result[value] = std::all_of(one.operands.begin(), one.operands.end(), [&](Value operand) {
      return result[operand] && !is_floating(program.values[operand].type.dtype);
    });
  });
  FoldedValues(program, ranks, result).find();
  const std::vector<bool> in_walks = find_walks(program).is_repeated, in_memory = find_memory_operands(program);
  for (size_t value = 0; value < in_walks.size(); ++value)
    if (in_walks[value] || in_memory[value]) result[value] = true;
  return result;
}

void place_repeated(const tile::Program& program, const std::vector<bool>& is_repeated, std::vector<LoopStep>& body) {
  RepeatedPlaces places(program, is_repeated);
  places.open_body(program.body);
  places.place(body, {}, {}, {});
}

}  // namespace kw::lower
