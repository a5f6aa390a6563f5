#include <fmt/format.h>

#include <algorithm>

#include "emit/cpu/tile_context.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using namespace precedence;

namespace {

std::string text_of(const TileContext& at, const lower::LaneBound& bound) {
  const Text dividend = at.text.index(bound.dividend);
  const Text quotient = bound.divisor == 1
                            ? dividend
                            : Text{within(dividend, kMultiply) + " / " + std::to_string(bound.divisor), kMultiply};
  if (bound.value == tile::kNoValue) return quotient.text;
  const Text value = at.value(bound.value);
  if (bound.dividend == tile::Index(0)) return value.text;
  return within(value, kAdd) + " + " + within(quotient, kMultiply);
}

}  // namespace

std::string bound_text(TileContext& at, const lower::LoopStep& loop, bool begins, const std::string& plain) {
  const bool has_name = !begins && loop.end_name >= 0;
  std::vector<std::string> texts = {plain};
  for (const lower::LaneBound& bound : begins ? loop.begins : loop.ends)
    if (const std::string text = text_of(at, bound); std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(text);
  if (texts.size() == 1) return texts[0];
  at.note(Reason::kLoopEnds);
  const std::string& lane = at.text.symbol(loop.lane);
  const std::string name = at.text.fresh(begins ? "first_" + lane : lane + (has_name ? "_end_inside" : "_end"));
  const std::string list = texts.size() > 2 ? "{" + join(texts, ", ") + "}" : join(texts, ", ");
  at.out.line(fmt::format("const int64_t {} = std::{}<int64_t>({});", name, begins ? "max" : "min", list));
  return name;
}

Text end_of_for(TileContext& at, const tile::Instruction& loop) {
  const Text end = at.text.index(loop.end);
  if (loop.until == tile::kNoValue) return end;
  const std::string name = at.text.fresh(at.text.symbol(loop.symbol) + "_end");
  at.note(Reason::kDataEnd);
  at.out.line(fmt::format("const int64_t {} = std::min<int64_t>({}, {});", name, end.text, at.value(loop.until).text));
  return {name, kPrimary};
}

}  // namespace kw::cpu
