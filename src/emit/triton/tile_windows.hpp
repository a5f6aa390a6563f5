// Windows: tensor descriptors through which the bulk copy engine reads or writes a buffer, box by box.
#pragma once

#include <string>
#include <vector>

#include "emit/triton/index_text.hpp"
#include "tile/program.hpp"

namespace kw::triton {

class TileWindows {
 public:
  struct Window {
    int buffer;
    std::vector<tile::Symbol> lanes;  // along each dimension; −1: a single point
    std::string name;                 // "x_window"
    bool is_written = false;
  };

  // Those of the program's bulk loads and stores: one for each buffer and shape of box.
  TileWindows(const tile::Program& program, const IndexText& indices);

  const std::vector<Window>& all() const { return windows_; }
  const Window& of(const tile::Instruction& access) const;
  std::string shape_text(const Window& window) const;  // of its boxes: "[64, 128]"
  // Where the box lies: "[row_block * 16, 0]".
  std::string origin_text(const tile::Instruction& access) const;
  // The arguments of tl.make_tensor_descriptor.
  std::vector<std::string> arguments(const Window& window) const;
  // "x_window.load([row_block * 16, 0])", as a tile of the result's dimensions.
  std::string load_text(const tile::Instruction& load) const;
  // "y_window.store([row_block * 16, 0], tile)".
  std::string store_text(const tile::Instruction& store, const std::string& tile) const;

 private:
  const tile::Program& program_;
  const IndexText& indices_;
  std::vector<Window> windows_;
};

}  // namespace kw::triton
