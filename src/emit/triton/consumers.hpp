// Programs with consumers, in Gluon, Triton's language for single warps: the kernel, its producer, and what a consumer
// has to say where other programs load and multiply.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emit/triton/index_text.hpp"
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
  ConsumerText(const tile::Program& program, const IndexText& indices, const TileWindows& windows);

  // The functions beside the consumer's own: the producer's, and the kernel.
  std::string producer() const;
  std::string kernel() const;

  // A consumer's first lines, with "@gluon.jit". What depends on the grid stands behind its symbols' lines; before
  // them, where a program does several groups of blocks, the head of the loop over these.
  std::vector<std::string> definition() const;
  std::vector<std::string> walk() const;
  // Where blocks are taken in turn, in front of the loop: waits until the other's products are under way.
  std::vector<std::string> before_loop() const;
  std::vector<std::string> behind_symbols() const;
  std::vector<std::string> end_iteration() const;
  // Where blocks are taken in turn, behind the loop: it is the other's turn.
  std::vector<std::string> behind_loop() const;
  // What waits, releases and skips are.
  std::vector<std::string> waits(const tile::Instruction& one) const;
  // What a load of the loop is: a part of shared memory, or that in registers.
  std::string loaded(const tile::Instruction& load) const;
  // Where each thread has its part of what the instruction makes.
  std::string layout_of(const tile::Instruction& one) const;
  // Is the value what the loop has carried in the end?
  bool is_left_by_loop(tile::Value value) const;
  // A bulk store: through a tile in shared memory, from which the engine copies while the consumer goes on. At the
  // function's end, what is still under way.
  std::vector<std::string> stores(const tile::Instruction& store, const std::string& tile) const;
  std::vector<std::string> end() const;

 private:
  tile::Index common(const tile::Index& index) const;
  std::string unique(std::string name) const;
  std::string name_of_places(const tile::Instruction& load) const;
  std::vector<std::string> places() const;  // of all loads
  std::string name_of_tiles(const tile::Instruction& store) const;
  std::vector<std::string> buffers() const;
  std::vector<std::string> results() const;
  std::string number_of_iteration() const;
  std::vector<std::string> stage_lines() const;
  std::string place_of(const tile::Instruction& load) const;  // of an iteration's box among all
  std::string release(int back, bool inside) const;
  bool in_turn() const { return program_.consumers.along < 0; }
  const tile::SymbolInfo& groups_of_blocks() const;
  std::string iterations() const;  // of the loop
  std::string layout_of_stores() const;

  const tile::Program& program_;
  const IndexText& indices_;
  const TileWindows& windows_;
  const tile::Instruction& loop_;
  std::vector<const tile::Instruction*> loads_, bulk_stores_;
  const tile::TileType* sums_ = nullptr;  // of products
  std::string consumer_, step_, stage_, turn_, ready_, free_, layout_, left_layout_, store_layout_, number_, done_;
};

}  // namespace kw::triton
