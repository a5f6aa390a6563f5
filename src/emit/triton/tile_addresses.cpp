#include "emit/triton/tile_addresses.hpp"

#include "support/text.hpp"

namespace kw::triton {

using tile::Index;
using tile::kNoValue;

// Without a rest that is a number.
std::vector<Text> TileAddresses::parts_of(const tile::Coordinate& coordinate, bool wide, const Lanes& lanes,
                                          const std::function<Text(tile::Value)>& value_text) const {
  const tile::SumOrder& sum = coordinate.sum;
  const auto spelled = [&](const Index& index, bool is_wide) {
    return Text{indices_.spelled(index, lanes, is_wide), kernel::as_symbol(index) ? Binding::kAtom : Binding::kAdd};
  };
  std::vector<Text> parts;
  if (!(sum.first == Index(0))) parts.push_back(spelled(sum.first, sum.first_wide || !program_.narrow));
  if (coordinate.value != kNoValue) {
    const Text value = value_text(coordinate.value);
    parts.push_back(wide && !value.constant ? Text{wrap(value, Binding::kAtom) + ".to(tl.int64)"} : value);
  }
  const Index rest = coordinate.index - sum.first;
  if (kernel::as_constant(rest)) return parts;
  const Text text = spelled(rest, sum.wide || !program_.narrow);
  parts.push_back(sum.together ? Text{"(" + text.text + ")"} : text);
  return parts;
}

TileAddresses::Place TileAddresses::of(const tile::Access& access, const Lanes& lanes,
                                       const std::function<Text(tile::Value)>& value_text,
                                       const std::string& zeros) const {
  const tile::Buffer& buffer = program_.buffers[access.buffer];
  const std::vector<Index> strides = tile::strides_of(buffer);
  const bool wide = access.wide || !program_.narrow;
  std::vector<std::string> parts;
  Index constant;
  Lanes covered;
  for (size_t i = 0; i < access.coordinates.size(); ++i) {
    const tile::Coordinate& coordinate = access.coordinates[i];
    const bool single = kernel::as_constant(strides[i]) || kernel::as_symbol(strides[i]);
    const std::string stride = indices_.spelled(strides[i], {}, wide && !single);
    for (const Text& part : parts_of(coordinate, wide, lanes, value_text))
      parts.push_back(strides[i] == Index(1)
                          ? part.text
                          : wrap(part, Binding::kMultiply) + " * " + (single ? stride : "(" + stride + ")"));
    if (const Index rest = coordinate.index - coordinate.sum.first; kernel::as_constant(rest))
      constant = constant + rest * strides[i];
    covered = united(covered, tile::lanes_of(program_, coordinate.index));
    if (coordinate.value != kNoValue) covered = united(covered, program_.values[coordinate.value].type.lanes);
  }
  if (!(constant == Index(0))) parts.push_back(indices_.spelled(constant, {}, wide));
  Place place{buffer.name, join(parts, " + ")};
  if (covered != lanes) place.offset = place.offset.empty() ? zeros : zeros + " + " + place.offset;
  return place;
}

}  // namespace kw::triton
