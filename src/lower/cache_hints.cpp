#include "lower/cache_hints.hpp"

#include <algorithm>
#include <map>

#include "lower/read_again.hpp"

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
    visit(program_.body);
    for (const LoopLoad& load : loads_in_loops(program_)) {
      const auto found = shared_.find(load.load);
      if (found == shared_.end()) continue;
      if (found->second || load.read_again) load.load->hint = tile::Hint::kKeep;
      else if (load.read_before) load.load->hint = tile::Hint::kStream;
    }
  }

 private:
  bool uses(const std::vector<bool>& symbols, const std::vector<Symbol>& some) const {
    return std::any_of(some.begin(), some.end(),
                       [&](Symbol symbol) { return static_cast<size_t>(symbol) < symbols.size() && symbols[symbol]; });
  }

  static void unite(std::vector<bool>& all, const std::vector<bool>& more) {
    all.resize(std::max(all.size(), more.size()));
    for (size_t at = 0; at < more.size(); ++at) all[at] = all[at] || more[at];
  }

  void visit(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) {
      std::vector<bool> symbols(program_.symbols.size());
      kernel::collect_symbols(one.index, symbols);
      for (Value operand : one.operands) unite(symbols, depends_[operand]);
      if (one.kind == Kind::kLoad) {
        for (const tile::Coordinate& coordinate : one.access.coordinates) {
          kernel::collect_symbols(coordinate.index, symbols);
          if (coordinate.value != kNoValue) unite(symbols, depends_[coordinate.value]);
        }
        if (one.access.mask != kNoValue) unite(symbols, depends_[one.access.mask]);
        if (uses(symbols, folded_)) shared_[&one] = !shared_out_.empty() && !uses(symbols, shared_out_);
      }
      for (const std::vector<Value>* values : {&one.results, &one.arguments})
        for (Value value : *values) depends_[value] = symbols;
      visit(one.body);
      visit(one.otherwise_body);
    }
  }

  tile::Program& program_;
  const std::vector<Symbol>& folded_;
  std::vector<Symbol> shared_out_;             // along which there are several blocks
  std::vector<std::vector<bool>> depends_;     // [value][symbol]
  std::map<const Instruction*, bool> shared_;  // loads along folded axes: do all blocks read the same?
};

}  // namespace

void give_cache_hints(tile::Program& program, const std::vector<Symbol>& folded) { Hints(program, folded).run(); }

}  // namespace kw::lower
