#include "lower/cache_hints.hpp"

#include <algorithm>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;

class Hints {
 public:
  Hints(tile::Program& program, const std::vector<Symbol>& folded)
      : program_(program), folded_(folded), depends_(program.values.size()) {
    const std::vector<kernel::SymbolRange> ranges = tile::ranges_of(program);
    for (Symbol symbol : program.grid)
      if (kernel::range_of(program.symbols[symbol].count, ranges).high > 1) shared_out_.push_back(symbol);
  }

  void run() {
    visit(program_.body, false);
    for (size_t at = 0; at < loads_.size(); ++at) {
      const auto same = [&](const Load& other) { return other.in_loop && is_same(other, loads_[at]); };
      const bool read_again = loads_[at].in_loop &&
                              std::any_of(loads_.begin() + static_cast<long>(at) + 1, loads_.end(), same);
      const bool read_before = loads_[at].in_loop &&
                               std::any_of(loads_.begin(), loads_.begin() + static_cast<long>(at), same);
      if (loads_[at].shared || read_again) loads_[at].instruction->hint = tile::Hint::kKeep;
      else if (read_before) loads_[at].instruction->hint = tile::Hint::kStream;
    }
  }

 private:
  struct Load {
    Instruction* instruction = nullptr;
    bool in_loop = false;
    bool shared = false;  // by all blocks
  };

  static bool is_same(const Load& left, const Load& right) {
    const tile::Access &one = left.instruction->access, &other = right.instruction->access;
    return one.buffer == other.buffer &&
           std::equal(one.coordinates.begin(), one.coordinates.end(), other.coordinates.begin(),
                      other.coordinates.end(), [](const tile::Coordinate& first, const tile::Coordinate& second) {
                        return first.index == second.index && first.value == second.value;
                      });
  }

  bool uses(const std::vector<bool>& symbols, const std::vector<Symbol>& some) const {
    return std::any_of(some.begin(), some.end(),
                       [&](Symbol symbol) { return static_cast<size_t>(symbol) < symbols.size() && symbols[symbol]; });
  }

  static void unite(std::vector<bool>& all, const std::vector<bool>& more) {
    all.resize(std::max(all.size(), more.size()));
    for (size_t at = 0; at < more.size(); ++at) all[at] = all[at] || more[at];
  }

  void visit(std::vector<Instruction>& body, bool in_loop) {
    for (Instruction& one : body) {
      std::vector<bool> symbols(program_.symbols.size());
      kernel::collect_symbols(one.index, symbols);
      for (Value operand : one.operands) unite(symbols, depends_[operand]);
      if (one.kind == Kind::kLoad) {
        for (const tile::Coordinate& coordinate : one.access.coordinates) {
          kernel::collect_symbols(coordinate.index, symbols);
          if (coordinate.value != kNoValue) unite(symbols, depends_[coordinate.value]);
        }
        if (one.access.mask != kNoValue) unite(symbols, depends_[one.access.mask]);
        if (uses(symbols, folded_))
          loads_.push_back({&one, in_loop, !shared_out_.empty() && !uses(symbols, shared_out_)});
      }
      for (const std::vector<Value>* values : {&one.results, &one.arguments})
        for (Value value : *values) depends_[value] = symbols;
      visit(one.body, in_loop || one.kind == Kind::kFor);
      visit(one.otherwise_body, in_loop);
    }
  }

  tile::Program& program_;
  const std::vector<Symbol>& folded_;
  std::vector<Symbol> shared_out_;          // along which there are several blocks
  std::vector<std::vector<bool>> depends_;  // [value][symbol]
  std::vector<Load> loads_;
};

}  // namespace

void give_cache_hints(tile::Program& program, const std::vector<Symbol>& folded) { Hints(program, folded).run(); }

}  // namespace kw::lower
