#include "lower/place_starts.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace kw::lower {

using tile::Access;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;

namespace {

// Shorter sums are written where they are used.
constexpr size_t kShortestSum = 12;

void collect(const LoopStep& step, std::vector<const Access*>& accesses) {
  if (step.instruction) {
    const Instruction& one = *step.instruction;
    if (one.kind == Kind::kLoad || one.kind == Kind::kStore || one.kind == Kind::kCopy) accesses.push_back(&one.access);
    if (one.kind == Kind::kCopy) accesses.push_back(&one.destination);
  }
  for (const LoopStep& inner : step.body) collect(inner, accesses);
}

bool is_innermost(const LoopStep& loop) {
  return std::none_of(loop.body.begin(), loop.body.end(), [](const LoopStep& inner) {
    return !inner.instruction || inner.instruction->kind == Kind::kFor;
  });
}

class StartHoisting {
 public:
  StartHoisting(const tile::Program& program, LoopPlan& plan) : program_(program), plan_(plan) {}

  void run() { walk(plan_.body); }

 private:
  // What a block knows. It ends with it.
  struct Scope {
    std::map<const Access*, LeftOfPlace> left;
    std::map<std::string, int> starts;  // by their text
  };

  void walk(std::vector<LoopStep>& steps) {
    Scope around = scope_;
    for (LoopStep& step : steps) see(step);
    scope_ = std::move(around);
  }

  void see(LoopStep& step) {
    if (!step.instruction) return see_lane(step);
    if (step.instruction->kind != Kind::kFor) {
      walk(step.body);
      return walk(step.otherwise_body);
    }
    // They stand before the loop, so that what follows it knows them as well.
    if (is_innermost(step) && !is_shared_) hoist(step);
    Scope around = scope_;
    const bool is_shared = std::exchange(is_shared_, step.shared > 1);
    walk(step.body);
    is_shared_ = is_shared;
    scope_ = std::move(around);
  }

  void see_lane(LoopStep& loop) {
    if (loop.moves) return;
    hoist(loop);
    if (loop.transposes) return;
    open_.push_back(loop.lane);
    walk(loop.body);
    open_.pop_back();
  }

  void hoist(LoopStep& loop) {
    std::vector<const Access*> accesses;
    collect(loop, accesses);
    for (const Access* access : accesses) hoist(loop, *access);
  }

  void hoist(LoopStep& loop, const Access& access) {
    const auto before = scope_.left.find(&access);
    const bool has_start = before != scope_.left.end();
    const Index place = has_start ? before->second.rest : tile::offset_of(program_, access);
    const int after = has_start ? before->second.start : -1;
    auto [known, rest] = split_before(place, loop);
    if (known == Index(0) || (!has_start && kernel::as_symbol(known))) return;
    const std::string text = (has_start ? plan_.starts[after].name + " + " : "") + text_of(known);
    if (text.size() < kShortestSum) return;
    const auto [found, is_new] = scope_.starts.try_emplace(text, static_cast<int>(plan_.starts.size()));
    if (is_new) {
      loop.starts.push_back(found->second);
      plan_.starts.push_back({name_of(loop, access), known, after});
    }
    loop.left.push_back({&access, found->second, rest});
    scope_.left[&access] = loop.left.back();
  }

  // The terms whose symbols are all known before the loop, and the others with the constant: accesses that differ in it
  // share the known.
  std::pair<Index, Index> split_before(const Index& index, const LoopStep& loop) const {
    Index known, rest;
    for (const kernel::IndexTerm& term : index.terms) {
      Index one;
      one.terms = {term};
      const std::vector<Symbol> lanes = tile::lanes_of(program_, one);
      const bool is_known = !(loop.instruction && kernel::uses(one, loop.instruction->symbol)) &&
                            std::all_of(lanes.begin(), lanes.end(), [&](Symbol lane) {
                              return std::find(open_.begin(), open_.end(), lane) != open_.end();
                            });
      Index& part = is_known ? known : rest;
      part = part + one;
    }
    return {known, rest + Index(index.constant)};
  }

  std::string text_of(const Index& index) const {
    kernel::IndexWords words;
    words.name = [&](Symbol symbol) { return program_.symbols[symbol].name; };
    return kernel::print_index(index, words);
  }

  std::string name_of(const LoopStep& loop, const Access& access) const {
    const std::string& buffer = program_.buffers[access.buffer].name;
    const bool is_first = loop.instruction && scope_.starts.size() == 1;
    const std::string wanted = is_first        ? "start"
                               : open_.empty() ? buffer + "_start"
                                               : buffer + "_at_" + program_.symbols[open_.back()].name;
    std::string name = wanted;
    for (int number = 1; is_taken(name); ++number)
      name = wanted + (number == 1 ? "_value" : "_" + std::to_string(number));
    return name;
  }

  bool is_taken(const std::string& name) const {
    const auto has = [&](const auto& list) {
      return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
    };
    return has(program_.symbols) || has(program_.buffers) || has(program_.values) ||
           std::any_of(scope_.starts.begin(), scope_.starts.end(), [&](const auto& one) {
             return one.second < static_cast<int>(plan_.starts.size()) && plan_.starts[one.second].name == name;
           });
  }

  const tile::Program& program_;
  LoopPlan& plan_;
  Scope scope_;
  std::vector<Symbol> open_;  // lanes of the loops around
  bool is_shared_ = false;    // within a loop that threads share with the next one
};

}  // namespace

void hoist_starts(const tile::Program& program, LoopPlan& plan) { StartHoisting(program, plan).run(); }

}  // namespace kw::lower
