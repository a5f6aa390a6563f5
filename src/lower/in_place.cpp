#include "lower/in_place.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "lower/loop_plan.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Value;

constexpr int64_t kThreadsOfWarp = 32;

bool is_affine(const tile::Access& access) {
  return std::all_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const tile::Coordinate& coordinate) { return coordinate.value == kNoValue; });
}

bool is_same_place(const tile::Program& program, const tile::Access& left, const tile::Access& right) {
  return is_affine(left) && is_affine(right) && left.mask == right.mask &&
         tile::offset_of(program, left) == tile::offset_of(program, right);
}

// Walks the bodies of a program, of which each may store to `written` once what it has read of `read`.
class StoreWalk {
 public:
  StoreWalk(const tile::Program& program, int read, int written) : program_(program), read_(read), written_(written) {}

  bool holds() {
    walk(program_.body);
    return holds_ && stored_;
  }

 private:
  void walk(const std::vector<Instruction>& body) {
    const Instruction* store = nullptr;
    for (const Instruction& one : body) {
      if (one.kind == Kind::kStore && one.access.buffer == written_) {
        holds_ = holds_ && !store && is_stored_once(one);
        store = &one;
      }
    }
    stored_ = stored_ || store;
    for (const Instruction& one : body) {
      if (one.kind == Kind::kFor) {
        loops_.push_back(&one);
        walk(one.body);
        loops_.pop_back();
      } else if (one.kind == Kind::kIf) {
        tile::for_each(one.body, [&](const Instruction& inner) { refuse_access(inner); });
        tile::for_each(one.otherwise_body, [&](const Instruction& inner) { refuse_access(inner); });
      } else if (one.kind == Kind::kStore) {
        holds_ = holds_ && one.access.buffer != read_;
      } else if (one.kind == Kind::kLoad) {
        const bool before = store && &one < store && is_same_place(program_, one.access, store->access);
        holds_ = holds_ && one.access.buffer != written_ && (one.access.buffer != read_ || before);
      }
    }
  }

  void refuse_access(const Instruction& one) {
    const bool accesses = one.kind == Kind::kLoad || one.kind == Kind::kStore;
    holds_ = holds_ && !(accesses && (one.access.buffer == read_ || one.access.buffer == written_));
  }

  // Blocks and iterations along which the place stays the same would all store to it, and the later read what the
  // earlier wrote.
  bool is_stored_once(const Instruction& store) const {
    const tile::Index place = tile::offset_of(program_, store.access);
    const auto moves = [&](tile::Symbol symbol) { return kernel::uses(place, symbol); };
    const auto& lanes = program_.values[store.operands[0]].type.lanes;
    return !store.combines && is_affine(store.access) && std::all_of(lanes.begin(), lanes.end(), moves) &&
           std::all_of(loops_.begin(), loops_.end(), [&](const Instruction* loop) { return moves(loop->symbol); }) &&
           std::all_of(program_.grid.begin(), program_.grid.end(), [&](tile::Symbol symbol) {
             return moves(symbol) || program_.symbols[symbol].count == tile::Index(1);
           });
  }

  const tile::Program& program_;
  const int read_, written_;
  std::vector<const Instruction*> loops_;  // around
  bool holds_ = true, stored_ = false;
};

// Follows what is loaded of one buffer.
class ReadingFirst {
 public:
  ReadingFirst(const tile::Program& program, int read, int written)
      : program_(program), read_(read), written_(written), depends_(program.values.size()) {}

  ReadFirst run() {
    for (const Instruction& one : program_.body) see(one, false);
    result_.holds = result_.holds && stored_;
    return result_;
  }

 private:
  bool any(const std::vector<tile::Value>& values) const {
    return std::any_of(values.begin(), values.end(),
                       [&](tile::Value value) { return value != kNoValue && depends_[value]; });
  }

  void see(const Instruction& one, bool in_loop) {
    if (one.kind == Kind::kIf) result_.holds = false;
    if (one.kind == Kind::kFor) return see_loop(one);
    std::vector<tile::Value> takes = one.operands;
    takes.push_back(one.access.mask);
    for (const tile::Coordinate& coordinate : one.access.coordinates) takes.push_back(coordinate.value);
    const bool accesses = one.kind == Kind::kLoad || one.kind == Kind::kStore;
    const bool loads = one.kind == Kind::kLoad && one.access.buffer == read_, depends = loads || any(takes);
    // A loop's next iteration would read what this one has written.
    if ((loads && stored_) || (in_loop && accesses && (one.access.buffer == read_ || one.access.buffer == written_)))
      result_.holds = false;
    for (tile::Value value : one.results) depends_[value] = depends;
    if (depends && (one.kind == Kind::kFold || one.kind == Kind::kScan || one.kind == Kind::kDot))
      result_.holds = false;
    if (one.kind != Kind::kStore) return;
    stored_ = stored_ || one.access.buffer == written_;
    result_.others = result_.others || (depends && one.access.buffer != written_);
  }

  // What a loop carries is folded.
  void see_loop(const Instruction& loop) {
    for (size_t at = 0; at < loop.arguments.size(); ++at) depends_[loop.arguments[at]] = depends_[loop.operands[at]];
    for (const Instruction& one : loop.body) see(one, true);
    if (any(loop.operands) || any(loop.yields)) result_.holds = false;
  }

  const tile::Program& program_;
  const int read_, written_;
  std::vector<bool> depends_;  // [value]
  bool stored_ = false;
  ReadFirst result_{true, false};
};

// When the loops over a row, one after the other, read and write two buffers: a loop is one moment.
class LoopMoments {
 public:
  LoopMoments(int read, int written) : read_(read), written_(written) {}

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

bool reads_what_it_writes(const tile::Program& program, int read, int written) {
  return StoreWalk(program, read, written).holds();
}

bool is_elementwise(const tile::Program& program, int read, int written) {
  bool maps = reads_what_it_writes(program, read, written);
  tile::for_each(program.body, [&](const Instruction& one) {
    switch (one.kind) {
      case Kind::kDefine:
      case Kind::kConstant:
      case Kind::kIndex:
      case Kind::kOp:
      case Kind::kLoad: return;
      case Kind::kStore: maps = maps && one.access.buffer == written; return;
      case Kind::kFor: maps = maps && one.arguments.empty(); return;
      default: maps = false;
    }
  });
  return maps;
}

ReadFirst reads_first(const tile::Program& program, int read, int written) {
  return ReadingFirst(program, read, written).run();
}

// Where a tile has fewer elements than its program has threads, several read the same one, and one of them may do so
// after another has written it.
bool reads_before_it_writes_on_gpu(const tile::Program& program, int read, int written) {
  const ReadFirst first = reads_first(program, read, written);
  if (!first.holds || !first.others) return first.holds;
  int64_t points = 1;
  for (const Instruction& one : program.body)
    if (one.kind == Kind::kStore && one.access.buffer == written)
      for (tile::Symbol lane : tile::lanes_of(program, one.access)) points *= tile::width_of(program, lane);
  return points >= kThreadsOfWarp * program.warps;
}

bool reads_before_it_writes_on_cpu(const Lowered& lowered, int read, int written) {
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
  if (folds) return !moves && LoopMoments(read, written).read_first(nests);
  return !moves && std::all_of(nests.begin(), nests.end(),
                               [&](const LoopStep& nest) { return LoopMoments(read, written).read_first({nest}); });
}

}  // namespace kw::lower
