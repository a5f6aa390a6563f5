#include "plan/pieces.hpp"

#include <cmath>

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;

Pieces pieces_of(KernelDraft& draft, const std::string& name, ExprId value, int count) {
  kernel::Builder& build = draft.build;
  const auto named = [&](const std::string& part, ExprId expr) {
    return build.kernel().exprs[expr].name.empty() ? draft.named(name + part, expr) : expr;
  };
  const ExprId high = named("_high", build.cast(DType::bf16, value)), whole = build.cast(DType::f32, high),
               size = build.op(ScalarOp::kAbs, {whole}),
               is_finite = build.op(ScalarOp::kLess, {size, build.constant(DType::f32, HUGE_VAL)});
  const auto if_finite = [&](ExprId one, DType dtype) {
    return build.op(ScalarOp::kSelect, {is_finite, one, build.constant(dtype, 0.0)});
  };
  ExprId rest = if_finite(build.op(ScalarOp::kSub, {value, whole}), DType::f32), middle = kernel::kNoExpr;
  if (count == 3) {
    middle = named("_middle", build.cast(DType::bf16, rest));
    rest = build.op(ScalarOp::kSub, {rest, build.cast(DType::f32, middle)});
  }
  return {high, middle, named("_low", build.cast(DType::bf16, rest)), named("_finite", if_finite(high, DType::bf16))};
}

}  // namespace kw::plan
