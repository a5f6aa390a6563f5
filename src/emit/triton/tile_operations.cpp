#include "emit/triton/tile_operations.hpp"

#include <algorithm>
#include <cmath>

namespace kw::triton {

using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::Value;

Operation TileOperations::of(const Instruction& one) const {
  const Instruction* first = values_.maker(one.operands[0]);
  const bool is_constant = first && first->kind == Kind::kConstant;
  const Value value = one.results[0];
  Operation operation{one.op, dtype(value), dtype(one.operands.back())};
  operation.roughly = (program_.approximate && !roots_.decides[value]) ||
                      (one.op == ScalarOp::kRsqrt && roots_.has_epsilon[one.operands[0]]);
  if (operation.roughly && one.op == ScalarOp::kErf) operation.beside_one = is_beside_one(value);
  if (operation.roughly && (one.op == ScalarOp::kDiv || one.op == ScalarOp::kReciprocal))
    operation.plain_divisor = values_.has_plain_inverse(one.operands.back());
  operation.to_the_bit = one.op == ScalarOp::kSigmoid
                             ? roots_.asks_exact(value)
                             : roots_.asks_exact_quotient(value, one.operands.front(), one.operands.back());
  // A third of libdevice's instructions; where a step follows, its last place is the one that counts.
  if (one.op == ScalarOp::kPow)
    operation.nonnegative = !roots_.asks_exact(value) && !is_constant && values_.is_nonnegative(one.operands[0]);
  else if (!is_floating(operation.dtype))
    operation.nonnegative = std::all_of(one.operands.begin(), one.operands.end(),
                                        [&](Value operand) { return values_.is_nonnegative(operand); });
  if (reciprocal_of_divisor(one)) operation.op = ScalarOp::kMul;
  if (one.op == ScalarOp::kDiv && tile::maps_and_folds(program_) && is_sum_of_shares(one.operands[0]))
    operation.to_the_bit = false;
  if (one.op == ScalarOp::kReciprocal && is_count_so_far(one.operands[0])) operation.to_the_bit = false;
  if (one.op == ScalarOp::kDiv && is_count_so_far(one.operands[1])) operation.to_the_bit = false;
  // exp(x − max(x)) is at most 1, where the fast exponential's error is far below the largest result's last place.
  if (one.op == ScalarOp::kExp && tile::maps_and_folds(program_))
    operation.roughly = operation.roughly || is_below_largest(one.operands[0]);
  return operation;
}

bool TileOperations::is_below_largest(Value value) const {
  const auto operation = [&](Value of, ScalarOp op) -> const Instruction* {
    const Instruction* made = values_.maker(of);
    return made && made->kind == Kind::kOp && made->op == op ? made : nullptr;
  };
  const Instruction* difference = operation(value, ScalarOp::kSub);
  if (!difference) return false;
  if (const Instruction* distance = operation(difference->operands[1], ScalarOp::kAbs)) {
    const Instruction* apart = operation(distance->operands[0], ScalarOp::kSub);
    return apart && values_.alike().argument_of(apart->operands[1]) == apart->operands[1];
  }
  Value largest = difference->operands[1];
  // Of a block of -inf alone, the lowest number stands in its place.
  if (const Instruction* shift = operation(largest, ScalarOp::kMaximum);
      shift && values_.maker(shift->operands[1]) && values_.maker(shift->operands[1])->kind == Kind::kConstant)
    largest = shift->operands[0];
  if (const Instruction* fold = values_.maker(largest)) {
    if (fold->kind != Kind::kFold || fold->reduce != tile::ReduceOp::kMax) return false;
    largest = fold->operands[0];
    // Of a row that blocks share, what each made of its part.
    const Instruction* parts = values_.maker(largest);
    const Value part = parts && largest != difference->operands[0] ? values_.alike().own_part(*parts) : tile::kNoValue;
    if (const Instruction* own = part == tile::kNoValue ? nullptr : values_.maker(part);
        own && own->kind == Kind::kFold && own->reduce == tile::ReduceOp::kMax)
      largest = own->operands[0];
  }
  if (largest == difference->operands[0]) return true;
  // Of a row that is walked, what the loop's maximum takes up.
  if (const Value yield = values_.alike().yield_of(largest); yield != tile::kNoValue) {
    const Instruction* step = operation(yield, ScalarOp::kMaximum);
    if (!step || step->operands[0] != values_.alike().argument_of(largest)) return false;
    largest = step->operands[1];
  }
  const Instruction* masked = operation(largest, ScalarOp::kSelect);
  return values_.alike().same(largest, difference->operands[0]) ||
         (masked && values_.alike().same(masked->operands[1], difference->operands[0]));
}

bool TileOperations::is_beside_one(Value value) const {
  const Instruction* sum = values_.only_operation(value);
  return sum && sum->op == ScalarOp::kAdd &&
         std::any_of(sum->operands.begin(), sum->operands.end(), [&](Value operand) {
           const Instruction* made = values_.maker(operand);
           return made && made->kind == Kind::kConstant && made->number == 1.0;
         });
}

bool TileOperations::is_count_so_far(Value value) const {
  const Instruction* made = values_.maker(value);
  if (made && made->kind == Kind::kOp && made->op == ScalarOp::kMaximum) made = values_.maker(made->operands[0]);
  return made && made->kind == Kind::kOp && made->op == ScalarOp::kAdd && tile::maps_and_folds(program_) &&
         values_.alike().argument_of(made->operands[0]) == made->operands[0];
}

bool TileOperations::is_sum_of_shares(Value value) const {
  const Instruction* sum = values_.maker(value);
  if (!sum || sum->kind != Kind::kFold || sum->reduce != tile::ReduceOp::kSum) return false;
  const Instruction* share = values_.maker(sum->operands[0]);
  if (share && share->kind == Kind::kOp && share->op == ScalarOp::kSelect) share = values_.maker(share->operands[1]);
  if (!share || share->kind != Kind::kOp || share->op != ScalarOp::kMul) return false;
  const Instruction* weight = values_.maker(share->operands[1]);
  if (weight && weight->kind == Kind::kOp && weight->op == ScalarOp::kMul)
    weight = values_.maker(weight->operands[1]);  // of what several points have met in
  int exponent = 0;
  return weight && weight->kind == Kind::kConstant && std::frexp(weight->number, &exponent) == 0.5;
}

// PyTorch's CUDA kernels multiply by the reciprocal of a number; where a step follows, the quotient itself would be
// another answer than theirs. But the mean that moments are made of is a sum of shares over a number, and that of equal
// powers of two is exact; beside products, every mean is.
std::optional<double> TileOperations::reciprocal_of_divisor(const Instruction& one) const {
  const DType type = dtype(one.results[0]);
  if (one.op != ScalarOp::kDiv || !is_floating(type) || !tile::maps_and_folds(program_)) return std::nullopt;
  const Instruction* divisor = values_.maker(one.operands[1]);
  if (!divisor || divisor->kind != Kind::kConstant || is_sum_of_shares(one.operands[0])) return std::nullopt;
  return type == DType::f32 ? static_cast<double>(1.0f / static_cast<float>(divisor->number)) : 1.0 / divisor->number;
}

}  // namespace kw::triton
