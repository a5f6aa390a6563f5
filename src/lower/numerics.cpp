#include "lower/numerics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lower/appender.hpp"
#include "lower/precision_needs.hpp"
#include "tile/value_facts.hpp"

namespace kw::lower {
namespace {

using tile::Exactness;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::ReduceOp;
using tile::ScalarOp;
using tile::Value;

// What the step decides of one operation.
struct Decision {
  Exactness exactness = Exactness::kUsual;
  bool nonnegative = false;
  std::optional<double> reciprocal;  // a quotient by a number: what is multiplied with instead
};

class Numerics {
 public:
  explicit Numerics(const tile::Program& program)
      : program_(program),
        facts_(program),
        needs_(precision_needs(program)),
        maps_and_folds_(tile::maps_and_folds(program)) {}

  bool contracts() const { return needs_.contracts; }

  Decision of(const Instruction& one) const {
    Decision decision;
    decision.reciprocal = reciprocal_of_divisor(one);
    if (decision.reciprocal) return decision;
    if (dtype(one.results[0]) == DType::f32) decision.exactness = exactness_of(one);
    if (one.op == ScalarOp::kPow) decision.nonnegative = decision.exactness == Exactness::kApproximate;
    if ((one.op == ScalarOp::kFloorDiv || one.op == ScalarOp::kRemainder) && !is_floating(dtype(one.results[0])))
      decision.nonnegative = std::all_of(one.operands.begin(), one.operands.end(),
                                         [&](Value operand) { return facts_.is_nonnegative(operand); });
    return decision;
  }

 private:
  DType dtype(Value value) const { return program_.values[value].type.dtype; }

  Exactness exactness_of(const Instruction& one) const {
    const Value value = one.results[0];
    const auto approximate_if = [](bool holds) { return holds ? Exactness::kApproximate : Exactness::kUsual; };
    const auto exact_if = [](bool holds) { return holds ? Exactness::kExact : Exactness::kUsual; };
    const bool may_be_off = program_.approximate && !needs_.decides[value];
    switch (one.op) {
      // exp(x − max(x)) is at most 1, where the fast exponential's error is far below the largest result's last place.
      case ScalarOp::kExp: return approximate_if(may_be_off || (maps_and_folds_ && is_below_largest(one.operands[0])));
      case ScalarOp::kTanh: return approximate_if(may_be_off);
      case ScalarOp::kErf: return approximate_if(may_be_off && is_beside_one(value));
      case ScalarOp::kSigmoid: return may_be_off ? Exactness::kApproximate : exact_if(needs_.asks_exact(value));
      case ScalarOp::kRsqrt:
        return may_be_off || needs_.has_epsilon[one.operands[0]] ? Exactness::kApproximate
                                                                 : exact_if(asks_exact_quotient(one));
      case ScalarOp::kDiv:
      case ScalarOp::kReciprocal:
        return asks_exact_quotient(one) ? Exactness::kExact
                                        : approximate_if(may_be_off && facts_.has_plain_inverse(one.operands.back()));
      case ScalarOp::kTruncDiv: return exact_if(asks_exact_quotient(one));
      // A third of libdevice's instructions; where a step follows, its last place is the one that counts.
      case ScalarOp::kPow: {
        const Instruction* base = facts_.maker(one.operands[0]);
        const bool is_number = base && base->kind == Kind::kConstant;
        return approximate_if(!needs_.asks_exact(value) && !is_number && facts_.is_nonnegative(one.operands[0]));
      }
      default: return Exactness::kUsual;
    }
  }

  bool asks_exact_quotient(const Instruction& one) const {
    const Value divisor = one.operands.back();
    if (one.op == ScalarOp::kDiv &&
        ((maps_and_folds_ && is_sum_of_shares(one.operands[0])) || is_count_so_far(divisor)))
      return false;
    if (one.op == ScalarOp::kReciprocal && is_count_so_far(divisor)) return false;
    return needs_.asks_exact_quotient(one.results[0], one.operands.front(), divisor);
  }

  const Instruction* operation(Value value, ScalarOp op) const {
    const Instruction* made = facts_.maker(value);
    return made && made->kind == Kind::kOp && made->op == op ? made : nullptr;
  }

  // Is it x − max(x), along the same lanes; or −|x − m|, where m is the largest so far?
  bool is_below_largest(Value value) const {
    const tile::Alike& alike = facts_.alike();
    const Instruction* difference = operation(value, ScalarOp::kSub);
    if (!difference) return false;
    if (const Instruction* distance = operation(difference->operands[1], ScalarOp::kAbs)) {
      const Instruction* apart = operation(distance->operands[0], ScalarOp::kSub);
      return apart && alike.argument_of(apart->operands[1]) == apart->operands[1];
    }
    Value largest = difference->operands[1];
    // Of a block of -inf alone, the lowest number stands in its place.
    if (const Instruction* shift = operation(largest, ScalarOp::kMaximum);
        shift && facts_.maker(shift->operands[1]) && facts_.maker(shift->operands[1])->kind == Kind::kConstant)
      largest = shift->operands[0];
    if (const Instruction* fold = facts_.maker(largest)) {
      if (fold->kind != Kind::kFold || fold->reduce != ReduceOp::kMax) return false;
      largest = fold->operands[0];
      // Of a row that blocks share, what each made of its part.
      const Instruction* parts = facts_.maker(largest);
      const Value part = parts && largest != difference->operands[0] ? alike.own_part(*parts) : kNoValue;
      if (const Instruction* own = part == kNoValue ? nullptr : facts_.maker(part);
          own && own->kind == Kind::kFold && own->reduce == ReduceOp::kMax)
        largest = own->operands[0];
    }
    if (largest == difference->operands[0]) return true;
    // Of a row that is walked, what the loop's maximum takes up.
    if (const Value yield = alike.yield_of(largest); yield != kNoValue) {
      const Instruction* step = operation(yield, ScalarOp::kMaximum);
      if (!step || step->operands[0] != alike.argument_of(largest)) return false;
      largest = step->operands[1];
    }
    const Instruction* masked = operation(largest, ScalarOp::kSelect);
    return alike.same(largest, difference->operands[0]) ||
           (masked && alike.same(masked->operands[1], difference->operands[0]));
  }

  // Is it added to 1, and used for nothing else? Then its error counts for itself, however small it is.
  bool is_beside_one(Value value) const {
    const Instruction* sum = facts_.only_operation(value);
    return sum && sum->op == ScalarOp::kAdd &&
           std::any_of(sum->operands.begin(), sum->operands.end(), [&](Value operand) {
             const Instruction* made = facts_.maker(operand);
             return made && made->kind == Kind::kConstant && made->number == 1.0;
           });
  }

  // Is it what a loop counts, or one where that is 0? A mean's weights need not be rounded better than its sums.
  bool is_count_so_far(Value value) const {
    const Instruction* made = facts_.maker(value);
    if (made && made->kind == Kind::kOp && made->op == ScalarOp::kMaximum) made = facts_.maker(made->operands[0]);
    return made && made->kind == Kind::kOp && made->op == ScalarOp::kAdd && maps_and_folds_ &&
           facts_.alike().argument_of(made->operands[0]) == made->operands[0];
  }

  // Is it a sum of what a power of two scales?
  bool is_sum_of_shares(Value value) const {
    const Instruction* sum = facts_.maker(value);
    if (!sum || sum->kind != Kind::kFold || sum->reduce != ReduceOp::kSum) return false;
    const Instruction* share = facts_.maker(sum->operands[0]);
    if (share && share->kind == Kind::kOp && share->op == ScalarOp::kSelect) share = facts_.maker(share->operands[1]);
    if (!share || share->kind != Kind::kOp || share->op != ScalarOp::kMul) return false;
    const Instruction* weight = facts_.maker(share->operands[1]);
    if (weight && weight->kind == Kind::kOp && weight->op == ScalarOp::kMul)
      weight = facts_.maker(weight->operands[1]);  // of what several points have met in
    int exponent = 0;
    return weight && weight->kind == Kind::kConstant && std::frexp(weight->number, &exponent) == 0.5;
  }

  // PyTorch's CUDA kernels multiply by the reciprocal of a number; where a step follows, the quotient itself would be
  // another answer than theirs. But the mean that moments are made of is a sum of shares over a number, and that of
  // equal powers of two is exact; beside products, every mean is.
  std::optional<double> reciprocal_of_divisor(const Instruction& one) const {
    const DType type = dtype(one.results[0]);
    if (one.op != ScalarOp::kDiv || !is_floating(type) || !maps_and_folds_) return std::nullopt;
    const Instruction* divisor = facts_.maker(one.operands[1]);
    if (!divisor || divisor->kind != Kind::kConstant || is_sum_of_shares(one.operands[0])) return std::nullopt;
    return type == DType::f32 ? static_cast<double>(1.0f / static_cast<float>(divisor->number)) : 1.0 / divisor->number;
  }

  const tile::Program& program_;
  const tile::ValueFacts facts_;
  const PrecisionNeeds needs_;
  const bool maps_and_folds_;
};

// Puts decisions, by the operations' results, into the program.
class Decided {
 public:
  Decided(tile::Program& program, const std::map<Value, Decision>& decisions)
      : program_(program), decisions_(decisions) {}

  void run() {
    put_into(program_.body);
    tile::for_each(program_.body, [&](const Instruction& one) {
      for (const std::vector<Value>* used : {&one.operands, &one.yields, &one.otherwise_yields})
        for (const Value value : *used) divisors_.erase(value);
    });
    remove_divisors(program_.body);
  }

 private:
  void put_into(std::vector<Instruction>& body) {
    std::vector<Instruction> made;
    for (Instruction& one : body) {
      put_into(one.body);
      put_into(one.otherwise_body);
      if (one.kind == Kind::kOp) {
        const Decision& decision = decisions_.at(one.results[0]);
        one.exactness = decision.exactness;
        one.nonnegative = decision.nonnegative;
        if (decision.reciprocal) multiply(one, *decision.reciprocal, made);
      }
      made.push_back(std::move(one));
    }
    body = std::move(made);
  }

  void multiply(Instruction& quotient, double reciprocal, std::vector<Instruction>& before) {
    Value& operand = quotient.operands[1];
    const tile::ValueInfo divisor = program_.values[operand];
    divisors_.insert(operand);
    operand = Appender(program_).value("one_over_" + divisor.name, {divisor.type.dtype, {}});
    quotient.op = ScalarOp::kMul;
    Instruction constant;
    constant.kind = Kind::kConstant;
    constant.results = {operand};
    constant.number = reciprocal;
    before.push_back(std::move(constant));
  }

  void remove_divisors(std::vector<Instruction>& body) {
    std::erase_if(body, [&](const Instruction& one) {
      return one.kind == Kind::kConstant && divisors_.contains(one.results[0]);
    });
    for (Instruction& one : body) {
      remove_divisors(one.body);
      remove_divisors(one.otherwise_body);
    }
  }

  tile::Program& program_;
  const std::map<Value, Decision>& decisions_;
  std::set<Value> divisors_;  // of quotients that became products; in the end those that nothing takes any more
};

}  // namespace

void decide_numerics(tile::Program& program) {
  std::map<Value, Decision> decisions;
  const Numerics numerics(program);
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kOp) decisions[one.results[0]] = numerics.of(one);
  });
  program.contracts = numerics.contracts();
  Decided(program, decisions).run();
}

}  // namespace kw::lower
