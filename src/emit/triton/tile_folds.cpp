#include "emit/triton/tile_folds.hpp"

#include <fmt/format.h>

namespace kw::triton {

using kernel::ReduceOp;

std::optional<std::string> fold_helper(ReduceOp reduce, DType dtype) {
  if (reduce == ReduceOp::kProd) return "multiply";
  if (!is_floating(dtype)) return std::nullopt;
  if (reduce == ReduceOp::kMax) return "larger";
  return reduce == ReduceOp::kMin ? std::optional<std::string>("smaller") : std::nullopt;
}

bool may_fold_at_once(ReduceOp reduce) {
  return reduce == ReduceOp::kMax || reduce == ReduceOp::kMin || reduce == ReduceOp::kAny || reduce == ReduceOp::kAll;
}

std::string own_fold_text(const Text& tile, ReduceOp reduce, std::string_view axis) {
  switch (reduce) {
    case ReduceOp::kSum: return fmt::format("tl.sum({}, axis={})", tile.text, axis);
    case ReduceOp::kMax: return fmt::format("tl.max({}, axis={})", tile.text, axis);
    case ReduceOp::kMin: return fmt::format("tl.min({}, axis={})", tile.text, axis);
    case ReduceOp::kAny:
      return fmt::format("(tl.max({}.to(tl.int32), axis={}) != 0)", wrap(tile, Binding::kAtom), axis);
    case ReduceOp::kAll:
      return fmt::format("(tl.min({}.to(tl.int32), axis={}) != 0)", wrap(tile, Binding::kAtom), axis);
    default: return "";
  }
}

std::string combine_text(const std::string& function, const Text& tile, DType dtype, std::string_view axis,
                         const std::string& helper, const std::string& options) {
  const bool narrow = dtype == DType::bf16;
  const std::string operand = narrow ? wrap(tile, Binding::kAtom) + ".to(tl.float32)" : tile.text;
  return fmt::format("{}({}, {}, {}{}){}", function, operand, axis, helper, options, narrow ? ".to(tl.bfloat16)" : "");
}

}  // namespace kw::triton
