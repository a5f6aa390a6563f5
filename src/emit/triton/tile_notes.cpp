#include "emit/triton/tile_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kw::triton {
namespace {

using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::Value;

bool is_op(const Instruction* one, ScalarOp op) { return one && one->kind == Kind::kOp && one->op == op; }

bool has_user(const tile::ValueFacts& values, Value value, const auto& is_meant) {
  const std::vector<const Instruction*>& users = values.users(value);
  return std::any_of(users.begin(), users.end(), [&](const Instruction* user) { return is_meant(*user); });
}

// The second of three products of halves (lower/three_products.hpp): low · high behind high · low, before high · high.
bool ends_small_products(const tile::ValueFacts& values, const Instruction& one) {
  if (one.kind != Kind::kDot) return false;
  const Instruction* first = values.maker(one.operands[0]);
  if (!first || first->kind != Kind::kDot) return false;
  return has_user(values, one.results[0], [&](const Instruction& last) {
    return last.kind == Kind::kDot && last.operands[0] == one.results[0] && last.operands[1] == first->operands[1] &&
           last.operands[2] == one.operands[2];
  });
}

// What a loop carries, and the product of one of its steps.
bool adds_product_of_step(const tile::Program& program, const tile::ValueFacts& values, const Instruction& one) {
  if (!is_op(&one, ScalarOp::kAdd) || program.values[one.results[0]].type.dtype != DType::f32) return false;
  const Instruction *before = values.maker(one.operands[0]), *product = values.maker(one.operands[1]);
  return !before && product && product->kind == Kind::kDot;
}

// The smaller of two scales, which with the larger one multiplies a number.
bool is_smaller_scale(const tile::ValueFacts& values, const Instruction& one) {
  if (!is_op(&one, ScalarOp::kMinimum)) return false;
  const auto is_factor = [&](Value value) {
    return has_user(values, value, [](const Instruction& user) { return is_op(&user, ScalarOp::kMul); });
  };
  return is_factor(one.results[0]) && has_user(values, one.operands[0], [&](const Instruction& larger) {
           return is_op(&larger, ScalarOp::kMaximum) && larger.operands == one.operands && is_factor(larger.results[0]);
         });
}

}  // namespace

std::string note_of(const tile::Program& program, const tile::ValueFacts& values, const Instruction& one) {
  if (ends_small_products(values, one))
    return "# The small products are added up first: next to the large one each would lose its last digits.";
  if (adds_product_of_step(program, values, one))
    return "# Added in f32 after each step: tensor cores round sums down to their accumulator's last place.";
  if (is_smaller_scale(values, one))
    return "# The smaller scale first: no step leaves the range of f32 where the result does not.";
  return "";
}

std::string note_of_places(const tile::Program& program) {
  const tile::GridOrder& order = program.order;
  if (order.grouped < 0 || program.places.empty()) return "";
  return fmt::format("# Up to {} neighbours along {} go through {} together: what they read stays in the L2 cache.",
                     order.count, program.symbols[order.grouped].name, program.symbols[order.along].name);
}

}  // namespace kw::triton
