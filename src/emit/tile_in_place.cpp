#include "emit/tile_in_place.hpp"

#include <algorithm>

namespace kw {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;

bool is_affine(const tile::Access& access) {
  return std::all_of(access.coordinates.begin(), access.coordinates.end(),
                     [](const tile::Coordinate& coordinate) { return coordinate.value == kNoValue; });
}

bool is_same_place(const tile::Program& program, const tile::Access& left, const tile::Access& right) {
  return is_affine(left) && is_affine(right) && left.mask == right.mask &&
         tile::offset_of(program, left) == tile::offset_of(program, right);
}

// Walks the bodies of a program, of which each may store to `written` once what it has read of `read`.
class Walk {
 public:
  Walk(const tile::Program& program, int read, int written) : program_(program), read_(read), written_(written) {}

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

}  // namespace

bool reads_what_it_writes(const tile::Program& program, int read, int written) {
  return Walk(program, read, written).holds();
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

}  // namespace kw
