#include "lower/masks.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "tile/value_facts.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::ScalarOp;
using tile::Value;

class Withheld {
 public:
  explicit Withheld(const tile::Program& program) : program_(program), facts_(program) {}

  bool shows_otherwise(const Instruction& load) const {
    std::set<Value> parts, known;
    collect_parts(load.access.mask, parts);
    return is_seen(load.results[0], parts, known);
  }

 private:
  // A mask as the conditions that all hold where it does.
  void collect_parts(Value mask, std::set<Value>& parts) const {
    const Instruction* made = facts_.maker(mask);
    if (made && made->kind == Kind::kOp && made->op == ScalarOp::kLogicalAnd)
      for (Value operand : made->operands) collect_parts(operand, parts);
    else parts.insert(mask);
  }

  bool holds_within(Value mask, const std::set<Value>& parts) const {
    std::set<Value> own;
    if (mask != kNoValue) collect_parts(mask, own);
    return std::includes(own.begin(), own.end(), parts.begin(), parts.end());
  }

  // Is what the parts withhold along the lane its end alone?
  bool withholds_end(const std::set<Value>& parts, tile::Symbol lane) const {
    return std::all_of(parts.begin(), parts.end(), [&](Value part) {
      if (!tile::has_lane(program_.values[part].type.lanes, lane)) return true;
      const Instruction* made = facts_.maker(part);
      if (!made || made->kind != Kind::kOp || made->op != ScalarOp::kLess) return false;
      const Instruction *place = facts_.maker(made->operands[0]), *end = facts_.maker(made->operands[1]);
      if (!place || !end || place->kind != Kind::kIndex || end->kind != Kind::kConstant) return false;
      const auto linear = kernel::linear_in(place->index, lane);
      const auto slope = linear ? kernel::as_constant(linear->coefficient) : std::nullopt;
      return slope && *slope > 0;
    });
  }

  bool is_seen(Value value, const std::set<Value>& parts, std::set<Value>& known) const {
    if (!known.insert(value).second) return false;
    if (facts_.leaves_branch(value)) return true;
    const auto is_folded = [&](const Instruction& fold) {
      return std::any_of(parts.begin(), parts.end(), [&](Value part) {
        const auto& lanes = program_.values[part].type.lanes;
        return std::any_of(lanes.begin(), lanes.end(),
                           [&](tile::Symbol lane) { return tile::has_lane(fold.lanes, lane); });
      });
    };
    const auto& users = facts_.users(value);
    return std::any_of(users.begin(), users.end(), [&](const Instruction* user) {
      switch (user->kind) {
        case Kind::kOp:
          // Selected where the mask holds alone.
          if (user->op == ScalarOp::kSelect && user->operands[1] == value && user->operands[2] != value &&
              user->operands[0] != value && holds_within(user->operands[0], parts))
            return false;
          return is_seen(user->results[0], parts, known);
        case Kind::kStack:
        case Kind::kUnstack:
          return std::any_of(user->results.begin(), user->results.end(),
                             [&](Value result) { return is_seen(result, parts, known); });
        case Kind::kLoad:
        case Kind::kStore: return !holds_within(user->access.mask, parts);
        // A walk forwards meets the end of a lane last.
        case Kind::kScan:
          if (kernel::is_sort(user->reduce) || user->reversed || !withholds_end(parts, user->from)) return true;
          return std::any_of(user->results.begin(), user->results.end(),
                             [&](Value result) { return is_seen(result, parts, known); });
        // Lanes that stay apart are each as they were.
        case Kind::kFold: return is_folded(*user) || is_seen(user->results[0], parts, known);
        case Kind::kFor:
          for (size_t at = 0; at < user->operands.size(); ++at)
            if (user->operands[at] == value || user->yields[at] == value)
              if (is_seen(user->arguments[at], parts, known) || is_seen(user->results[at], parts, known)) return true;
          return user->until == value;
        default: return true;
      }
    });
  }

  const tile::Program& program_;
  const tile::ValueFacts facts_;
};

}  // namespace

void find_unseen_otherwise(tile::Program& program) {
  std::set<Value> unseen;
  const Withheld withheld(program);
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kLoad && one.access.mask != kNoValue && !withheld.shows_otherwise(one))
      unseen.insert(one.results[0]);
  });
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    if (one.kind == Kind::kLoad) one.access.any_otherwise = unseen.contains(one.results[0]);
  });
}

}  // namespace kw::lower
