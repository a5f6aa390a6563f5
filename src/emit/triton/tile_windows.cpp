#include "emit/triton/tile_windows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"
#include "tile/box.hpp"

namespace kw::triton {

using tile::Instruction;
using tile::Symbol;

namespace {

std::string list(const std::vector<std::string>& texts) { return "[" + join(texts, ", ") + "]"; }

}  // namespace

TileWindows::TileWindows(const tile::Program& program, const IndexText& indices)
    : program_(program), indices_(indices) {
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind == tile::Kind::kCopy || one.mode != tile::CopyMode::kBulk) return;
    const std::vector<Symbol> lanes = tile::box_of(program, one.access)->lanes;
    const auto is_known = [&](const Window& window) {
      return window.buffer == one.access.buffer && window.lanes == lanes;
    };
    if (std::any_of(windows_.begin(), windows_.end(), is_known)) return;
    const std::string base = program.buffers[one.access.buffer].name + "_window";
    std::string name = base;
    const auto is_taken = [&](const Window& window) { return window.name == name; };
    for (int number = 2; indices.is_taken(name) || std::any_of(windows_.begin(), windows_.end(), is_taken); ++number)
      name = fmt::format("{}_{}", base, number);
    windows_.push_back({one.access.buffer, lanes, name, one.kind == tile::Kind::kStore});
  });
}

const TileWindows::Window& TileWindows::of(const Instruction& access) const {
  const std::vector<Symbol> lanes = tile::box_of(program_, access.access)->lanes;
  return *std::find_if(windows_.begin(), windows_.end(),
                       [&](const Window& one) { return one.buffer == access.access.buffer && one.lanes == lanes; });
}

std::string TileWindows::shape_text(const Window& window) const {
  std::vector<std::string> widths;
  for (Symbol lane : window.lanes) widths.push_back(std::to_string(lane < 0 ? 1 : tile::width_of(program_, lane)));
  return list(widths);
}

std::vector<std::string> TileWindows::arguments(const Window& window) const {
  const tile::Buffer& buffer = program_.buffers[window.buffer];
  std::vector<std::string> shape, strides;
  for (const tile::Index& size : buffer.shape) shape.push_back(indices_.spelled(size, {}));
  for (const tile::Index& stride : tile::strides_of(buffer)) strides.push_back(indices_.spelled(stride, {}));
  return {buffer.name, "shape=" + list(shape), "strides=" + list(strides), "block_shape=" + shape_text(window)};
}

std::string TileWindows::origin_text(const Instruction& access) const {
  std::vector<std::string> origin;
  const tile::Box box = *tile::box_of(program_, access.access);
  for (const tile::Index& index : box.origin) origin.push_back(indices_.spelled(index, {}));
  return list(origin);
}

std::string TileWindows::load_text(const Instruction& load) const {
  const Window& window = of(load);
  std::vector<std::string> widths;
  for (Symbol lane : window.lanes)
    if (lane >= 0) widths.push_back(std::to_string(tile::width_of(program_, lane)));
  const std::string text = fmt::format("{}.load({})", window.name, origin_text(load));
  return widths.size() == window.lanes.size() ? text : fmt::format("{}.reshape({})", text, join(widths, ", "));
}

std::string TileWindows::store_text(const Instruction& store, const std::string& tile) const {
  const Window& window = of(store);
  const bool is_whole = std::count(window.lanes.begin(), window.lanes.end(), -1) == 0;
  return fmt::format("{}.store({}, {})", window.name, origin_text(store),
                     is_whole ? tile : fmt::format("tl.reshape({}, {})", tile, shape_text(window)));
}

}  // namespace kw::triton
