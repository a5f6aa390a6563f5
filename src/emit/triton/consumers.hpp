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
  // At the start of the loop's body: waits for what the producer copied. At the end of the body.
  std::vector<std::string> begin_iteration() const;
  std::vector<std::string> end_iteration() const;
  // What a load of the loop is: a part of shared memory, or that in registers.
  std::string loaded(const tile::Instruction& load) const;
  // Where each thread has its part of a value, if that is to be said.
  std::string layout_of(tile::Value value) const;
  // Does an operand, numbers of rows, have to go to where the rows of sums are, for its user?
  bool moves(const tile::Instruction& user, tile::Value operand) const;
  std::string to_rows_of_sums(const std::string& text) const;
  // Behind the loop: moves what it carried.
  std::vector<std::string> behind_loop() const;
  // A bulk store: through a tile in shared memory, from which the engine copies while the consumer goes on. At the
  // function's end, what is still under way.
  std::vector<std::string> stores(const tile::Instruction& store, const std::string& tile) const;
  std::vector<std::string> end() const;
  // Products run by themselves from their instruction on. Before one that wants their sums (null: at the end of the
  // body) all of them are waited for; behind the loop's last, the producer may copy again. Products whose sums only
  // the next iteration's add to are waited for one iteration later: tensor cores never stand still between two.
  void starts(const tile::Instruction& dot);
  std::vector<std::string> waits_before(const tile::Instruction* user);

 private:
  std::string unique(std::string name) const;
  std::string name_of_places(const tile::Instruction& load) const;
  std::vector<std::string> places() const;  // of all loads
  std::string name_of_tiles(const tile::Instruction& store) const;
  std::vector<std::string> buffers() const;
  std::vector<std::string> results() const;
  std::string number_of_iteration() const;
  std::string last_stage() const;  // behind the loop
  bool in_turn() const { return program_.consumers.along < 0; }
  int64_t groups_of_blocks() const;
  const std::string& number_of_group() const;
  std::string iterations() const;  // of the loop
  std::string layout_of_stores() const;
  // Is this product added to by another one alone, so that nobody waits for it?
  bool is_added_to(const tile::Instruction& dot) const;
  std::string arrival(const std::string& stage, const std::string& condition = "") const;  // the producer may copy
                                                                                           // there
  std::string wait(tile::Value sum, size_t left_under_way) const;
  bool is_sum(tile::Value value) const;  // a product's

  const tile::Program& program_;
  const IndexText& indices_;
  const TileWindows& windows_;
  const tile::Instruction& loop_;
  std::vector<const tile::Instruction*> loads_, dots_, bulk_stores_;
  std::vector<const tile::Instruction*> under_way_;  // products that nobody has waited for
  const std::vector<bool> left_in_registers_;        // [value]
  std::string consumer_, step_, stage_, turn_, ready_, free_, layout_, left_layout_, store_layout_, number_, done_;
};

}  // namespace kw::triton
