#include "lower/dead_code.hpp"

#include <algorithm>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

bool has_effects(const Instruction& one) {
  switch (one.kind) {
    case Kind::kStore:
    case Kind::kCopy:
    case Kind::kWait:
    case Kind::kRelease:
    case Kind::kSkip:
    case Kind::kFor:
    case Kind::kIf:
    case Kind::kBarrier: return true;
    default: return false;
  }
}

template <typename Item>
void keep(std::vector<Item>& items, const std::vector<bool>& kept) {
  size_t count = 0;
  for (size_t at = 0; at < items.size(); ++at)
    if (kept[at]) items[count++] = items[at];
  items.resize(count);
}

// What instructions read, from the last to the first, so that an operand's reader is known before it.
class DeadCode {
 public:
  explicit DeadCode(size_t values) : read_(values) {}

  void remove(std::vector<Instruction>& body) {
    for (size_t place = body.size(); place-- > 0;) {
      Instruction& one = body[place];
      const bool is_read = std::any_of(one.results.begin(), one.results.end(), [&](Value v) { return read_[v]; });
      if (!is_read && !has_effects(one)) {
        body.erase(body.begin() + static_cast<long>(place));
        continue;
      }
      if (one.kind == Kind::kFor) remove_carried(one);
      for (Value value : one.yields) read(value);
      for (Value value : one.otherwise_yields) read(value);
      remove(one.body);
      remove(one.otherwise_body);
      for (Value value : one.operands) read(value);
      read(one.until);
      read(one.access);
      read(one.destination);
    }
  }

 private:
  // What a loop carries for itself alone: nothing behind it reads the result, and in its body only the next value does.
  void remove_carried(Instruction& loop) const {
    std::vector<bool> live;
    for (Value result : loop.results) live.push_back(read_[result]);
    for (bool grown = true; grown;) {
      grown = false;
      DeadCode trial = *this;
      std::vector<Instruction> body = loop.body;
      for (size_t at = 0; at < live.size(); ++at)
        if (live[at]) trial.read(loop.yields[at]);
      trial.remove(body);
      for (size_t at = 0; at < live.size(); ++at) {
        if (live[at] || !trial.read_[loop.arguments[at]]) continue;
        live[at] = grown = true;
      }
    }
    for (std::vector<Value>* values : {&loop.operands, &loop.arguments, &loop.yields, &loop.results})
      keep(*values, live);
  }

  void read(Value value) {
    if (value != tile::kNoValue) read_[value] = true;
  }

  void read(const tile::Access& access) {
    read(access.mask);
    for (const tile::Coordinate& coordinate : access.coordinates) read(coordinate.value);
  }

  std::vector<bool> read_;  // [value]
};

}  // namespace

void remove_dead_code(tile::Program& program) { DeadCode(program.values.size()).remove(program.body); }

}  // namespace kw::lower
