#include "emit/triton/tile_loops.hpp"

#include <fmt/format.h>

#include <string_view>

#include "support/error.hpp"

namespace kw::triton {

using tile::Index;

LoopHead loop_head(const tile::Program& program, const tile::Instruction& loop, const IndexText& indices,
                   const std::string& until) {
  const std::string& variable = program.symbols[loop.symbol].name;
  const bool stages = loop.stages > 0 && program.consumers.count == 1;  // a producer has them otherwise
  const std::string_view range = loop.unrolled ? "tl.static_range" : stages ? "tl.range" : "range";
  const std::string in_flight = stages ? fmt::format(", num_stages={}", loop.stages) : "";
  if (!loop.reversed) {
    std::string bounds = indices.spelled(loop.end, {}, loop.wide);
    if (!until.empty()) bounds = fmt::format("tl.minimum({}, {})", until, bounds);
    if (!(loop.begin == Index(0)) || loop.step != 1 || loop.stages > 0)
      bounds = indices.spelled(loop.begin, {}, loop.wide) + ", " + bounds;
    if (loop.step != 1) bounds += fmt::format(", {}", loop.step);
    return {fmt::format("for {} in {}({}{}):", variable, range, bounds, in_flight), ""};
  }
  KW_ASSERT(loop.counter >= 0, "the step 'count-down' has been taken");
  const std::string& number = program.symbols[loop.counter].name;
  const Index last = program.symbols[loop.counter].count - Index(1);
  const std::string start = loop.step == 1 ? number : fmt::format("{} * {}", number, loop.step);
  return {
      fmt::format("for {} in {}({}, -1, -1{}):", number, range, indices.spelled(last, {}, loop.wide), in_flight),
      fmt::format(
          "{} = {}", variable,
          loop.begin == Index(0) ? start : fmt::format("{} + {}", indices.spelled(loop.begin, {}, loop.wide), start))};
}

}  // namespace kw::triton
