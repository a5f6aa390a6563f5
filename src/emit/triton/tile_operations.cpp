#include "emit/triton/tile_operations.hpp"

#include <algorithm>

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
  return operation;
}

// PyTorch's CUDA kernels multiply by the reciprocal of a number; where a step follows, the quotient itself would be
// another answer than theirs. But means are sums over a number, and that of equal powers of two is exact.
std::optional<double> TileOperations::reciprocal_of_divisor(const Instruction& one) const {
  const DType type = dtype(one.results[0]);
  if (one.op != ScalarOp::kDiv || !is_floating(type) || !tile::is_elementwise(program_)) return std::nullopt;
  const Instruction* divisor = values_.maker(one.operands[1]);
  if (!divisor || divisor->kind != Kind::kConstant) return std::nullopt;
  return type == DType::f32 ? static_cast<double>(1.0f / static_cast<float>(divisor->number)) : 1.0 / divisor->number;
}

}  // namespace kw::triton
