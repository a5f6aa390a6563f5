#include "tile/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "support/error.hpp"
#include "tile/block_places.hpp"
#include "tile/block_run.hpp"
#include "tile/definitions.hpp"
#include "tile/storage.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

// The most blocks of a cluster that devices have.
constexpr size_t kMostBlocksOfCluster = 16;

bool has_wide_barrier(const Instruction& instruction) {
  if (instruction.kind == Kind::kBarrier) return instruction.scope != Scope::kBlock;
  const auto inside = [](const std::vector<Instruction>& body) {
    return std::any_of(body.begin(), body.end(), has_wide_barrier);
  };
  return inside(instruction.body) || inside(instruction.otherwise_body);
}

class GridRun {
 public:
  GridRun(const Program& program, Arithmetic arithmetic) : program_(program), world_(program, arithmetic) {}

  Memory run(const Memory& memory, const std::map<std::string, int64_t>& sizes) {
    take_sizes(sizes);
    take_memory(memory);
    const std::vector<std::vector<int64_t>> positions = blocks();
    check_clusters(positions.size());
    if (std::any_of(program_.body.begin(), program_.body.end(), has_wide_barrier)) {
      std::vector<std::unique_ptr<BlockRun>> all;
      for (size_t block = 0; block < positions.size(); ++block)
        all.push_back(std::make_unique<BlockRun>(world_, static_cast<int>(block), positions[block]));
      share_rows(positions);
      run_in_step(program_.body, all);
    } else {
      for (size_t block = 0; block < positions.size(); ++block)
        BlockRun(world_, static_cast<int>(block), positions[block]).run(program_.body);
    }
    return result();
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::kUser, fmt::format("tile program '{}': {}", program_.name, message));
  }

  void take_sizes(const std::map<std::string, int64_t>& sizes) {
    symbols_.assign(program_.symbols.size(), 0);
    size_t taken = 0;
    for (size_t symbol = 0; symbol < symbols_.size(); ++symbol) {
      const SymbolInfo& info = program_.symbols[symbol];
      if (info.kind != SymbolKind::kSize) continue;
      const auto found = sizes.find(info.name);
      if (found == sizes.end() && info.threads == 0) refuse(fmt::format("size '{}' is missing", info.name));
      const int64_t value = found == sizes.end() ? 1 : found->second;
      if (value < info.range.low || value > info.range.high || value % info.range.divisor != 0)
        refuse(fmt::format("size '{}' is {}, not a multiple of {} in {}..{}", info.name, value, info.range.divisor,
                           info.range.low, info.range.high));
      symbols_[symbol] = value;
      if (found != sizes.end()) ++taken;
    }
    if (taken == sizes.size()) return;
    for (const auto& [name, value] : sizes) {
      const auto is_it = [&](const SymbolInfo& info) { return info.kind == SymbolKind::kSize && info.name == name; };
      if (std::none_of(program_.symbols.begin(), program_.symbols.end(), is_it))
        refuse(fmt::format("no size is called '{}'", name));
    }
  }

  void take_memory(const Memory& memory) {
    storages_.reserve(program_.buffers.size());
    for (const auto& [name, numbers] : memory) {
      const auto is_it = [&](const Buffer& buffer) { return buffer.space == Space::kGlobal && buffer.name == name; };
      if (std::none_of(program_.buffers.begin(), program_.buffers.end(), is_it))
        refuse(fmt::format("no buffer in global memory is called '{}'", name));
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.space == Space::kShared) continue;
      Storage& storage = storages_.emplace_back(buffer, symbols_);
      world_.storages[i] = &storage;
      const auto found = memory.find(buffer.name);
      if (found != memory.end()) take_elements(storage, found->second);
      else if (buffer.role == BufferRole::kInput || buffer.role == BufferRole::kInOut)
        refuse(fmt::format("buffer '{}' is missing", buffer.name));
      else storage.fill_unwritten();
    }
  }

  void take_elements(Storage& storage, const kernel::Numbers& given) const {
    const Buffer& buffer = storage.buffer();
    const bool real = kernel::is_real(buffer.dtype);
    const size_t count = real ? given.reals.size() : given.wholes.size();
    if (static_cast<int64_t>(count) != storage.elements() || !(real ? given.wholes.empty() : given.reals.empty()))
      refuse(fmt::format("buffer '{}' has {} {}, but {} {} are expected", buffer.name,
                         given.reals.size() + given.wholes.size(), given.wholes.empty() ? "reals" : "whole numbers",
                         storage.elements(), real ? "reals" : "whole numbers"));
    storage.numbers() = given;
    if (!real)
      for (int64_t& whole : storage.numbers().wholes) whole = kernel::wrap_to(buffer.dtype, whole);
    else if (world_.arithmetic == Arithmetic::kAsTyped)
      for (double& number : storage.numbers().reals) number = kernel::round_to(buffer.dtype, number);
  }

  // All symbols' values for every block; the last of the grid is the fastest, if their numbers do not say how.
  std::vector<std::vector<int64_t>> blocks() const {
    if (!program_.places.empty()) return numbered_blocks();
    std::vector<std::vector<int64_t>> all = {symbols_};
    for (const Symbol symbol : program_.grid) {
      const int64_t count = kernel::evaluate(program_.symbols[symbol].count, symbols_);
      std::vector<std::vector<int64_t>> more;
      for (const std::vector<int64_t>& one : all)
        for (int64_t position = 0; position < count; ++position) {
          more.push_back(one);
          more.back()[symbol] = position;
        }
      all = std::move(more);
    }
    return all;
  }

  std::vector<std::vector<int64_t>> numbered_blocks() const {
    const Symbol number = number_of_block(program_), consumer = number_of_consumer(program_);
    const int64_t members = consumer >= 0 ? width_of(program_, consumer) : 1;
    int64_t count = 1;
    for (const Symbol symbol : program_.grid) count *= kernel::evaluate(launched_along(program_, symbol), symbols_);
    std::vector<std::vector<int64_t>> all;
    std::set<std::vector<int64_t>> taken;
    for (int64_t block = 0; block < count * members; ++block) {
      std::vector<int64_t>& values = all.emplace_back(symbols_);
      values[number] = block / members;
      if (consumer >= 0) values[consumer] = block % members;
      for (const Symbol symbol : program_.places)
        values[symbol] = kernel::evaluate(program_.symbols[symbol].value, values);
      std::vector<int64_t> place;
      for (const Symbol symbol : program_.grid) {
        place.push_back(values[symbol]);
        const int64_t blocks = kernel::evaluate(program_.symbols[symbol].count, symbols_);
        if (values[symbol] < 0 || values[symbol] >= blocks)
          refuse(fmt::format("block {} is at {} of {} along '{}'", block, values[symbol], blocks,
                             program_.symbols[symbol].name));
      }
      if (!taken.insert(place).second) refuse(fmt::format("block {} is where another one is", block));
    }
    return all;
  }

  // Blocks of one row have the same position but along what they share.
  void share_rows(const std::vector<std::vector<int64_t>>& positions) {
    const std::vector<Symbol> shared = shared_rows(program_);
    if (shared.empty()) return;
    std::map<std::vector<int64_t>, int> rows;
    for (std::vector<int64_t> position : positions) {
      for (const Symbol symbol : shared) position[symbol] = 0;
      row_of_.push_back(rows.emplace(std::move(position), static_cast<int>(rows.size())).first->second);
    }
    for (Storage& storage : storages_) storage.set_rows(row_of_);
  }

  // A program does not say how many blocks a cluster has: all of them are one.
  void check_clusters(size_t blocks) const {
    bool clusters = false;
    for (const Buffer& buffer : program_.buffers) clusters = clusters || buffer.space == Space::kCluster;
    for_each(program_.body, [&](const Instruction& instruction) {
      clusters = clusters || (instruction.kind == Kind::kBarrier && instruction.scope == Scope::kCluster);
    });
    if (clusters && blocks > kMostBlocksOfCluster)
      throw Error(ErrorKind::kInternal, fmt::format("tile program '{}' uses a cluster, but has {} blocks: more than {}",
                                                    program_.name, blocks, kMostBlocksOfCluster));
  }

  using Blocks = std::vector<std::unique_ptr<BlockRun>>;

  // All blocks do an instruction that has a wide barrier inside before any does the next.
  void run_in_step(const std::vector<Instruction>& body, const Blocks& blocks) {
    for (const Instruction& instruction : body) {
      if (!has_wide_barrier(instruction)) {
        for (const auto& block : blocks) block->run(instruction);
      } else if (instruction.kind == Kind::kFor) {
        run_loop_in_step(instruction, blocks);
      } else if (instruction.kind == Kind::kIf) {
        run_branch_in_step(instruction, blocks);
      } else {
        for (const auto& block : blocks) block->pass_barrier();
        for (Storage& storage : storages_) storage.pass_barrier(!instruction.lanes.empty());
      }
    }
  }

  void run_loop_in_step(const Instruction& loop, const Blocks& blocks) {
    if (blocks.empty()) return;
    const std::vector<int64_t> iterations = blocks[0]->iterations_of(loop);
    for (const auto& block : blocks)
      if (block->iterations_of(loop) != iterations)
        block->fail(loop, "a barrier of several blocks is in a loop that is not the same for all blocks");
    for (const auto& block : blocks) block->enter(loop);
    for (int64_t value : iterations) {
      for (const auto& block : blocks) block->begin_iteration(loop, value);
      run_in_step(loop.body, blocks);
      for (const auto& block : blocks) block->end_iteration(loop);
    }
    for (const auto& block : blocks) block->leave(loop);
  }

  void run_branch_in_step(const Instruction& branch, const Blocks& blocks) {
    if (blocks.empty()) return;
    const bool holds = blocks[0]->condition_of(branch);
    for (const auto& block : blocks)
      if (block->condition_of(branch) != holds)
        block->fail(branch, "a barrier of several blocks is where only some blocks go");
    run_in_step(holds ? branch.body : branch.otherwise_body, blocks);
    for (const auto& block : blocks) block->take_yields(branch, holds);
  }

  Memory result() {
    Memory memory;
    for (Storage& storage : storages_)
      if (storage.buffer().role == BufferRole::kOutput || storage.buffer().role == BufferRole::kInOut)
        memory[storage.buffer().name] = std::move(storage.numbers());
    return memory;
  }

  const Program& program_;
  World world_;
  std::vector<int64_t> symbols_;   // [symbol]: the sizes
  std::vector<Storage> storages_;  // global and cluster buffers
  std::vector<int> row_of_;        // [block], where blocks share rows
};

}  // namespace

Memory interpret(const Program& program, const Memory& memory, const std::map<std::string, int64_t>& sizes,
                 Arithmetic arithmetic) {
  verify(program);
  if (!has_named_indices(program)) return GridRun(program, arithmetic).run(memory, sizes);
  const Program meant = written_out(program);
  return GridRun(meant, arithmetic).run(memory, sizes);
}

}  // namespace kw::tile
