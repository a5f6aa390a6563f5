// What is said of the function that prints a tile program, without printing it.
#include <algorithm>
#include <limits>
#include <set>

#include "emit/cpu/tile_printer.hpp"
#include "lower/loop_plan.hpp"

namespace kw::cpu {

using lower::LoopStep;
using tile::Instruction;
using tile::Kind;
using tile::Value;

namespace {

// When the loops over a row, one after the other, read and write two buffers: a loop is one moment.
class Moments {
 public:
  Moments(int read, int written) : read_(read), written_(written) {}

  bool read_first(const std::vector<LoopStep>& nests) {
    walk(nests, false);
    return last_read_ <= first_write_;
  }

 private:
  void walk(const std::vector<LoopStep>& steps, bool in_lanes) {
    for (const LoopStep& step : steps) {
      if (!in_lanes) ++now_;
      const bool is_load = step.instruction && step.instruction->kind == Kind::kLoad;
      const bool is_store = step.instruction && step.instruction->kind == Kind::kStore;
      if (is_load && step.instruction->access.buffer == read_) last_read_ = now_;
      if (is_store && step.instruction->access.buffer == written_) first_write_ = std::min(first_write_, now_);
      walk(step.body, in_lanes || !step.instruction || is_innermost(step));
    }
  }

  static bool is_innermost(const LoopStep& step) {
    return std::none_of(step.body.begin(), step.body.end(), [](const LoopStep& inner) {
      return !inner.instruction || inner.instruction->kind == Kind::kFor;
    });
  }

  const int read_, written_;
  int now_ = 0, last_read_ = 0, first_write_ = std::numeric_limits<int>::max();
};

}  // namespace

bool reads_before_it_writes(const lower::Lowered& lowered, int read, int written) {
  const tile::Program& program = lowered.program;
  if (!program.grid.empty()) return false;
  std::set<Value> loaded;
  bool moves = false, folds = false;
  tile::for_each(program.body, [&](const Instruction& one) {
    folds = folds || one.kind == Kind::kFold || one.kind == Kind::kDot || one.kind == Kind::kScan ||
            (one.kind == Kind::kFor && !one.arguments.empty());
    if (one.kind == Kind::kLoad && one.access.buffer == read) loaded.insert(one.results[0]);
    if (one.kind == Kind::kStore && one.access.buffer == written) moves = moves || loaded.count(one.operands[0]) != 0;
  });
  const std::vector<LoopStep>& nests = lowered.loops->body;
  // Nests are of elements of their own (regions), but where one folds what another reads again.
  if (folds) return !moves && Moments(read, written).read_first(nests);
  return !moves && std::all_of(nests.begin(), nests.end(),
                               [&](const LoopStep& nest) { return Moments(read, written).read_first({nest}); });
}

size_t pointer_count(const tile::Program& program) {
  return static_cast<size_t>(
      std::count_if(program.buffers.begin(), program.buffers.end(),
                    [](const tile::Buffer& buffer) { return buffer.space == tile::Space::kGlobal; }));
}

bool takes_threads(const tile::Program& program) {
  bool shares = !program.grid.empty();
  tile::for_each(program.body, [&](const Instruction& one) { shares = shares || one.shared; });
  for (const tile::SymbolInfo& symbol : program.symbols) shares = shares || symbol.shared;
  return shares;
}

bool refuses_indices(const tile::Program& program) {
  bool refuses = false;
  tile::for_each(program.body, [&](const Instruction& one) {
    refuses = refuses || (one.kind == Kind::kOp && one.op == tile::ScalarOp::kBounded);
  });
  return refuses;
}

}  // namespace kw::cpu
