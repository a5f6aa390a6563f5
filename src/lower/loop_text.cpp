#include "lower/loop_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

class PlanPrinter {
 public:
  PlanPrinter(const tile::Program& program, const LoopPlan& plan) : program_(program), plan_(plan) {}

  std::string whole() {
    out_ = "loops of " + program_.name;
    if (plan_.scratch_bytes > 0) out_ += fmt::format(", {} bytes of scratch", plan_.scratch_bytes);
    out_ += plan_.is_uneven ? ", uneven\n" : "\n";
    print_order();
    std::vector<Value> repeated;
    for (size_t value = 0; value < plan_.is_repeated.size(); ++value)
      if (plan_.is_repeated[value]) repeated.push_back(static_cast<Value>(value));
    if (!repeated.empty()) line(1, "repeated " + values(repeated));
    print_steps(plan_.body, 1);
    if (!plan_.places.empty()) print_places();
    return out_;
  }

  std::string head(const LoopStep& step) const {
    std::string text = step.instruction ? name_of(*step.instruction) : lane_text(step);
    const auto add = [&](bool is_said, const std::string& words) {
      if (is_said) text += " " + words;
    };
    add(!step.begins.empty(), "from " + bounds(step.begins));
    add(!step.ends.empty(), "until " + bounds(step.ends));
    add(!step.known.empty(), "known " + values({step.known.begin(), step.known.end()}));
    add(!step.holds.empty(), "holds " + values(step.holds));
    add(step.shared > 0, fmt::format("shared {}", step.shared));
    add(step.simd, "simd");
    add(step.is_short, "short");
    add(step.moves, "moves");
    add(step.transposes, "transposes");
    add(step.reversed, "reversed");
    add(step.unroll > 0, fmt::format("unroll {}", step.unroll));
    add(step.unless_refused, "unless_refused");
    add(step.product.way == Product::Way::kColumns, "columns");
    add(step.product.way == Product::Way::kCall, "call");
    add(step.product.column >= 0, "along " + symbols({step.product.column}));
    add(!step.product.loops.empty(), "loops " + symbols(step.product.loops));
    add(!step.product.rows.empty(), "rows " + symbols(step.product.rows));
    add(!step.product.columns.empty(), "columns " + symbols(step.product.columns));
    add(!step.product.depth.empty(), "depth " + symbols(step.product.depth));
    add(step.rows.load, "from_memory");
    add(step.rows.takes_places, "takes_places");
    add(!step.rows.copied.empty(), "copies " + values(step.rows.copied));
    add(!step.folds.empty(), "folds " + folds(step.folds));
    add(!step.scans.empty(), "scans " + scans(step.scans));
    return text;
  }

 private:
  void line(int depth, const std::string& text) { out_ += std::string(2 * depth, ' ') + text + "\n"; }

  template <typename List, typename Text>
  static std::string joined(const List& list, const Text& text) {
    std::string all;
    for (const auto& one : list) all += (all.empty() ? "" : ", ") + text(one);
    return all;
  }

  std::string values(const std::vector<Value>& list) const {
    return joined(list, [&](Value value) { return "%" + program_.values[value].name; });
  }

  std::string scans(const std::vector<BegunScan>& list) const {
    return joined(list, [&](const BegunScan& begun) {
      return values(begun.scan->results) + (begun.kept.empty() ? "" : " of " + symbols(begun.kept));
    });
  }

  std::string folds(const std::vector<BegunFold>& list) const {
    return joined(list, [&](const BegunFold& begun) {
      return values(begun.fold->results) + (begun.in_parts ? " in_parts" : "") + (begun.flags_nan ? " flags_nan" : "");
    });
  }

  std::string symbols(const std::vector<Symbol>& list) const {
    return joined(list, [&](Symbol symbol) { return symbol < 0 ? "none" : program_.symbols[symbol].name; });
  }

  std::string index(const tile::Index& index) const {
    kernel::IndexWords words;
    words.name = [&](Symbol symbol) { return program_.symbols[symbol].name; };
    return kernel::print_index(index, words);
  }

  std::string start_text(const PlaceStart& start) const {
    const std::string before = start.after < 0 ? "" : plan_.starts[start.after].name + " + ";
    return fmt::format("start {} = {}{}", start.name, before, index(start.index));
  }

  std::string end_text(const NamedEnd& end) const {
    return fmt::format("end {} = {}{}", program_.symbols[end.lane].name, index(end.end),
                       end.whole_vectors ? " whole_vectors" : "");
  }

  std::string bounds(const std::vector<LaneBound>& list) const {
    return joined(list, [&](const LaneBound& bound) {
      std::string text = index(bound.dividend);
      if (bound.divisor != 1) text = fmt::format("({}) / {}", text, bound.divisor);
      if (bound.value == tile::kNoValue) return text;
      const std::string value = values({bound.value});
      return text == "0" ? value : value + " + " + text;
    });
  }

  std::string lane_text(const LoopStep& loop) const {
    std::string text = fmt::format("lane {} = {}", program_.symbols[loop.lane].name,
                                   tile::width_of(program_, loop.lane));
    if (loop.ends_early) text += " to " + index(loop.end);
    return loop.whole_vectors ? text + " whole_vectors" : text;
  }

  std::string name_of(const Instruction& one) const {
    switch (one.kind) {
      case Kind::kFor: return "for " + program_.symbols[one.symbol].name;
      case Kind::kIf: return "if " + values(one.operands);
      case Kind::kStore: return "store " + program_.buffers[one.access.buffer].name;
      case Kind::kCopy: return "copy " + program_.buffers[one.destination.buffer].name;
      case Kind::kWait: return "wait";
      case Kind::kRelease: return "release";
      case Kind::kSkip: return "skip";
      case Kind::kBarrier: return "barrier";
      default: return values(one.results);
    }
  }

  void print_order() {
    std::vector<Symbol> order;
    for (size_t symbol = 0; symbol < plan_.ranks.size(); ++symbol)
      if (plan_.ranks[symbol] >= 0) order.push_back(static_cast<Symbol>(symbol));
    std::sort(order.begin(), order.end(), [&](Symbol a, Symbol b) { return plan_.ranks[a] < plan_.ranks[b]; });
    if (!order.empty()) line(1, "order " + symbols(order));
  }

  void print_steps(const std::vector<LoopStep>& steps, int depth) {
    for (const LoopStep& step : steps) {
      if (!step.declared.empty()) line(depth, "declare " + values(step.declared));
      for (const int start : step.starts) line(depth, start_text(plan_.starts[start]));
      for (const int end : step.named_ends) line(depth, end_text(plan_.named_ends[end]));
      line(depth, head(step));
      print_steps(step.body, depth + 1);
      if (step.otherwise_body.empty()) continue;
      line(depth, "else");
      print_steps(step.otherwise_body, depth + 1);
    }
  }

  void print_places() {
    line(0, "places");
    for (size_t value = 0; value < plan_.places.size(); ++value) {
      const TilePlace& place = plan_.places[value];
      if (place.storage != tile::kNoValue) line(1, values({static_cast<Value>(value)}) + " " + place_text(value));
    }
    for (size_t buffer = 0; buffer < program_.buffers.size(); ++buffer)
      if (program_.buffers[buffer].space == tile::Space::kShared)
        line(1, fmt::format("{} scratch {}", program_.buffers[buffer].name, plan_.shared[buffer]));
  }

  std::string place_text(size_t value) const {
    const TilePlace& place = plan_.places[value];
    if (place.storage != static_cast<Value>(value)) return "in " + values({place.storage});
    const std::string lanes = place.lanes.empty() ? "" : " [" + symbols(place.lanes) + "]";
    const std::string more = std::string(place.packed ? " packed" : "") + (place.extended ? " extended" : "") +
                             (place.has_statement ? " statement" : "");
    switch (place.home) {
      case Home::kWritten: return "written" + more;
      case Home::kVariable: return "variable" + more;
      case Home::kStack: return "stack" + lanes + more;
      case Home::kMemory: return "memory";
      case Home::kScratch: return fmt::format("scratch {}{}{}", place.offset, lanes, more);
    }
    return "";
  }

  const tile::Program& program_;
  const LoopPlan& plan_;
  std::string out_;
};

}  // namespace

std::string print_loops(const tile::Program& program, const LoopPlan& plan) {
  return PlanPrinter(program, plan).whole();
}

std::string print_step(const tile::Program& program, const LoopStep& step) {
  return PlanPrinter(program, {}).head(step);
}

}  // namespace kw::lower
