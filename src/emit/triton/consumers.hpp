// Programs with consumers, in Gluon, Triton's language for single warps: the kernel, its producer, and what a consumer
// has to say where other programs load and multiply.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emit/triton/tile_names.hpp"
#include "emit/triton/tile_windows.hpp"
#include "tile/program.hpp"

namespace kw::triton {

inline constexpr std::string_view kGluonImports =
    "from triton.experimental import gluon\n"
    "from triton.experimental.gluon import language as gl\n"
    "from triton.experimental.gluon.language.nvidia import hopper\n";

inline bool has_consumers(const tile::Program& program) { return program.consumers.count > 1; }

class ConsumerText {
 public:
  ConsumerText(const tile::Program& program, const IndexNames& names, const TileWindows& windows);

  // The functions beside the consumer's own: the producer's, and the kernel.
  std::string producer() const;
  std::string kernel() const;

  // A consumer's first lines, with "@gluon.jit". What depends on the grid stands behind its symbols' lines; before
  // them, where a program does several groups of blocks, the head of the loop over these.
  std::vector<std::string> definition() const;
  std::vector<std::string> walk() const;
  std::vector<std::string> behind_symbols() const;
  // At the start of the loop's body: waits for what the producer copied. Behind its last product: lets it copy again.
  // At the end of the body.
  std::vector<std::string> begin_iteration() const;
  std::string free_places() const;
  std::vector<std::string> end_iteration() const;
  // What a load of the loop is: a part of shared memory.
  std::string loaded(const tile::Instruction& load) const;
  // The layout of products' results; empty for values of other lanes.
  std::string layout_of(const tile::TileType& type) const;
  // Is this product added to by another one alone, so that nobody waits for it?
  bool is_added_to(const tile::Instruction& dot) const;
  bool is_last(const tile::Instruction& dot) const;

 private:
  std::string unique(std::string name) const;
  std::string name_of_places(const tile::Instruction& load) const;
  std::vector<std::string> places() const;  // of all loads
  std::vector<std::string> buffers() const;
  std::string number_of_iteration() const;
  std::string along_blocks() const;  // "row_block = row_block_pair * 2 + consumer"

  const tile::Program& program_;
  const IndexNames& names_;
  const TileWindows& windows_;
  const tile::Instruction& loop_;
  std::vector<const tile::Instruction*> loads_, dots_;
  std::string consumer_, step_, stage_, turn_, ready_, free_, layout_;
};

}  // namespace kw::triton
