#include "lower/loop_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "kernel/operations.hpp"
#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;
using List = std::vector<const Instruction*>;

template <typename Item>
bool meet(const std::set<Item>& left, const std::set<Item>& right) {
  return std::any_of(left.begin(), left.end(), [&](const Item& one) { return right.count(one) != 0; });
}

// What an instruction and its bodies read and write.
struct MemoryEffects {
  std::set<Value> used, made;
  std::set<int> loaded, stored;  // buffers
};

void add_effects(const Instruction& one, MemoryEffects& effects) {
  for_each_use(one, [&](Value value, Use) { effects.used.insert(value); });
  effects.made.insert(one.results.begin(), one.results.end());
  if (one.kind == Kind::kLoad || one.kind == Kind::kCopy) effects.loaded.insert(one.access.buffer);
  if (one.kind == Kind::kStore) effects.stored.insert(one.access.buffer);
  if (one.kind == Kind::kCopy) effects.stored.insert(one.destination.buffer);
  for (const Instruction& inner : one.body) add_effects(inner, effects);
  for (const Instruction& inner : one.otherwise_body) add_effects(inner, effects);
}

bool share_memory(const MemoryEffects& left, const MemoryEffects& right) {
  return meet(left.stored, right.stored) || meet(left.stored, right.loaded) || meet(left.loaded, right.stored);
}

class TreeBuilder {
 public:
  TreeBuilder(const tile::Program& program, const std::vector<int>& ranks, const std::vector<bool>& is_repeated,
              const Walks& walks)
      : program_(program), ranks_(ranks), is_repeated_(is_repeated), walks_(walks) {
    std::map<Value, const Instruction*> repeated;
    tile::for_each(program.body, [&](const Instruction& one) {
      add_effects(one, effects_[&one]);
      if (one.results.size() == 1 && is_repeated[one.results[0]]) repeated[one.results[0]] = &one;
    });
    for (auto& [one, effects] : effects_) {
      std::vector<Value> hidden(effects.used.begin(), effects.used.end());
      while (!hidden.empty()) {
        const auto found = repeated.find(hidden.back());
        hidden.pop_back();
        if (found == repeated.end()) continue;
        for_each_use(*found->second, [&](Value value, Use) {
          if (effects.used.insert(value).second) hidden.push_back(value);
        });
      }
    }
  }

  std::vector<LoopStep> block(const std::vector<Instruction>& body) {
    List list;
    for (const Instruction& one : body)
      if (one.results.empty() || !is_repeated_[one.results[0]]) list.push_back(&one);
    std::vector<LoopStep> result;
    for (const List& pass : passes_of(list))
      for (LoopStep& one : steps(pass, {})) result.push_back(std::move(one));
    return result;
  }

 private:
  static constexpr int kHiddenInstructions = 8;

  struct Group {
    Symbol lane;  // -1: one instruction that is in no loop
    List members;
  };

  // All folds that wait for equally many others come together, so that they can share their loops, each with what it
  // needs; other values come as late as they can. Stores stay behind all that is before them. In programs of loops: a
  // block of a grid keeps its order.
  std::vector<List> passes_of(const List& list) const {
    if (!program_.grid.empty() || !is_apart(list)) return {list};
    std::map<const Instruction*, int> passes;
    std::map<Value, int> made, needed;  // value → the pass behind which it is there; the first that needs it
    const auto pass_of = [](const std::map<Value, int>& known, Value value, int otherwise) {
      const auto found = known.find(value);
      return found == known.end() ? otherwise : found->second;
    };
    int last = 0;
    for (const Instruction* one : list) {
      int& pass = passes[one];
      for (Value value : effects_.at(one).used) pass = std::max(pass, pass_of(made, value, 0));
      if (one->results.empty() || one->kind == Kind::kFor) pass = std::max(pass, last);
      last = std::max(last, pass);
      for (Value value : one->results) made[value] = pass + (one->kind == Kind::kFold ? 1 : 0);
    }
    for (size_t i = list.size(); i-- > 0;) {
      int& pass = passes[list[i]];
      if (maps(*list[i])) pass = pass_of(needed, list[i]->results[0], last);
      for (Value value : effects_.at(list[i]).used) needed[value] = std::min(pass_of(needed, value, last), pass);
    }
    std::vector<List> result(last + 1);
    for (const Instruction* one : list) result[passes[one]].push_back(one);
    return result;
  }

  static bool maps(const Instruction& one) {
    return one.kind == Kind::kConstant || one.kind == Kind::kIndex || one.kind == Kind::kOp || one.kind == Kind::kLoad;
  }

  // Is nothing loaded that is stored, too?
  bool is_apart(const List& list) const {
    MemoryEffects all;
    for (const Instruction* one : list) {
      const MemoryEffects& effects = effects_.at(one);
      all.loaded.insert(effects.loaded.begin(), effects.loaded.end());
      all.stored.insert(effects.stored.begin(), effects.stored.end());
    }
    return !meet(all.loaded, all.stored);
  }

  std::vector<LoopStep> steps(const List& list, const Lanes& open) {
    std::vector<Group> groups;
    for (const Instruction* one : list) {
      const Symbol lane = outermost(*one, open);
      if (Group* group = lane < 0 ? nullptr : group_for(groups, *one, lane)) group->members.push_back(one);
      else groups.push_back({lane, {one}});
    }
    std::vector<LoopStep> result;
    for (const Group& group : groups) result.push_back(step(group, open));
    return result;
  }

  LoopStep step(const Group& group, Lanes open) {
    LoopStep result;
    if (group.lane >= 0) {
      result.lane = group.lane;
      open.push_back(group.lane);
      result.body = steps(group.members, open);
      return result;
    }
    result.instruction = group.members[0];
    result.body = block(result.instruction->body);
    result.otherwise_body = block(result.instruction->otherwise_body);
    return result;
  }

  // The last loop over the lane that it can join. What it needs from behind that loop goes before it, if that can.
  Group* group_for(std::vector<Group>& groups, const Instruction& one, Symbol lane) const {
    for (size_t i = groups.size(); i-- > 0;) {
      if (groups[i].lane != lane || !can_join(groups[i], one)) continue;
      std::vector<bool> needed(groups.size());
      for (size_t later = groups.size(); --later > i;)
        needed[later] = depends_on(groups[later], one) || is_needed_by(groups, needed, later);
      if (is_needed_by(groups, needed, i)) return nullptr;
      const auto place = groups.begin() + static_cast<std::ptrdiff_t>(i);
      size_t before = i;
      for (size_t later = i + 1; later < groups.size(); ++later)
        if (needed[later]) {
          const auto found = groups.begin() + static_cast<std::ptrdiff_t>(later);
          std::rotate(place + static_cast<std::ptrdiff_t>(before - i), found, found + 1);
          ++before;
        }
      return &groups[before];
    }
    return nullptr;
  }

  // Does one of the needed groups behind it depend on it?
  bool is_needed_by(const std::vector<Group>& groups, const std::vector<bool>& needed, size_t place) const {
    for (size_t later = place + 1; later < groups.size(); ++later) {
      if (!needed[later]) continue;
      for (const Instruction* one : groups[later].members)
        if (depends_on(groups[place], *one)) return true;
    }
    return false;
  }

  bool depends_on(const Group& group, const Instruction& one) const {
    const MemoryEffects& effects = effects_.at(&one);
    return std::any_of(group.members.begin(), group.members.end(), [&](const Instruction* before) {
      const MemoryEffects& earlier = effects_.at(before);
      return meet(earlier.made, effects.used) || share_memory(earlier, effects);
    });
  }

  // An iteration may use what the same iteration made; what is folded over the lane is there only behind the loop.
  bool can_join(const Group& group, const Instruction& one) const {
    const MemoryEffects& effects = effects_.at(&one);
    if (!fits_into_walk(group, one) || is_sort(one) != is_sort(*group.members[0])) return false;
    return std::all_of(group.members.begin(), group.members.end(), [&](const Instruction* before) {
      const MemoryEffects& earlier = effects_.at(before);
      if (is_simple_scan(one) && is_simple_scan(*before) && one.from == before->from &&
          one.reversed != before->reversed)
        return false;
      return !share_memory(earlier, effects) && std::all_of(earlier.made.begin(), earlier.made.end(), [&](Value value) {
        return !effects.used.count(value) || tile::has_lane(program_.values[value].type.lanes, group.lane);
      });
    });
  }

  // Rows that are sorted beside one another lie side by side: lines of memory are read for all of them first.
  static bool is_sort(const Instruction& one) { return one.kind == Kind::kScan && kernel::is_sort(one.reduce); }

  // Each step of a walk waits for the one before, as does what a fold takes along, and few instructions are hidden
  // behind that: others take their points side by side in loops of their own.
  bool fits_into_walk(const Group& group, const Instruction& one) const {
    const auto walks = [&](const Instruction& other) {
      if (folds_along(other)) return tile::has_lane(other.lanes, group.lane);
      const auto walk = walks_.along.find(&other);
      return walk != walks_.along.end() && walk->second == group.lane;
    };
    const auto weight = [&](const Instruction& other) {
      return walks(other) ? 0 : other.kind == Kind::kOp ? kernel::vector_instructions_of(other.op) : 1;
    };
    int instructions = weight(one);
    bool has_walk = walks(one);
    for (const Instruction* before : group.members) {
      instructions += weight(*before);
      has_walk = has_walk || walks(*before);
    }
    return !has_walk || instructions <= kHiddenInstructions;
  }

  // The lanes over which it is put into loops.
  Lanes lanes_of(const Instruction& one) const {
    const auto type_lanes = [&](Value value) { return program_.values[value].type.lanes; };
    switch (one.kind) {
      case Kind::kDot:
      case Kind::kFor:
      case Kind::kIf:
      case Kind::kWait:
      case Kind::kRelease:
      case Kind::kSkip:
      case Kind::kBarrier: return {};
      case Kind::kFold: return type_lanes(one.operands[0]);
      case Kind::kScan: {
        Lanes lanes = type_lanes(one.results[0]);
        if (!is_simple_scan(one)) std::erase(lanes, one.from);
        return lanes;
      }
      case Kind::kCopy: return one.lanes;
      case Kind::kStore: {
        Lanes lanes = type_lanes(one.operands[0]);
        for (Symbol lane : tile::lanes_of(program_, one.access))
          if (!tile::has_lane(lanes, lane)) lanes.push_back(lane);
        return lanes;
      }
      default: return type_lanes(one.results[0]);
    }
  }

  Symbol outermost(const Instruction& one, const Lanes& open) const {
    if (const auto walk = walks_.along.find(&one); walk != walks_.along.end() && !tile::has_lane(open, walk->second))
      return walk->second;
    Symbol first = -1;
    for (Symbol lane : lanes_of(one))
      if (!tile::has_lane(open, lane) && (first < 0 || ranks_[lane] < ranks_[first])) first = lane;
    return first;
  }

  const tile::Program& program_;
  const std::vector<int>& ranks_;
  const std::vector<bool>& is_repeated_;
  const Walks& walks_;
  std::map<const Instruction*, MemoryEffects> effects_;
};

// With which loops folds and scans begin.
class Beginnings {
 public:
  explicit Beginnings(const tile::Program& program) : program_(program) {}

  void note(std::vector<LoopStep>& block) {
    for (LoopStep& step : block) {
      if (!step.instruction) {
        open_.push_back(&step);
        note(step.body);
        open_.pop_back();
        continue;
      }
      if (step.instruction->kind == Kind::kFold) begin_fold(*step.instruction);
      if (is_simple_scan(*step.instruction)) begin_scan(*step.instruction);
      note(step.body);
      note(step.otherwise_body);
    }
  }

 private:
  // A fold begins before the outermost loop over what it folds.
  void begin_fold(const Instruction& fold) {
    for (LoopStep* loop : open_)
      if (tile::has_lane(fold.lanes, loop->lane)) return loop->folds.push_back({&fold});
  }

  void begin_scan(const Instruction& scan) {
    std::vector<Symbol> rows = program_.values[scan.results[0]].type.lanes;
    for (LoopStep* loop : open_) {
      std::erase(rows, loop->lane);
      if (loop->lane != scan.from) continue;
      loop->scans.push_back({&scan, scan.way == tile::ScanWay::kAfter ? std::vector<Symbol>() : rows});
      loop->reversed = scan.reversed;
    }
  }

  const tile::Program& program_;
  std::vector<LoopStep*> open_;
};

}  // namespace

bool folds_along(const Instruction& one) { return one.kind == Kind::kFold && one.operands.size() == 2; }

void for_each_use(const Instruction& one, const std::function<void(Value, Use)>& visit) {
  const bool whole = (one.kind == Kind::kScan && !is_simple_scan(one)) || one.kind == Kind::kRelabel ||
                     one.kind == Kind::kSplit;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    Use use = whole ? Use::kWhole : Use::kPoint;
    if (one.kind == Kind::kScan && i >= tile::scanned_operands(one)) use = Use::kStart;
    // Where an element of a sorted row stood is known.
    if (one.kind == Kind::kScan && kernel::is_sort(one.reduce) && i == 1) use = Use::kPoint;
    if (one.kind == Kind::kDot) use = i == 0 ? Use::kStart : Use::kWhole;
    if (one.kind == Kind::kFor) use = Use::kStart;
    visit(one.operands[i], use);
  }
  if (one.until != kNoValue) visit(one.until, Use::kPoint);
  for (const tile::Access* access : {&one.access, &one.destination}) {
    if (access->buffer < 0) continue;
    for (const tile::Coordinate& coordinate : access->coordinates)
      if (coordinate.value != kNoValue) visit(coordinate.value, Use::kPoint);
    if (access->mask != kNoValue) visit(access->mask, Use::kPoint);
  }
  for (Value value : one.yields) visit(value, Use::kStart);
  for (Value value : one.otherwise_yields) visit(value, Use::kStart);
}

std::vector<LoopStep> build_loops(const tile::Program& program, const std::vector<int>& ranks,
                                  const std::vector<bool>& is_repeated) {
  const Walks walks = find_walks(program);
  std::vector<LoopStep> body = TreeBuilder(program, ranks, is_repeated, walks).block(program.body);
  Beginnings(program).note(body);
  return body;
}

}  // namespace kw::lower
