#include "lower/prefetch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class Prefetch {
 public:
  Prefetch(tile::Program& program, Instruction& loop, int64_t count) : program_(program), loop_(loop), count_(count) {
    for (const tile::ValueInfo& value : program.values) names_.insert(value.name);
  }

  void run() {
    refuse_what_cannot_wait();
    find_carried();
    const std::vector<Value> yields = loop_.yields;
    std::vector<Instruction> first, then;
    for (int64_t turn = 0; turn < count_; ++turn) {
      if (turn > 0) {
        std::map<Value, Value> next;
        for (size_t at = 0; at < yields.size(); ++at) next[loop_.arguments[at]] = renamed(yields[at]);
        now_ = std::move(next);
      }
      for (const Instruction& one : loop_.body) (waits(one) ? then : first).push_back(moved(one, turn));
    }
    for (Value& yield : loop_.yields) yield = renamed(yield);
    first.insert(first.end(), std::make_move_iterator(then.begin()), std::make_move_iterator(then.end()));
    loop_.body = std::move(first);
    loop_.step *= count_;
    program_.symbols[loop_.symbol].range = tile::loop_range(loop_.begin, loop_.end, loop_.step,
                                                            tile::ranges_of(program_));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    ErrorText text;
    text.message = fmt::format("kernel '{}' cannot be scheduled so: the loop of '{}' prefetches {} iterations, but {}",
                               program_.name, program_.symbols[loop_.symbol].name, count_, what);
    text.code = "bad-schedule";
    throw Error(ErrorKind::kUser, std::move(text));
  }

  void refuse_what_cannot_wait() const {
    const auto begin = kernel::as_constant(loop_.begin), end = kernel::as_constant(loop_.end);
    if (!begin || !end || ((*end - *begin + loop_.step - 1) / loop_.step) % count_ != 0)
      refuse("has not a multiple of so many");
    if (loop_.reversed || loop_.unrolled) refuse("is reversed or unrolled");
    std::set<int> stored;
    for (const Instruction& one : loop_.body) {
      if (one.kind == Kind::kStore) stored.insert(one.access.buffer);
      else if (one.results.empty() || one.kind == Kind::kFor || one.kind == Kind::kIf)
        refuse("does more than compute and store");
    }
    for (const Instruction& one : loop_.body)
      if (one.kind == Kind::kLoad && stored.contains(one.access.buffer)) refuse("loads what it stores");
  }

  static std::vector<Value> inputs_of(const Instruction& one) {
    std::vector<Value> inputs = one.operands;
    inputs.push_back(one.access.mask);
    for (const tile::Coordinate& coordinate : one.access.coordinates) inputs.push_back(coordinate.value);
    return inputs;
  }

  void find_carried() {
    carried_.insert(loop_.arguments.begin(), loop_.arguments.end());
    for (const Instruction& one : loop_.body) {
      const std::vector<Value> inputs = inputs_of(one);
      if (std::any_of(inputs.begin(), inputs.end(), [&](Value value) { return carried_.contains(value); }))
        carried_.insert(one.results.begin(), one.results.end());
    }
  }

  bool waits(const Instruction& one) const {
    return one.kind == Kind::kStore ||
           std::any_of(one.results.begin(), one.results.end(), [&](Value value) { return carried_.contains(value); });
  }

  Value renamed(Value value) const {
    const auto found = now_.find(value);
    return found == now_.end() ? value : found->second;
  }

  tile::Index renamed(const tile::Index& index, int64_t turn) const {
    return kernel::substitute(
        index,
        [&](tile::Symbol symbol) {
          const tile::Index same = kernel::symbol_index(symbol);
          return symbol == loop_.symbol ? same + tile::Index(turn * loop_.step) : same;
        },
        tile::ranges_of(program_));
  }

  std::string unique(const std::string& name) {
    for (int number = 2;; ++number)
      if (const std::string numbered = fmt::format("{}_{}", name, number); names_.insert(numbered).second)
        return numbered;
  }

  // As it is in the iteration that comes `turn` after the first.
  Instruction moved(const Instruction& one, int64_t turn) {
    if (turn == 0) return one;
    Instruction result = one;
    for (Value& operand : result.operands) operand = renamed(operand);
    result.index = renamed(result.index, turn);
    result.access.mask = renamed(result.access.mask);
    for (tile::Coordinate& coordinate : result.access.coordinates)
      coordinate = {renamed(coordinate.index, turn), renamed(coordinate.value)};
    for (Value& value : result.results) {
      const tile::ValueInfo info = program_.values[value];
      program_.values.push_back({unique(info.name), info.type});
      now_[value] = static_cast<Value>(program_.values.size()) - 1;
      value = now_[value];
    }
    return result;
  }

  tile::Program& program_;
  Instruction& loop_;
  const int64_t count_;
  std::set<std::string> names_;
  std::set<Value> carried_;     // what is carried, and what is made of it
  std::map<Value, Value> now_;  // in this turn, of what the first one calls so
};

}  // namespace

void prefetch(tile::Program& program, tile::Symbol variable, int64_t count) {
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    if (one.kind == Kind::kFor && one.symbol == variable) Prefetch(program, one, count).run();
  });
}

}  // namespace kw::lower
