#include "lower/steps_inside.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "lower/dead_code.hpp"
#include "support/error.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

void merge(tile::Program& program, std::span<const SameMemory> same) {
  std::vector<int> place(program.buffers.size());
  for (size_t buffer = 0; buffer < place.size(); ++buffer) place[buffer] = static_cast<int>(buffer);
  for (const SameMemory& pair : same) {
    const tile::Buffer &read = program.buffers[pair.read], &written = program.buffers[pair.written];
    KW_ASSERT(read.role == tile::BufferRole::kInput && written.role == tile::BufferRole::kOutput &&
                  read.dtype == written.dtype && read.shape == written.shape &&
                  tile::strides_of(read) == tile::strides_of(written),
              "'" + read.name + "' and '" + written.name + "' are not laid out alike");
    program.buffers[pair.read].role = tile::BufferRole::kInOut;
    place[pair.written] = pair.read;
  }
  std::vector<int> number(place.size());  // among those that stay
  std::vector<tile::Buffer> kept;
  for (size_t buffer = 0; buffer < place.size(); ++buffer) {
    number[buffer] = static_cast<int>(kept.size());
    if (place[buffer] == static_cast<int>(buffer)) kept.push_back(std::move(program.buffers[buffer]));
  }
  program.buffers = std::move(kept);
  tile::for_each_mutable(program.body, [&](Instruction& one) {
    for (tile::Access* access : {&one.access, &one.destination})
      if (access->buffer >= 0) access->buffer = number[place[access->buffer]];
  });
}

// What a step computes alike whatever the step, in order.
class Invariants {
 public:
  Invariants(const tile::Program& program, const Instruction& loop) : program_(program), step_(loop.symbol) {
    for (const Instruction& one : loop.body) changes_.insert(one.results.begin(), one.results.end());
  }

  std::vector<Instruction> take(std::vector<Instruction>& body) {
    std::vector<Instruction> taken, left;
    for (Instruction& one : body) {
      if (!is_invariant(one)) {
        left.push_back(std::move(one));
        continue;
      }
      for (Value result : one.results) changes_.erase(result);
      taken.push_back(std::move(one));
    }
    body = std::move(left);
    return taken;
  }

 private:
  bool stays(const tile::Index& index) const { return !kernel::uses(index, step_); }
  bool stays(Value value) const { return !changes_.contains(value); }

  bool is_invariant(const Instruction& one) const {
    if (!std::all_of(one.operands.begin(), one.operands.end(), [&](Value value) { return stays(value); })) return false;
    switch (one.kind) {
      case Kind::kConstant:
      case Kind::kOp:
      case Kind::kRelabel:
      case Kind::kSplit:
      case Kind::kStack:
      case Kind::kUnstack:
      case Kind::kDot:
      case Kind::kFold:
      case Kind::kScan: return true;
      case Kind::kIndex: return stays(one.index);
      case Kind::kLoad:
        return program_.buffers[one.access.buffer].role == tile::BufferRole::kInput && stays(one.access.mask) &&
               std::all_of(one.access.coordinates.begin(), one.access.coordinates.end(),
                           [&](const tile::Coordinate& at) { return stays(at.index) && stays(at.value); });
      default: return false;
    }
  }

  const tile::Program& program_;
  Symbol step_;
  std::set<Value> changes_;  // values of the loop's body
};

// Loads from what the program only reads, made for the next step before its blocks wait for each other.
class LoadsAhead {
 public:
  LoadsAhead(tile::Program& program, Instruction& loop) : program_(program), loop_(loop) {
    for (const tile::ValueInfo& value : program.values) names_.insert(value.name);
  }

  // Returns what loads for the first step.
  std::vector<Instruction> run() {
    const tile::Index next = kernel::modulo(kernel::symbol_index(loop_.symbol) + tile::Index(1), loop_.end,
                                            tile::ranges_of(program_));
    std::vector<Instruction> first, prefetched, left;
    for (const Instruction& one : loop_.body) {
      const auto needed = moves(one) ? needed_for(one) : std::nullopt;
      if (!needed) {
        left.push_back(one);
        continue;
      }
      const Value loaded = one.results[0];
      loop_.operands.push_back(copy(*needed, tile::Index(0), first));
      loop_.yields.push_back(copy(*needed, next, prefetched));
      loop_.results.push_back(another(loaded));
      std::swap(program_.values[loop_.results.back()].name, program_.values[loaded].name);
      loop_.arguments.push_back(loaded);
    }
    left.insert(left.end(), std::make_move_iterator(prefetched.begin()), std::make_move_iterator(prefetched.end()));
    loop_.body = std::move(left);
    return first;
  }

 private:
  bool moves(const Instruction& one) const {
    return one.kind == Kind::kLoad && one.mode == tile::CopyMode::kPlain &&
           program_.buffers[one.access.buffer].role == tile::BufferRole::kInput;
  }

  // The load and what of the loop's body it needs, in order; nullopt where that is more than numbers.
  std::optional<std::vector<Instruction>> needed_for(const Instruction& load) const {
    std::vector<Instruction> needed = {load};
    std::set<Value> read = values_of(load);
    const auto place = &load - loop_.body.data();
    for (auto at = place; at-- > 0;) {
      const Instruction& one = loop_.body[at];
      if (one.results.empty() || !read.contains(one.results[0])) continue;
      if (one.kind != Kind::kIndex && one.kind != Kind::kOp && one.kind != Kind::kConstant) return std::nullopt;
      read.merge(values_of(one));
      needed.push_back(one);
    }
    std::reverse(needed.begin(), needed.end());
    return needed;
  }

  static std::set<Value> values_of(const Instruction& one) {
    std::set<Value> values(one.operands.begin(), one.operands.end());
    values.insert(one.access.mask);
    for (const tile::Coordinate& at : one.access.coordinates) values.insert(at.value);
    return values;
  }

  // The same for another step; returns the last instruction's result.
  Value copy(std::vector<Instruction> instructions, const tile::Index& step, std::vector<Instruction>& to) {
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program_);
    const auto moved = [&](const tile::Index& index) {
      return kernel::substitute(
          index, [&](Symbol symbol) { return symbol == loop_.symbol ? step : kernel::symbol_index(symbol); }, ranges);
    };
    std::map<Value, Value> now;
    const auto renamed = [&](Value value) {
      const auto found = now.find(value);
      return found == now.end() ? value : found->second;
    };
    for (Instruction& one : instructions) {
      one.index = moved(one.index);
      for (Value& operand : one.operands) operand = renamed(operand);
      one.access.mask = renamed(one.access.mask);
      for (tile::Coordinate& at : one.access.coordinates) at = {moved(at.index), renamed(at.value)};
      now[one.results[0]] = another(one.results[0]);
      one.results[0] = now[one.results[0]];
      to.push_back(std::move(one));
    }
    return to.back().results[0];
  }

  Value another(Value value) {
    tile::ValueInfo info = program_.values[value];
    const std::string base = info.name;
    for (int number = 2; !names_.insert(info.name).second; ++number) info.name = base + "_" + std::to_string(number);
    program_.values.push_back(std::move(info));
    return static_cast<Value>(program_.values.size()) - 1;
  }

  tile::Program& program_;
  Instruction& loop_;
  std::set<std::string> names_;
};

}  // namespace

tile::Program with_steps_inside(tile::Program program, Symbol size, int64_t count, std::span<const SameMemory> same) {
  KW_ASSERT(program.symbols[size].kind == tile::SymbolKind::kSize, "only a size can count launches");
  program.symbols[size].kind = tile::SymbolKind::kLoop;
  program.symbols[size].range = {.low = 0, .high = count - 1};
  merge(program, same);

  Instruction barrier;
  barrier.kind = Kind::kBarrier;
  barrier.scope = tile::Scope::kGrid;
  barrier.access.buffer = static_cast<int>(program.buffers.size());
  barrier.index = kernel::symbol_index(size);
  tile::Buffer arrived;
  arrived.name = "arrived";
  arrived.dtype = DType::i32;
  arrived.shape = {tile::Index(1)};
  arrived.role = tile::BufferRole::kScratch;
  program.buffers.push_back(std::move(arrived));

  Instruction loop;
  loop.kind = Kind::kFor;
  loop.symbol = size;
  loop.end = tile::Index(count);
  loop.stages = 1;  // loads of a step wait for the one before
  loop.body = std::move(program.body);
  program.body = Invariants(program, loop).take(loop.body);
  std::vector<Instruction> first = LoadsAhead(program, loop).run();
  program.body.insert(program.body.end(), std::make_move_iterator(first.begin()), std::make_move_iterator(first.end()));
  loop.body.push_back(std::move(barrier));
  program.body.push_back(std::move(loop));
  remove_dead_code(program);
  return program;
}

}  // namespace kw::lower
