#include "tile/verifier.hpp"

#include <fmt/format.h>

#include <set>

#include "support/error.hpp"
#include "tile/consumers.hpp"
#include "tile/definitions.hpp"
#include "tile/rules.hpp"
#include "tile/text.hpp"

namespace kw::tile {
namespace {

bool has_known(const Program& program, const Index& index) {
  const auto known = [&](Symbol symbol) { return symbol >= 0 && symbol < static_cast<Symbol>(program.symbols.size()); };
  for (const kernel::IndexTerm& term : index.terms)
    for (const kernel::IndexFactor& factor : term.factors) {
      if (factor.kind == kernel::IndexFactor::Kind::kSymbol) {
        if (!known(factor.symbol)) return false;
      } else if (!factor.dividend || !factor.divisor || !has_known(program, *factor.dividend) ||
                 !has_known(program, *factor.divisor)) {
        return false;
      }
    }
  return true;
}

// Walks the instructions with what is defined and in scope.
class ScopeWalk {
 public:
  // `meant`: the program with named indices written out.
  ScopeWalk(const Program& program, const Program& meant, const LaneEnds& ends)
      : program_(program),
        meant_(meant),
        ends_(ends),
        ranges_(ranges_of(program)),
        state_(program.values.size(), State::kUndefined),
        is_named_(program.symbols.size()) {}

  void run() { walk_with_names(program_.body, meant_.body, {.loops = {}, .conditional = false, .ends = ends_}); }

  const Instruction* at() const { return at_; }
  int count() const { return count_; }

 private:
  enum class State { kUndefined, kInScope, kOutOfScope };

  // A body that begins with named indices, which are known up to its end.
  void walk_with_names(const std::vector<Instruction>& body, const std::vector<Instruction>& meant,
                       const Surroundings& surroundings) {
    std::vector<Symbol> named;
    for (const Instruction& instruction : body) {
      if (instruction.kind != Kind::kDefine) break;
      at_ = &instruction;
      named.push_back(define_name(instruction.symbol, surroundings));
    }
    walk(body, meant, surroundings, named.size());
    for (const Symbol symbol : named) is_named_[symbol] = false;
  }

  Symbol define_name(Symbol symbol, const Surroundings& surroundings) {
    check_symbol(symbol);
    const SymbolInfo& info = program_.symbols[symbol];
    if (info.kind != SymbolKind::kNamed) throw BrokenRule{fmt::format("'{}' is no named index", info.name)};
    if (is_named_[symbol]) throw BrokenRule{fmt::format("'{}' is defined twice", info.name)};
    check_index(info.value, surroundings);
    is_named_[symbol] = true;
    return symbol;
  }

  void walk(const std::vector<Instruction>& body, const std::vector<Instruction>& meant,
            const Surroundings& surroundings, size_t names = 0) {
    for (size_t place = 0; place < body.size(); ++place) {
      const Instruction& instruction = body[place];
      at_ = &instruction;
      ++count_;
      if (instruction.kind == Kind::kDefine && place >= names)
        throw BrokenRule{"an index is named elsewhere than at the start of the program or of a loop's body"};
      check_uses(instruction, surroundings);
      if (program_.narrow) check_widths(instruction);
      check_fresh(instruction.results);
      check_instruction(meant_, meant[place], surroundings, ranges_);
      check_words(meant_, meant[place]);
      if (is_zero(instruction)) zeros_.insert(instruction.results[0]);
      if (instruction.from_zero && !zeros_.contains(instruction.operands[0]))
        throw BrokenRule{"a product starts from zero, but is added to something else"};
      if (instruction.kind == Kind::kFor) walk_loop(instruction, meant[place], surroundings);
      if (instruction.kind == Kind::kIf) walk_branch(instruction, meant[place], surroundings);
      define(instruction.results);
    }
  }

  void walk_loop(const Instruction& loop, const Instruction& meant, const Surroundings& surroundings) {
    const std::string& name = program_.symbols[loop.symbol].name;
    for (const Instruction* outer : surroundings.loops)
      if (program_.symbols[outer->symbol].name == name)
        throw BrokenRule{fmt::format("'{}' is the variable of a loop and of one inside it", name)};
    Surroundings inner = surroundings;
    inner.loops.push_back(&meant);
    const size_t shown = defined_.size();
    check_fresh(loop.arguments);
    define(loop.arguments);
    walk_with_names(loop.body, meant.body, inner);
    leave(loop, loop.yields, loop.arguments, shown, "yields of a loop");
  }

  void walk_branch(const Instruction& branch, const Instruction& meant, const Surroundings& surroundings) {
    Surroundings inner = surroundings;
    inner.conditional = true;
    const size_t shown = defined_.size();
    walk(branch.body, meant.body, inner);
    leave(branch, branch.yields, branch.results, shown, "yields of an if");
    walk(branch.otherwise_body, meant.otherwise_body, inner);
    leave(branch, branch.otherwise_yields, branch.results, shown, "yields of an else");
  }

  // The yields are what is expected; then the body's values go out of scope.
  void leave(const Instruction& owner, const std::vector<Value>& yields, const std::vector<Value>& expected,
             size_t shown, const char* what) {
    at_ = &owner;
    for (const Value value : yields) check_use(value);
    if (yields.size() != expected.size())
      throw BrokenRule{fmt::format("{}: {} values, but {} are expected", what, yields.size(), expected.size())};
    for (size_t i = 0; i < yields.size(); ++i)
      if (!(program_.values[yields[i]].type == program_.values[expected[i]].type))
        throw BrokenRule{fmt::format("{}: '%{}' has another type than '%{}'", what, program_.values[yields[i]].name,
                                     program_.values[expected[i]].name)};
    for (; defined_.size() > shown; defined_.pop_back()) state_[defined_.back()] = State::kOutOfScope;
  }

  bool exists(Value value) const { return value >= 0 && value < static_cast<Value>(state_.size()); }

  void check_use(Value value) const {
    if (!exists(value)) throw BrokenRule{fmt::format("value {} is not in the program's table", value)};
    if (state_[value] == State::kUndefined)
      throw BrokenRule{fmt::format("'%{}' is used before it is defined", program_.values[value].name)};
    if (state_[value] == State::kOutOfScope)
      throw BrokenRule{fmt::format("'%{}' is used outside the body that defines it", program_.values[value].name)};
  }

  // A For's results must be new before its body runs, where they are not seen yet.
  void check_fresh(const std::vector<Value>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!exists(values[i])) throw BrokenRule{fmt::format("value {} is not in the program's table", values[i])};
      bool twice = state_[values[i]] != State::kUndefined;
      for (size_t j = 0; j < i; ++j) twice = twice || values[j] == values[i];
      if (twice) throw BrokenRule{fmt::format("'%{}' is defined twice", program_.values[values[i]].name)};
    }
  }

  void define(const std::vector<Value>& values) {
    check_fresh(values);
    for (const Value value : values) {
      state_[value] = State::kInScope;
      defined_.push_back(value);
    }
  }

  void check_uses(const Instruction& instruction, const Surroundings& surroundings) const {
    for (const Value value : instruction.operands) check_use(value);
    check_index(instruction.index, surroundings);
    check_index(instruction.begin, surroundings);
    check_index(instruction.end, surroundings);
    if (instruction.until != kNoValue) check_use(instruction.until);
    const bool accesses = instruction.kind == Kind::kLoad || instruction.kind == Kind::kStore ||
                          instruction.kind == Kind::kCopy ||
                          (instruction.kind == Kind::kBarrier && instruction.access.buffer >= 0);
    if (accesses) check_access(instruction.access, surroundings);
    if (instruction.kind == Kind::kCopy) check_access(instruction.destination, surroundings);
    for (const Symbol lane : instruction.lanes) check_symbol(lane);
    if (instruction.kind == Kind::kRelabel || instruction.kind == Kind::kScan || instruction.kind == Kind::kSplit ||
        instruction.kind == Kind::kUnstack)
      check_symbol(instruction.from);
    if (instruction.kind == Kind::kRelabel || instruction.kind == Kind::kStack) check_symbol(instruction.to);
    if (instruction.kind == Kind::kFor) check_symbol(instruction.symbol);
    if (instruction.counter != -1) check_symbol(instruction.counter);
  }

  // What is computed in 32 bits does not leave them on the way.
  void check_widths(const Instruction& instruction) const {
    for (const Index* index : {&instruction.index, &instruction.begin, &instruction.end})
      if (!instruction.wide && leaves_32_bits(*index, ranges_))
        throw BrokenRule{"an index is computed in 32 bits, but may leave them"};
    if (instruction.kind == Kind::kBarrier && !instruction.wide &&
        leaves_32_bits(arrivals_at(program_, instruction), ranges_))
      throw BrokenRule{"blocks are counted in 32 bits, but may be more"};
    const bool is_box = instruction.mode == CopyMode::kBulk && instruction.kind != Kind::kCopy;
    if (instruction.access.buffer < 0 || is_box) return;
    const std::vector<Index> strides = strides_of(program_.buffers[instruction.access.buffer]);
    const std::vector<Coordinate>& coordinates = instruction.access.coordinates;
    for (size_t i = 0; i < std::min(strides.size(), coordinates.size()); ++i) {
      const SumOrder& sum = coordinates[i].sum;
      const Index rest = coordinates[i].index - sum.first;
      if ((!sum.first_wide && leaves_32_bits(sum.first * strides[i], ranges_)) ||
          (!sum.wide && leaves_32_bits(rest * strides[i], ranges_)))
        throw BrokenRule{"a part of a place is computed in 32 bits, but may leave them"};
      if (!lanes_of(program_, sum.first).empty()) throw BrokenRule{"what is added first is one number for the block"};
    }
  }

  void check_access(const Access& access, const Surroundings& surroundings) const {
    if (access.buffer < 0 || access.buffer >= static_cast<int>(program_.buffers.size()))
      throw BrokenRule{fmt::format("buffer {} is not in the program's table", access.buffer)};
    for (const Coordinate& coordinate : access.coordinates) {
      check_index(coordinate.index, surroundings);
      check_index(coordinate.sum.first, surroundings);
      if (coordinate.value != kNoValue) check_use(coordinate.value);
    }
    if (access.mask != kNoValue) check_use(access.mask);
  }

  void check_symbol(Symbol symbol) const {
    if (symbol < 0 || symbol >= static_cast<Symbol>(program_.symbols.size()))
      throw BrokenRule{fmt::format("symbol {} is not in the program's table", symbol)};
  }

  void check_index(const Index& index, const Surroundings& surroundings) const {
    if (!has_known_symbols(program_, index)) throw BrokenRule{"an index uses a symbol that the program does not have"};
    std::vector<bool> used;
    collect_symbols(index, used);
    for (size_t symbol = 0; symbol < used.size(); ++symbol) {
      if (used[symbol] && program_.symbols[symbol].kind == SymbolKind::kNamed && !is_named_[symbol])
        throw BrokenRule{fmt::format("'{}' is used where it is not defined", program_.symbols[symbol].name)};
      if (used[symbol] && (program_.symbols[symbol].kind == SymbolKind::kBlock ||
                           program_.symbols[symbol].kind == SymbolKind::kConsumer))
        throw BrokenRule{
            fmt::format("'{}' is used elsewhere than in the places of blocks", program_.symbols[symbol].name)};
      if (!used[symbol] || program_.symbols[symbol].kind != SymbolKind::kLoop) continue;
      bool open = false;
      for (const Instruction* loop : surroundings.loops) open = open || loop->symbol == static_cast<Symbol>(symbol);
      if (!open)
        throw BrokenRule{fmt::format("loop variable '{}' is used outside its loop", program_.symbols[symbol].name)};
    }
  }

  const Program& program_;
  const Program& meant_;
  const LaneEnds& ends_;
  const std::vector<kernel::SymbolRange> ranges_;
  std::vector<State> state_;    // [value]
  std::vector<bool> is_named_;  // [symbol] an index that is defined here
  std::set<Value> zeros_;       // constants
  std::vector<Value> defined_;
  const Instruction* at_ = nullptr;
  int count_ = 0;
};

int place_of(const Program& program, const Instruction* wanted) {
  int place = -1, next = 0;
  for_each(program.body, [&](const Instruction& instruction) {
    if (&instruction == wanted) place = next;
    ++next;
  });
  return place;
}

std::optional<Fault> fault_of(const Program& program, const Program& meant, const LaneEnds& ends) {
  ScopeWalk walk(program, meant, ends);
  try {
    walk.run();
  } catch (const BrokenRule& rule) { return Fault{rule.message, place_of(program, walk.at())}; }
  if (const auto fault = find_write_fault(meant)) return Fault{fault->message, place_of(meant, fault->store)};
  if (const std::string fault = why_no_consumers(meant); !fault.empty()) return Fault{fault, -1};
  return std::nullopt;
}

}  // namespace

bool has_known_symbols(const Program& program, const Index& index) { return has_known(program, index); }

std::optional<Fault> first_fault(const Program& program, const LaneEnds& ends) {
  try {
    check_declarations(program);
  } catch (const BrokenRule& rule) { return Fault{rule.message, -1}; }
  if (!has_named_indices(program)) return fault_of(program, program, ends);
  return fault_of(program, written_out(program), ends);
}

std::string find_fault(const Program& program, const LaneEnds& ends) {
  const std::optional<Fault> fault = first_fault(program, ends);
  if (!fault) return "";
  const Instruction* at = nullptr;
  int next = 0;
  for_each(program.body, [&](const Instruction& instruction) {
    if (next++ == fault->instruction) at = &instruction;
  });
  return fmt::format("tile program '{}'{}: {}", program.name, at ? fmt::format(", '{}'", print_head(program, *at)) : "",
                     fault->message);
}

void verify(const Program& program, const LaneEnds& ends) {
  if (const std::string fault = find_fault(program, ends); !fault.empty()) throw Error(ErrorKind::kInternal, fault);
}

}  // namespace kw::tile
