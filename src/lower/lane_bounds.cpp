#include "lower/lane_bounds.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "kernel/scalar_values.hpp"
#include "lower/loop_tree.hpp"

namespace kw::lower {
namespace {

using kernel::ScalarOp;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;

// A comparison as place + value >= 0; without a value, place >= 0.
struct Condition {
  Index place;
  Value value = kNoValue;
  Value comparison = kNoValue;
  bool is_like(const Condition& other) const { return place == other.place && value == other.value; }
};

constexpr int64_t kLanes = 16;  // of whole vectors

class LaneBounder {
 public:
  LaneBounder(const tile::Program& program, const tile::LaneEnds& ends, const std::vector<bool>& is_repeated,
              const std::vector<LoopStep>& steps)
      : program_(program), is_repeated_(is_repeated), masks_(program), ranges_(tile::ranges_of(program)) {
    for (const auto& [place, end] : ends)
      if (end.whole_vectors) whole_.insert(place.first);
    count_uses(steps, uses_);
  }

  void visit(std::vector<LoopStep>& steps, const Lanes& open) {
    for (LoopStep& step : steps) {
      Lanes inside = open;
      if (!step.instruction) {
        if (whole_.count(step.lane) == 0) bound(step, open);
        inside.push_back(step.lane);
      } else if (step.instruction->until != kNoValue && step.instruction->step == 1) {
        note_end(*step.instruction, step.known);
      }
      visit(step.body, inside);
      visit(step.otherwise_body, inside);
    }
  }

 private:
  // What a loop does.
  struct Work {
    std::vector<const Instruction*> folds;  // into what is there before
    std::set<const Instruction*> begun;     // folds inside
    std::vector<Value> made;
    bool only_folds = true;
  };

  void look_at(const LoopStep& loop, Work& work) const {
    for (const LoopStep& step : loop.body) {
      if (!step.instruction) {
        for (const BegunFold& begun : step.folds) work.begun.insert(begun.fold);
        look_at(step, work);
        continue;
      }
      const Instruction& one = *step.instruction;
      if (one.kind == Kind::kFold && work.begun.count(&one) == 0) work.folds.push_back(&one);
      else work.made.insert(work.made.end(), one.results.begin(), one.results.end());
      const bool maps = one.kind == Kind::kConstant || one.kind == Kind::kIndex || one.kind == Kind::kOp ||
                        one.kind == Kind::kLoad;
      work.only_folds = work.only_folds && (maps || one.kind == Kind::kFold);
    }
  }

  // [value] In how many steps it is read, also by what is computed again there.
  void count_uses(const std::vector<LoopStep>& steps, std::map<Value, int>& uses) const {
    for (const LoopStep& step : steps) {
      std::set<Value> read;
      if (step.instruction) collect_read(*step.instruction, read);
      for (Value value : read) ++uses[value];
      count_uses(step.body, uses);
      count_uses(step.otherwise_body, uses);
    }
  }

  void collect_read(const Instruction& one, std::set<Value>& read) const {
    for_each_use(one, [&](Value value, Use) {
      if (read.insert(value).second && is_repeated_[value]) collect_read(*masks_.definer(value), read);
    });
  }

  void bound(LoopStep& loop, const Lanes& open) const {
    Work work;
    look_at(loop, work);
    if (!work.only_folds || work.folds.empty()) return;
    std::map<Value, int> used;
    count_uses(loop.body, used);
    const bool is_own = std::all_of(work.made.begin(), work.made.end(), [&](Value value) {
      const auto found = uses_.find(value);
      return found == uses_.end() || used[value] == found->second;
    });
    if (!is_own) return;
    std::vector<Condition> all = conditions_of(*work.folds[0]), common = all;
    for (size_t i = 1; i < work.folds.size(); ++i) {
      const std::vector<Condition> own = conditions_of(*work.folds[i]);
      std::erase_if(common, [&](const Condition& one) { return !has_like(own, one); });
      all.insert(all.end(), own.begin(), own.end());
    }
    for (const Condition& one : common)
      if (add_bound(one, loop, open))
        for (const Condition& other : all)
          if (other.is_like(one)) loop.known.insert(other.comparison);
  }

  static bool has_like(const std::vector<Condition>& all, const Condition& one) {
    return std::any_of(all.begin(), all.end(), [&](const Condition& other) { return other.is_like(one); });
  }

  // No iteration starts at the value that ends the loop, or beyond.
  void note_end(const Instruction& loop, std::set<Value>& known) const {
    const Condition end{Index(-1) - kernel::symbol_index(loop.symbol), loop.until};
    tile::for_each(loop.body, [&](const Instruction& one) {
      if (one.kind != Kind::kOp) return;
      if (const auto condition = condition_of(one.results[0]); condition && condition->is_like(end))
        known.insert(condition->comparison);
    });
  }

  bool add_bound(const Condition& condition, LoopStep& loop, const Lanes& open) const {
    const auto linear = kernel::linear_in(condition.place, loop.lane);
    const auto step = linear ? kernel::as_constant(linear->coefficient) : std::nullopt;
    const Lanes others = linear ? tile::lanes_of(program_, linear->rest) : Lanes{};
    const auto is_open = [&](Symbol lane) { return tile::has_lane(open, lane); };
    if (!step || *step == 0 || !std::all_of(others.begin(), others.end(), is_open)) return false;
    if (condition.value != kNoValue) {
      const Lanes& lanes = program_.values[condition.value].type.lanes;
      if (*step != -1 || !std::all_of(lanes.begin(), lanes.end(), is_open)) return false;
      loop.ends.push_back({linear->rest + Index(1), 1, condition.value});
      return true;
    }
    // No place is negative, so that rounding towards zero is right where it matters.
    const int64_t size = std::abs(*step);
    const LaneBound bound = *step > 0 ? LaneBound{Index(size - 1) - linear->rest, size}
                                      : LaneBound{linear->rest + Index(size), size};
    const kernel::Interval range = kernel::range_of(bound.dividend, ranges_);
    if (*step < 0 && size == 1 && is_whole_vectors(loop.lane, bound.dividend)) return false;
    if (*step > 0 && range.high / size > 0) loop.begins.push_back(bound);
    if (*step < 0 && range.low / size < tile::width_of(program_, loop.lane)) loop.ends.push_back(bound);
    return true;
  }

  // Are the points behind the end there to fill the last vector? Masks leave them out.
  bool is_whole_vectors(Symbol lane, const Index& end) const {
    const std::optional<int64_t> last = kernel::as_constant(end);
    const int64_t width = tile::width_of(program_, lane);
    return program_.symbols[lane].simd && last && width % kLanes == 0 && *last < width && width - *last < kLanes;
  }

  // --- Where a fold takes what changes nothing ---

  std::vector<Condition> conditions_of(const Instruction& fold) const {
    if (fold.operands.size() != 1 || !kernel::identity_of(fold.reduce)) return {};
    return conditions_of(fold.operands[0], kernel::identity(fold.reduce, dtype(fold.operands[0])));
  }

  DType dtype(Value value) const { return program_.values[value].type.dtype; }

  // Those that hold wherever the value is another one.
  std::vector<Condition> conditions_of(Value value, const kernel::Number& neutral) const {
    const Instruction* one = masks_.definer(value);
    if (!one) return {};
    const double number = kernel::is_real(dtype(value)) ? neutral.real : static_cast<double>(neutral.whole);
    if (one->kind == Kind::kLoad)
      return one->access.mask != kNoValue && one->access.otherwise == number ? of_mask(one->access.mask)
                                                                             : std::vector<Condition>{};
    if (one->kind != Kind::kOp) return {};
    if (one->op == ScalarOp::kCast && kernel::is_real(dtype(value)) == kernel::is_real(dtype(one->operands[0])))
      return conditions_of(one->operands[0], neutral);
    if (one->op == ScalarOp::kSelect && is_constant(one->operands[2], number)) {
      std::vector<Condition> all = of_mask(one->operands[0]);
      const std::vector<Condition> more = conditions_of(one->operands[1], neutral);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    }
    return {};
  }

  bool is_constant(Value value, double number) const {
    const Instruction* one = masks_.definer(value);
    return one && one->kind == Kind::kConstant &&
           (kernel::is_real(dtype(value)) ? one->number : static_cast<double>(one->integer)) == number;
  }

  std::vector<Condition> of_mask(Value mask) const {
    std::vector<Condition> all;
    for (Value part : masks_.parts_of(mask))
      if (const auto one = condition_of(part)) all.push_back(*one);
    return all;
  }

  std::optional<Condition> condition_of(Value comparison) const {
    const Instruction* one = masks_.definer(comparison);
    if (!one || one->kind != Kind::kOp) return std::nullopt;
    const bool below = one->op == ScalarOp::kLess || one->op == ScalarOp::kLessEqual;
    if (!below && one->op != ScalarOp::kGreater && one->op != ScalarOp::kGreaterEqual) return std::nullopt;
    const bool strict = one->op == ScalarOp::kLess || one->op == ScalarOp::kGreater;
    const Value low = one->operands[below ? 0 : 1], high = one->operands[below ? 1 : 0];
    const std::optional<Index> least = index_of(low), most = index_of(high);
    if (!least || is_floating(dtype(high))) return std::nullopt;
    const Index place = (most ? *most : Index(0)) - *least - Index(strict ? 1 : 0);
    return Condition{place, most ? kNoValue : high, comparison};
  }

  std::optional<Index> index_of(Value value) const {
    const Instruction* one = masks_.definer(value);
    if (!one || is_floating(dtype(value)) || dtype(value) == DType::b1) return std::nullopt;
    if (one->kind == Kind::kIndex) return one->index;
    if (one->kind == Kind::kConstant) return Index(one->integer);
    if (one->kind == Kind::kOp && one->op == ScalarOp::kCast) return index_of(one->operands[0]);
    return std::nullopt;
  }

  const tile::Program& program_;
  const std::vector<bool>& is_repeated_;
  const Masks masks_;
  const std::vector<kernel::SymbolRange> ranges_;
  std::set<Symbol> whole_;  // lanes whose loops go on to whole vectors
  std::map<Value, int> uses_;
};

}  // namespace

Masks::Masks(const tile::Program& program) : program_(program), definers_(program.values.size()) {
  tile::for_each(program.body, [&](const Instruction& one) {
    for (Value value : one.results) definers_[value] = &one;
  });
}

bool Masks::is_both(const Instruction& one) const {
  return one.kind == Kind::kOp && one.op == ScalarOp::kLogicalAnd &&
         program_.values[one.operands[0]].type.dtype == DType::b1 &&
         program_.values[one.operands[1]].type.dtype == DType::b1;
}

std::vector<Value> Masks::parts_of(Value mask) const {
  const Instruction* one = definers_[mask];
  if (!one || !is_both(*one)) return {mask};
  std::vector<Value> parts = parts_of(one->operands[0]);
  const std::vector<Value> more = parts_of(one->operands[1]);
  parts.insert(parts.end(), more.begin(), more.end());
  return parts;
}

Value Masks::left_of(Value mask, const std::set<Value>& known) const {
  if (mask == kNoValue || known.empty()) return mask;
  if (known.count(mask) != 0) return kNoValue;
  const Instruction* one = definers_[mask];
  if (!one || !is_both(*one)) return mask;
  const Value left = left_of(one->operands[0], known), right = left_of(one->operands[1], known);
  if (left == kNoValue) return right;
  return right == kNoValue ? left : mask;
}

std::vector<Value> Masks::inputs_of(const Instruction& one, const std::set<Value>& known) const {
  std::vector<Value> inputs;
  const auto add = [&](Value value) {
    if (value != kNoValue) inputs.push_back(value);
  };
  if (!known.empty() && one.kind == Kind::kOp && one.op == ScalarOp::kSelect) {
    const Value condition = left_of(one.operands[0], known);
    add(condition);
    add(one.operands[1]);
    if (condition != kNoValue) add(one.operands[2]);
    return inputs;
  }
  if (!known.empty() && is_both(one)) {
    for (Value operand : one.operands) {
      const Value left = left_of(operand, known);
      add(left == kNoValue ? operand : left);
    }
    return inputs;
  }
  for_each_use(one, [&](Value value, Use) { add(value == one.access.mask ? left_of(value, known) : value); });
  return inputs;
}

void bound_lanes(const tile::Program& program, const tile::LaneEnds& ends, const std::vector<bool>& is_repeated,
                 std::vector<LoopStep>& steps) {
  if (program.grid.empty()) LaneBounder(program, ends, is_repeated, steps).visit(steps, {});
}

}  // namespace kw::lower
