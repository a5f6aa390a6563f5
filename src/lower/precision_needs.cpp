#include "lower/precision_needs.hpp"

#include <algorithm>

#include "tile/alike.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::ScalarOp;
using tile::Value;

constexpr double kLeastEpsilon = 1e-30;

class Walk {
 public:
  explicit Walk(const tile::Program& program)
      : program_(program),
        alike_(program),
        of_product_(program.values.size()),
        multiplied_(program.values.size()),
        epsilons_(program.values.size()),
        is_zero_(program.values.size()),
        scales_(program.values.size()) {
    needs_.has_epsilon.resize(program.values.size());
    needs_.is_of_product.resize(program.values.size());
    needs_.known_to_the_bit.assign(program.values.size(), true);
    needs_.decides.resize(program.values.size());
  }

  PrecisionNeeds run() {
    needs_.maps_and_folds = tile::maps_and_folds(program_);
    body(program_.body, false);
    needs_.contracts = has_product_ && !rounds_apart_ && !needs_.has_steps;
    find_what_decides(program_.body);
    return std::move(needs_);
  }

 private:
  DType dtype(Value value) const { return program_.values[value].type.dtype; }
  bool any(const Instruction& one, const std::vector<bool>& of) const {
    return std::any_of(one.operands.begin(), one.operands.end(), [&](Value operand) { return of[operand]; });
  }
  bool all_known(const std::vector<Value>& values) const {
    return std::all_of(values.begin(), values.end(), [&](Value value) { return needs_.known_to_the_bit[value]; });
  }

  void body(const std::vector<Instruction>& instructions, bool in_loop) {
    for (const Instruction& one : instructions) {
      if (one.kind == Kind::kFor) {
        loop(one);
      } else {
        see(one, in_loop);
        body(one.body, in_loop);
        body(one.otherwise_body, in_loop);
        if (one.kind == Kind::kIf) results(one, {one.yields, one.otherwise_yields});
      }
    }
  }

  // What is carried is known where it is at the start and after every iteration.
  void loop(const Instruction& one) {
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t at = 0; at < one.arguments.size(); ++at) {
        const bool again = pass > 0;
        const Value argument = one.arguments[at], operand = one.operands[at];
        needs_.known_to_the_bit[argument] = needs_.known_to_the_bit[operand] && !sums_up(one.yields[at]) &&
                                            (!again || needs_.known_to_the_bit[one.yields[at]]);
        of_product_[argument] = of_product_[operand] || (again && of_product_[one.yields[at]]);
        const auto& element_wise = needs_.is_of_product;
        needs_.is_of_product[argument] = element_wise[operand] || (again && element_wise[one.yields[at]]);
      }
      body(one.body, true);
    }
    results(one, {one.operands, one.yields});
  }

  // Is what the iterations of a fold carry a sum of some kind? Of a walk along rows, not of steps in time.
  bool sums_up(Value yield) const {
    const Instruction* made = alike_.maker(yield);
    const bool is_extreme = made && made->kind == Kind::kOp &&
                            (made->op == ScalarOp::kMaximum || made->op == ScalarOp::kMinimum);
    return needs_.maps_and_folds && is_floating(dtype(yield)) && !is_extreme;
  }

  void results(const Instruction& one, const std::vector<std::vector<Value>>& from) {
    for (size_t at = 0; at < one.results.size(); ++at)
      for (const std::vector<Value>& values : from) {
        if (at >= values.size()) continue;
        const Value result = one.results[at];
        needs_.known_to_the_bit[result] = needs_.known_to_the_bit[result] && needs_.known_to_the_bit[values[at]];
        of_product_[result] = of_product_[result] || of_product_[values[at]];
        needs_.is_of_product[result] = needs_.is_of_product[result] || needs_.is_of_product[values[at]];
      }
  }

  void see(const Instruction& one, bool in_loop) {
    if (one.kind == Kind::kStore && dtype(one.operands[0]) == DType::b1) needs_.has_steps = true;
    if (one.results.empty()) return;
    const Value result = one.results[0];
    const bool is_float = is_floating(dtype(result));
    const bool folds = one.kind == Kind::kFold || one.kind == Kind::kScan;
    const bool sums = folds && one.reduce != tile::ReduceOp::kMax && one.reduce != tile::ReduceOp::kMin;
    has_product_ = has_product_ || one.kind == Kind::kDot;
    if (one.kind == Kind::kConstant) epsilons_[result] = one.number >= kLeastEpsilon;
    is_zero_[result] = one.kind == Kind::kConstant && is_float && one.number == 0.0;
    scales_[result] = one.kind == Kind::kOp && (one.op == ScalarOp::kMul || one.op == ScalarOp::kDiv ||
                                                one.op == ScalarOp::kReciprocal || one.op == ScalarOp::kExp);
    if (one.kind == Kind::kOp) {
      needs_.has_steps = needs_.has_steps || makes_steps(one);
      if (one.op == ScalarOp::kAdd) needs_.has_epsilon[result] = any(one, epsilons_);
    }
    // A product, be its sign, its lanes or their order another.
    const bool passes_on = one.kind == Kind::kRelabel || one.kind == Kind::kSplit ||
                           (one.kind == Kind::kOp && one.op == ScalarOp::kNeg);
    multiplied_[result] = is_float && ((one.kind == Kind::kOp && one.op == ScalarOp::kMul) ||
                                       (passes_on && multiplied_[one.operands[0]]));
    const bool adds = is_float && (sums || one.op == ScalarOp::kAdd || one.op == ScalarOp::kSub);
    for (Value operand : one.operands)
      if (multiplied_[operand] && (in_loop || (adds && !of_product_[operand]))) rounds_apart_ = true;
    const bool rough = is_float && (one.kind == Kind::kDot || sums || is_transcendental(one));
    const Value part = alike_.own_part(one);
    for (Value value : one.results) {
      needs_.known_to_the_bit[value] = !rough && all_known(one.operands) &&
                                       (part == tile::kNoValue || needs_.known_to_the_bit[part]);
      of_product_[value] = one.kind == Kind::kDot || any(one, of_product_);
      needs_.is_of_product[value] = one.kind == Kind::kDot || (!folds && any(one, needs_.is_of_product));
    }
  }

  // From the last instruction to the first; loops twice, since an iteration decides about the one before.
  void find_what_decides(const std::vector<Instruction>& instructions) {
    for (auto one = instructions.rbegin(); one != instructions.rend(); ++one) {
      const auto pass = [&](const std::vector<Value>& from, const std::vector<Value>& to) {
        for (size_t at = 0; at < std::min(from.size(), to.size()); ++at)
          if (needs_.decides[from[at]]) needs_.decides[to[at]] = true;
      };
      if (one->kind == Kind::kFor || one->kind == Kind::kIf) {
        pass(one->results, one->yields);
        pass(one->results, one->otherwise_yields);
        for (int again = 0; again < 2; ++again) {
          find_what_decides(one->body);
          find_what_decides(one->otherwise_body);
          pass(one->arguments, one->yields);
        }
        pass(one->arguments, one->operands);
        continue;
      }
      const bool any = std::any_of(one->results.begin(), one->results.end(),
                                   [&](Value result) { return needs_.decides[result]; });
      if (any || rounds(*one))
        for (Value operand : one->operands) needs_.decides[operand] = true;
      if (const Value part = alike_.own_part(*one); any && part != tile::kNoValue) needs_.decides[part] = true;
    }
  }

  bool rounds(const Instruction& one) const {
    if (one.kind == Kind::kFold) return one.reduce == tile::ReduceOp::kArgMax || one.reduce == tile::ReduceOp::kArgMin;
    if (one.kind != Kind::kOp) return false;
    if (one.op == ScalarOp::kCast)
      return !is_floating(dtype(one.results[0])) || is_eight_bit_float(dtype(one.results[0]));
    if (one.op == ScalarOp::kSign || (one.op >= ScalarOp::kFloorDiv && one.op <= ScalarOp::kFmod)) return true;
    return (one.op >= ScalarOp::kFloor && one.op <= ScalarOp::kRound) ||
           (one.op >= ScalarOp::kEqual && one.op <= ScalarOp::kGreaterEqual && asks_for_more(one));
  }

  // Is one of the two the largest so far, in which the other is taken up? The sum of exponentials below it is the same
  // whichever is the larger.
  bool asks_running_maximum(const Instruction& one) const {
    const Value yield = alike_.yield_of(one.operands[1]);
    const Instruction* made = yield == tile::kNoValue ? nullptr : alike_.maker(yield);
    return made && made->kind == Kind::kOp && made->op == ScalarOp::kMaximum &&
           made->operands == std::vector<Value>{one.operands[1], one.operands[0]};
  }

  // Whether a value is NaN does not depend on its last place, nor whether a product or quotient is 0.
  bool asks_for_more(const Instruction& one) const {
    if (asks_running_maximum(one)) return false;
    if (one.op != ScalarOp::kEqual && one.op != ScalarOp::kNotEqual) return true;
    return one.operands[0] != one.operands[1] && !(scales_[one.operands[0]] && is_zero_[one.operands[1]]);
  }

  static bool is_transcendental(const Instruction& one) {
    if (one.kind != Kind::kOp || one.op == ScalarOp::kSqrt || one.op == ScalarOp::kRsqrt) return false;
    return one.op == ScalarOp::kSigmoid || (one.op >= ScalarOp::kExp && one.op <= ScalarOp::kPow);
  }

  bool makes_steps(const Instruction& one) const {
    const DType from = dtype(one.operands[0]);
    if (one.op == ScalarOp::kCast) {
      if (from == DType::b1) return dtype(one.results[0]) != DType::b1 && is_floating(dtype(one.results[0]));
      return is_floating(from) && (!is_floating(dtype(one.results[0])) || is_eight_bit_float(dtype(one.results[0])));
    }
    if (!is_floating(from)) return false;
    return one.op == ScalarOp::kSign || one.op == ScalarOp::kEqual || one.op == ScalarOp::kNotEqual ||
           (one.op >= ScalarOp::kFloorDiv && one.op <= ScalarOp::kFmod) ||
           (one.op >= ScalarOp::kFloor && one.op <= ScalarOp::kRound);
  }

  const tile::Program& program_;
  const tile::Alike alike_;
  // [value] of_product_: through folds, too; scales_: is it a product, quotient or exponential?
  std::vector<bool> of_product_, multiplied_, epsilons_, is_zero_, scales_;
  bool has_product_ = false;
  bool rounds_apart_ = false;  // some product that a sum takes is to be rounded as PyTorch does
  PrecisionNeeds needs_;
};

}  // namespace

PrecisionNeeds precision_needs(const tile::Program& program) { return Walk(program).run(); }

}  // namespace kw::lower
