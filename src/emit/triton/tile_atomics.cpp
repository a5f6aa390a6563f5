#include "emit/triton/tile_atomics.hpp"

#include <fmt/format.h>

namespace kw::triton {

using kernel::ReduceOp;

namespace {

std::string step_helper(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum: return "add";
    case ReduceOp::kProd: return "multiply";
    case ReduceOp::kMax: return "larger";
    default: return "smaller";
  }
}

// The hardware multiplies nothing, adds no whole numbers of 16 bits, and orders none of 16 bits at all.
bool has_instruction(ReduceOp reduce, DType dtype) {
  if (reduce == ReduceOp::kSum) return is_floating(dtype) || size_of(dtype) >= 4;
  return reduce != ReduceOp::kProd && !is_floating(dtype) && size_of(dtype) >= 4;
}

}  // namespace

AtomicCall atomic_call(const TileAddresses::Place& place, const std::string& tile, const std::string& mask,
                       const std::string& shape, ReduceOp reduce, DType dtype, std::set<std::string>& helpers) {
  if (has_instruction(reduce, dtype)) {
    std::vector<std::string> arguments = {place.pointer(), tile};
    if (!mask.empty()) arguments.push_back("mask=" + mask);
    arguments.emplace_back("sem=\"relaxed\"");
    return {reduce == ReduceOp::kSum   ? "tl.atomic_add"
            : reduce == ReduceOp::kMax ? "tl.atomic_max"
                                       : "tl.atomic_min",
            std::move(arguments)};
  }
  const std::string offset = place.offset.empty() ? "0" : place.offset;
  if (reduce != ReduceOp::kProd && size_of(dtype) >= 4) {  // floats order as the integers of their bits do
    const std::string helper = reduce == ReduceOp::kMax ? "raise_to" : "lower_to";
    helpers.insert(helper);
    return {helper, {place.start, offset, tile, mask.empty() ? "True" : mask}};
  }
  const std::string step = step_helper(reduce), everywhere = fmt::format("tl.full({}, True, tl.int1)", shape);
  helpers.insert({"fold_into", step});
  return {"fold_into",
          {place.start, offset, tile, mask.empty() ? everywhere : fmt::format("({}) & {}", mask, everywhere), step}};
}

bool calls_add(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind != tile::Kind::kStore || !one.combines || one.reduce != ReduceOp::kSum) return;
    found = found || !has_instruction(one.reduce, program.values[one.operands[0]].type.dtype);
  });
  return found;
}

}  // namespace kw::triton
