#include "emit/triton/tile_folds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace kw::triton {

using kernel::ReduceOp;

namespace {

std::string noted(const std::string& helper, std::set<std::string>& helpers) {
  helpers.insert(helper);
  return helper;
}

// By which Triton has to be told to fold; nullopt where it has a function of its own, or where there is none.
std::optional<std::string> fold_helper(ReduceOp reduce, DType dtype) {
  if (reduce == ReduceOp::kProd) return "multiply";
  if (reduce == ReduceOp::kLogSumExp) return "log_add_exp";
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

bool folds_all(const FoldedDimensions& dimensions) { return dimensions.folded.size() == dimensions.count; }

std::string stay_text(const FoldedDimensions& dimensions) {
  return dimensions.stay && !folds_all(dimensions) ? ", keep_dims=True" : "";
}

}  // namespace

FoldedDimensions folded_dimensions(const tile::Program& program, const tile::Instruction& fold) {
  FoldedDimensions dimensions{{}, 0, program.rank >= 0, fold.at_once};
  if (program.rank >= 0) {
    dimensions.count = static_cast<size_t>(program.rank);
    for (size_t at = 0; fold.to_number && at < dimensions.count; ++at) dimensions.folded.push_back(at);
    if (fold.to_number) return dimensions;
    for (tile::Symbol lane : fold.lanes)
      dimensions.folded.push_back(static_cast<size_t>(program.symbols[lane].dimension));
    std::sort(dimensions.folded.begin(), dimensions.folded.end());
    return dimensions;
  }
  const std::vector<tile::Symbol>& own = program.values[fold.operands[0]].type.lanes;
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    const auto lane = static_cast<tile::Symbol>(symbol);
    if (program.symbols[symbol].kind != tile::SymbolKind::kLane || !tile::has_lane(own, lane)) continue;
    if (tile::has_lane(fold.lanes, lane)) dimensions.folded.push_back(dimensions.count);
    ++dimensions.count;
  }
  return dimensions;
}

std::string fold_text(const Text& tile, ReduceOp reduce, DType dtype, const FoldedDimensions& dimensions,
                      std::set<std::string>& helpers) {
  if (reduce == ReduceOp::kAny || reduce == ReduceOp::kAll) {  // of numbers, 0 or 1
    const ReduceOp extreme = reduce == ReduceOp::kAny ? ReduceOp::kMax : ReduceOp::kMin;
    const Text numbers{wrap(tile, Binding::kAtom) + ".to(tl.int32)"};
    return "(" + fold_text(numbers, extreme, DType::i32, dimensions, helpers) + " != 0)";
  }
  const std::optional<std::string> helper = fold_helper(reduce, dtype);
  if (helper) helpers.insert(*helper);
  if (dimensions.at_once)
    return helper ? combine_text("tl.reduce", tile, dtype, "None", *helper, "") : own_fold_text(tile, reduce, "");
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

std::string fold_along_text(const Text& tile, const Text& along, ReduceOp reduce, const FoldedDimensions& dimensions,
                            std::set<std::string>& helpers) {
  return fmt::format("tl.reduce(({}, {}), {}, {}{})", tile.text, along.text, dimensions.folded[0],
                     noted(reduce == ReduceOp::kMax ? "later_larger_at" : "later_smaller_at", helpers),
                     stay_text(dimensions));
}

std::string scan_text(const tile::Instruction& scan, const std::vector<Text>& tiles, DType dtype, size_t dimension,
                      int64_t width, std::set<std::string>& helpers) {
  const ReduceOp reduce = scan.reduce;
  if (scan.way == tile::ScanWay::kNetwork)
    return fmt::format("{}({}, axis={}, STEPS={})", noted("multiply_in_order", helpers), tiles[0].text, dimension,
                       std::bit_width(static_cast<uint64_t>(width)) - 1);
  if (reduce == ReduceOp::kFirst && scan.reversed)
    return fmt::format("{}({}, axis={})", noted("last_in_row", helpers), tiles[0].text, dimension);
  const std::string options = scan.reversed ? ", reverse=True" : "";
  if (reduce == ReduceOp::kSum || reduce == ReduceOp::kProd)
    return fmt::format("tl.cum{}({}, {}{})", kernel::name_of(reduce), tiles[0].text, dimension, options);
  const bool largest = reduce == ReduceOp::kMax;
  if (tiles.size() == 2)
    return fmt::format("tl.associative_scan(({}, {}), {}, {}{})", tiles[0].text, tiles[1].text, dimension,
                       noted(largest ? "later_larger_at" : "later_smaller_at", helpers), options);
  if (!largest && reduce != ReduceOp::kMin && reduce != ReduceOp::kLogSumExp) return "";
  const std::string helper = reduce == ReduceOp::kLogSumExp ? "log_add_exp" : largest ? "larger" : "smaller";
  return combine_text("tl.associative_scan", tiles[0], dtype, std::to_string(dimension), noted(helper, helpers),
                      options);
}

// Each element and its place become one whole number, in whose order the row is to stand; so equals keep their order
// and one network moves both.
std::vector<std::string> sort_lines(const tile::Instruction& sort, const std::vector<std::string>& results,
                                    const std::vector<Text>& tiles, const std::vector<DType>& types,
                                    const std::string& numbers, std::set<std::string>& helpers) {
  const bool with_places = tiles.size() > 1;
  const std::string flag = sort.reduce == ReduceOp::kSortDown ? "True" : "False";
  helpers.insert({"order_of", "value_of"});
  std::vector<std::string> lines;
  if (with_places)
    lines.push_back(fmt::format("{} = {}({}, {}, {})", numbers, noted("packed_with_places", helpers), tiles[0].text,
                                tiles[1].text, flag));
  else lines.push_back(fmt::format("{} = order_of({}, False, {})", numbers, tiles[0].text, flag));
  const bool picks = sort.way == tile::ScanWay::kPicked, is_whole = sort.way == tile::ScanWay::kFree;
  lines.push_back(fmt::format("{0} = {1}({0}, {2})", numbers, noted(picks ? "pick_lowest" : "lowest_first", helpers),
                              is_whole ? 0 : sort.integer));
  if (with_places) {
    lines.push_back(fmt::format("{} = {}({}, {}, {})", results[0], noted("elements_of", helpers), numbers,
                                dtype_name(types[0]), flag));
    lines.push_back(fmt::format("{} = {}({}){}", results[1], noted("places_of", helpers), numbers,
                                types[1] == DType::i64 ? ".to(tl.int64)" : ""));
  } else {
    lines.push_back(fmt::format("{} = value_of({}, 0, {}, {})", results[0], numbers, dtype_name(types[0]), flag));
  }
  return lines;
}

}  // namespace kw::triton
