#include "emit/triton/tile_folds.hpp"

#include <fmt/format.h>

#include <optional>

namespace kw::triton {

using kernel::ReduceOp;

namespace {

// By which Triton has to be told to fold; nullopt where it has a function of its own, or where there is none.
std::optional<std::string> fold_helper(ReduceOp reduce, DType dtype) {
  if (reduce == ReduceOp::kProd) return "multiply";
  if (!is_floating(dtype)) return std::nullopt;
  if (reduce == ReduceOp::kMax) return "larger";
  return reduce == ReduceOp::kMin ? std::optional<std::string>("smaller") : std::nullopt;
}

// By that function, of all dimensions where `axis` is empty.
std::string own_fold_text(const Text& tile, ReduceOp reduce, const std::string& axis) {
  const std::string whole = axis.empty() ? "" : ", " + axis;
  switch (reduce) {
    case ReduceOp::kSum: return fmt::format("tl.sum({}{})", tile.text, whole);
    case ReduceOp::kMax: return fmt::format("tl.max({}{})", tile.text, whole);
    case ReduceOp::kMin: return fmt::format("tl.min({}{})", tile.text, whole);
    case ReduceOp::kAny: return fmt::format("(tl.max({}.to(tl.int32){}) != 0)", wrap(tile, Binding::kAtom), whole);
    case ReduceOp::kAll: return fmt::format("(tl.min({}.to(tl.int32){}) != 0)", wrap(tile, Binding::kAtom), whole);
    default: return "";
  }
}

// By tl.reduce or tl.associative_scan. The larger of two bfloat16 is a float32 in Triton, which these refuse.
std::string combine_text(const std::string& function, const Text& tile, DType dtype, const std::string& axis,
                         const std::string& helper, const std::string& options) {
  const bool narrow = dtype == DType::bf16;
  const std::string operand = narrow ? wrap(tile, Binding::kAtom) + ".to(tl.float32)" : tile.text;
  return fmt::format("{}({}, {}, {}{}){}", function, operand, axis, helper, options, narrow ? ".to(tl.bfloat16)" : "");
}

// Is the result the same in whatever order a tile is folded?
bool is_unordered(ReduceOp reduce) {
  return reduce == ReduceOp::kMax || reduce == ReduceOp::kMin || reduce == ReduceOp::kAny || reduce == ReduceOp::kAll;
}

bool folds_all(const FoldedDimensions& dimensions) { return dimensions.folded.size() == dimensions.count; }

std::string stay_text(const FoldedDimensions& dimensions) {
  return dimensions.stay && !folds_all(dimensions) ? ", keep_dims=True" : "";
}

}  // namespace

std::string fold_text(const Text& tile, ReduceOp reduce, DType dtype, const FoldedDimensions& dimensions,
                      std::set<std::string>& helpers) {
  const std::optional<std::string> helper = fold_helper(reduce, dtype);
  if (helper) helpers.insert(*helper);
  // One fold of a whole tile is up to 2.5 times as fast as one dimension after another: a copy of 1 GB on an H100, 8
  // warps.
  if (dimensions.count > 1 && folds_all(dimensions)) {
    if (!helper && (dimensions.stay || is_unordered(reduce))) return own_fold_text(tile, reduce, "");
    if (helper && is_unordered(reduce)) return combine_text("tl.reduce", tile, dtype, "None", *helper, "");
  }
  Text text = tile;
  for (auto at = dimensions.folded.rbegin(); at != dimensions.folded.rend(); ++at)
    text = {helper ? combine_text("tl.reduce", text, dtype, std::to_string(*at), *helper, stay_text(dimensions))
                   : own_fold_text(text, reduce, fmt::format("axis={}{}", *at, stay_text(dimensions)))};
  return text.text;
}

std::string place_line(const std::string& name, const Text& tile, const std::string& places, ReduceOp reduce,
                       const FoldedDimensions& dimensions, std::set<std::string>& helpers) {
  const std::string helper = reduce == ReduceOp::kArgMax ? "larger_at" : "smaller_at";
  helpers.insert(helper);
  return fmt::format("_, {} = tl.reduce(({}, {}), {}, {}{})", name, tile.text, places, dimensions.folded[0], helper,
                     stay_text(dimensions));
}

std::string scan_text(const Text& tile, ReduceOp reduce, DType dtype, size_t dimension, const std::string& options,
                      std::set<std::string>& helpers) {
  if (reduce == ReduceOp::kSum) return fmt::format("tl.cumsum({}, {}{})", tile.text, dimension, options);
  if (reduce != ReduceOp::kProd && reduce != ReduceOp::kMax && reduce != ReduceOp::kMin) return "";
  const std::string helper = reduce == ReduceOp::kProd ? "multiply" : reduce == ReduceOp::kMax ? "larger" : "smaller";
  helpers.insert(helper);
  return combine_text("tl.associative_scan", tile, dtype, std::to_string(dimension), helper, options);
}

}  // namespace kw::triton
