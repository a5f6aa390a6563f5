// One block of a program at work in the interpreter: its values, its shared memory, its copies under way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tile/interpreter.hpp"
#include "tile/points.hpp"
#include "tile/storage.hpp"

namespace kw::tile {

// What all blocks have in common.
struct World {
  World(const Program& program, Arithmetic arithmetic)
      : program(program), arithmetic(arithmetic), points(program), storages(program.buffers.size()) {}

  const Program& program;
  Arithmetic arithmetic;
  Points points;
  std::vector<Storage*> storages;  // [buffer]; none for shared ones
  int64_t moment = 0;              // stores so far
};

class BlockRun {
 public:
  // `symbols` has the sizes and the block's position.
  BlockRun(World& world, int number, std::vector<int64_t> symbols);

  void run(const std::vector<Instruction>& body);
  void run(const Instruction& instruction);

  // The parts of loops, ifs and barriers, for blocks that go in step.
  std::vector<int64_t> iterations_of(const Instruction& loop) const;  // its variable's values, in order
  void enter(const Instruction& loop);
  void begin_iteration(const Instruction& loop, int64_t value) { symbols_[loop.symbol] = value; }
  void end_iteration(const Instruction& loop);
  void leave(const Instruction& loop);
  bool condition_of(const Instruction& branch) const;
  void take_yields(const Instruction& branch, bool holds);
  void pass_barrier();

  // Throws kInternal: the instruction, what is wrong, the values of sizes, position, loop variables, and `more`.
  [[noreturn]] void fail(const Instruction& instruction, std::string_view message, const std::string& more = "") const;

 private:
  // The elements that an access touches at every point of `lanes`; -1 where the mask does not hold.
  std::vector<int64_t> elements_of(const Instruction& instruction, const Access& access,
                                   const std::vector<Symbol>& lanes);
  [[noreturn]] void fail_at_point(const Instruction& instruction, const Access& access, std::string_view message,
                                  const std::vector<Symbol>& lanes, int64_t point) const;

  void run_define(const Instruction& instruction);
  void run_constant(const Instruction& instruction);
  void run_index(const Instruction& instruction);
  void run_op(const Instruction& instruction);
  void run_load(const Instruction& instruction);
  void run_store(const Instruction& instruction);
  void run_copy(const Instruction& instruction);
  void wait(int pending);
  void run_dot(const Instruction& instruction);
  void run_renamed(const Instruction& instruction);
  void run_stack(const Instruction& instruction);
  void run_unstack(const Instruction& instruction);
  void run_fold(const Instruction& instruction);
  void run_scan(const Instruction& instruction);
  void run_loop(const Instruction& instruction);

  const TileType& type_of(Value value) const { return world_.program.values[value].type; }
  bool rounds() const { return world_.arithmetic == Arithmetic::kAsTyped; }
  // Rounds or wraps what was computed to its type.
  void finish(DType dtype, kernel::Numbers& numbers) const;
  Storage& storage_of(const Access& access);

  struct CopyUnderWay {
    Storage* destination;
    std::vector<int64_t> elements;
    std::vector<kernel::Number> values;
  };

  World& world_;
  const int number_;
  std::vector<int64_t> symbols_;                  // [symbol]
  std::vector<kernel::Numbers> values_;           // [value]
  std::vector<std::unique_ptr<Storage>> shared_;  // [buffer]; none where the buffer is not shared
  std::deque<CopyUnderWay> under_way_;            // the oldest first
  std::vector<const Instruction*> loops_;         // open ones
  int64_t iterations_ = 0;                        // so far, of loops that threads share
  int64_t iteration_ = 0, first_iteration_ = 0;   // this one, and the first of its loops; 0: none is open
};

}  // namespace kw::tile
