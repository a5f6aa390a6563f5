#include "emit/triton/tile_addresses.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"

namespace kw::triton {

using tile::Index;
using tile::Instruction;
using tile::kNoValue;

namespace {

bool folds(const tile::Program& program) {
  return std::any_of(program.body.begin(), program.body.end(), [](const Instruction& one) {
    return one.kind == tile::Kind::kFold || one.kind == tile::Kind::kFor;
  });
}

}  // namespace

TileAddresses::TileAddresses(const tile::Program& program, const IndexText& indices)
    : program_(program), indices_(indices), folds_rows_(tile::maps_and_folds(program) && folds(program)) {
  tile::for_each(program.body, [&](const Instruction& one) {
    for (const tile::Coordinate& coordinate : one.access.coordinates)
      ++offsets_[indices_.spelled(indices_.along_lanes(coordinate.index), {})];
  });
}

// What is one number for the block, and what moves along lanes: addresses are wide, and each part need not be. What
// several accesses have of it is computed once.
std::vector<std::string> TileAddresses::parts_along_rows(const Index& index, const Lanes& lanes) const {
  const Index moving = indices_.along_lanes(index), of_block = index - moving;
  std::vector<std::string> parts;
  if (!(of_block == Index(0))) parts.push_back(indices_.spelled(of_block, lanes));
  if (moving == Index(0)) return parts;
  const std::string text = indices_.spelled(moving, lanes);
  const auto uses = offsets_.find(indices_.spelled(moving, {}));
  const bool shared = moving.terms.size() > 1 && uses != offsets_.end() && uses->second > 1;
  parts.push_back(shared ? "(" + text + ")" : text);
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
    const std::string stride = indices_.spelled(strides[i], {});
    const bool single = kernel::as_constant(strides[i]) || kernel::as_symbol(strides[i]);
    const auto add = [&](const Text& part) {
      parts.push_back(strides[i] == Index(1)
                          ? part.text
                          : wrap(part, Binding::kMultiply) + " * " + (single ? stride : "(" + stride + ")"));
    };
    require_nonnegative_dividends(program_, coordinate.index);
    Index index = coordinate.index;
    if (coordinate.value != kNoValue) {
      // What is one number for the block comes first.
      if (Index of_block = indices_.without_lanes(index); !(of_block == Index(0))) {
        index = index - of_block;
        add({indices_.spelled(of_block, lanes, wide), Binding::kAdd});
      }
      const Text value = value_text(coordinate.value);
      add(wide && !value.constant ? Text{wrap(value, Binding::kAtom) + ".to(tl.int64)"} : value);
      covered = united(covered, program_.values[coordinate.value].type.lanes);
    }
    if (kernel::as_constant(index)) {
      constant = constant + index * strides[i];
      continue;
    }
    covered = united(covered, tile::lanes_of(program_, index));
    if (folds_rows_)
      for (const std::string& part : parts_along_rows(index, lanes)) parts.push_back(part);
    else add({indices_.spelled(index, lanes, wide), kernel::as_symbol(index) ? Binding::kAtom : Binding::kAdd});
  }
  if (!(constant == Index(0))) parts.push_back(indices_.spelled(constant, {}));
  Place place{buffer.name, join(parts, " + ")};
  if (covered != lanes) place.offset = place.offset.empty() ? zeros : zeros + " + " + place.offset;
  return place;
}

}  // namespace kw::triton
