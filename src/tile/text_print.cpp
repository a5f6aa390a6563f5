#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "tile/text.hpp"
#include "tile/text_words.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

// Also prints programs that break the rules, for the verifier's messages: what is not there is called "?".
class ProgramPrinter {
 public:
  explicit ProgramPrinter(const Program& program) : program_(program) { number_symbols(); }

  std::string whole() {
    out_ = fmt::format("program {} {{\n", program_.name);
    if (!program_.doc.empty()) out_ += fmt::format("  doc {}\n", quoted(program_.doc));
    print_symbols();
    print_launch();
    print_places();
    for (const Buffer& buffer : program_.buffers) out_ += "  " + buffer_text(buffer) + "\n";
    if (program_.tickets >= 0)
      out_ += fmt::format("  tickets {}\n", is_known(program_.tickets) ? program_.buffers[program_.tickets].name : "?");
    if (!program_.body.empty()) out_ += "\n";
    print_body(program_.body, 1);
    return out_ + "}\n";
  }

  std::string head(const Instruction& instruction) const {
    switch (instruction.kind) {
      case Kind::kDefine: return define_text(instruction.symbol);
      case Kind::kConstant:
      case Kind::kIndex:
      case Kind::kOp:
      case Kind::kRelabel:
      case Kind::kSplit:
      case Kind::kStack:
      case Kind::kUnstack:
      case Kind::kLoad:
      case Kind::kDot:
      case Kind::kFold:
      case Kind::kScan: return definitions(instruction.results) + " = " + right_side(instruction);
      case Kind::kStore: return store_text(instruction);
      case Kind::kCopy: return copy_text(instruction);
      case Kind::kMove: return definitions(instruction.results) + " = " + right_side(instruction);
      case Kind::kWait: return wait_text(instruction);
      case Kind::kRelease:
        return "release boxes" + (instruction.pending == 0 ? "" : fmt::format(" back {}", instruction.pending));
      case Kind::kSkip: return "skip boxes";
      case Kind::kFor: return for_text(instruction);
      case Kind::kIf:
        return "if " + values(instruction.operands) +
               (instruction.results.empty() ? "" : " -> " + definitions(instruction.results));
      case Kind::kBarrier: {
        const std::string head = fmt::format("barrier {}{}", kScopeWords[static_cast<size_t>(instruction.scope)],
                                             instruction.lanes.empty() ? "" : " along " + symbols(instruction.lanes));
        const Access& counter = instruction.access;
        if (counter.buffer < 0) return head;
        const std::string at = counter.coordinates.empty() && is_known(counter.buffer)
                                   ? program_.buffers[counter.buffer].name
                                   : place(counter);
        return fmt::format("{} counted {} turn {}{}", head, at, index_text(instruction.index), wide(instruction));
      }
    }
    return "?";
  }

 private:
  // Symbols are numbered as the text declares them: so that the order of an index's terms, which follows the numbers,
  // is the one that the parsed program has.
  void number_symbols() {
    number_.assign(program_.symbols.size(), -1);
    Symbol next = 0;
    const auto give = [&](Symbol symbol) {
      if (symbol < 0 || symbol >= static_cast<Symbol>(number_.size()) || number_[symbol] >= 0) return;
      number_[symbol] = next++;
      ranges_.push_back(program_.symbols[symbol].range);
      symbols_.push_back(symbol);
    };
    const auto give_kind = [&](SymbolKind kind) {
      for (size_t symbol = 0; symbol < number_.size(); ++symbol)
        if (program_.symbols[symbol].kind == kind) give(static_cast<Symbol>(symbol));
    };
    give_kind(SymbolKind::kSize);
    for (const Symbol symbol : program_.grid) give(symbol);
    give_kind(SymbolKind::kLane);
    give_kind(SymbolKind::kBlock);
    give_kind(SymbolKind::kConsumer);
    for (const Symbol symbol : program_.places) give(symbol);
    for_each(program_.body, [&](const Instruction& instruction) {
      if (instruction.kind == Kind::kFor || instruction.kind == Kind::kDefine) give(instruction.symbol);
      give(instruction.counter);
    });
    for (size_t symbol = 0; symbol < number_.size(); ++symbol) give(static_cast<Symbol>(symbol));
  }

  // --- Names ---

  std::string symbol_name(Symbol symbol) const {
    if (symbol < 0 || symbol >= static_cast<Symbol>(program_.symbols.size())) return "?";
    return program_.symbols[symbol].name;
  }

  std::string value_name(Value value) const {
    if (value < 0 || value >= static_cast<Value>(program_.values.size())) return "%?";
    return "%" + program_.values[value].name;
  }

  template <typename List, typename Text>
  static std::string joined(const List& list, const Text& text) {
    std::string out;
    for (const auto& one : list) out += (out.empty() ? "" : ", ") + text(one);
    return out;
  }

  std::string values(const std::vector<Value>& list) const {
    return joined(list, [&](Value value) { return value_name(value); });
  }

  std::string symbols(const std::vector<Symbol>& list) const {
    return joined(list, [&](Symbol symbol) { return symbol_name(symbol); });
  }

  std::string definition(Value value) const {
    if (value < 0 || value >= static_cast<Value>(program_.values.size())) return "%?";
    const TileType& type = program_.values[value].type;
    return fmt::format("{}: {}{}", value_name(value), kw::name_of(type.dtype),
                       type.lanes.empty() ? "" : "[" + symbols(type.lanes) + "]");
  }

  std::string definitions(const std::vector<Value>& list) const {
    return joined(list, [&](Value value) { return definition(value); });
  }

  std::string index_text(const Index& index) const {
    if (!has_known_symbols(program_, index)) return "?";
    const Index numbered = kernel::substitute(
        index, [&](Symbol symbol) { return kernel::symbol_index(number_[symbol]); }, ranges_);
    kernel::IndexWords words;
    words.name = [&](Symbol symbol) { return symbol_name(symbols_[symbol]); };
    return kernel::print_index(numbered, words);
  }

  std::string define_text(Symbol symbol) const {
    if (symbol < 0 || symbol >= static_cast<Symbol>(program_.symbols.size())) return "index ?";
    const SymbolInfo& info = program_.symbols[symbol];
    return fmt::format("index {}: {} = {}", info.name, kw::name_of(info.dtype), index_text(info.value));
  }

  std::string indices(const std::vector<Index>& list) const {
    return joined(list, [&](const Index& index) { return index_text(index); });
  }

  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  }

  // --- Declarations ---

  void print_symbols() {
    std::string grid, lanes;
    for (const SymbolInfo& symbol : program_.symbols) {
      if (symbol.kind == SymbolKind::kSize) {
        out_ += fmt::format("  size {} = {}..{}", symbol.name, symbol.range.low, symbol.range.high);
        if (symbol.range.divisor != 1) out_ += fmt::format(" by {}", symbol.range.divisor);
        out_ += symbol.threads > 0 ? fmt::format(" threads {}\n", symbol.threads) : "\n";
      } else if (symbol.kind == SymbolKind::kLane) {
        lanes += fmt::format("{}{} = {}{}{}{}{}", lanes.empty() ? "" : ", ", symbol.name, symbol.range.high + 1,
                             symbol.shared ? " shared" : "", symbol.simd ? " simd" : "",
                             symbol.vectors > 0 ? fmt::format(" vectors {}", symbol.vectors) : "",
                             symbol.dimension >= 0 ? fmt::format(" dimension {}", symbol.dimension) : "");
      }
    }
    for (const Symbol symbol : program_.grid)
      grid += fmt::format("{}{} = {}", grid.empty() ? "" : ", ", symbol_name(symbol),
                          index_text(program_.symbols[symbol].count));
    if (!grid.empty()) out_ += "  grid " + grid + "\n";
    if (!lanes.empty()) out_ += "  lane " + lanes + "\n";
  }

  void print_launch() {
    out_ += fmt::format("  launch warps {}", program_.warps);
    if (program_.max_registers != 0) out_ += fmt::format(" registers {}", program_.max_registers);
    if (program_.approximate) out_ += " approximate";
    if (program_.contracts) out_ += " contracts";
    if (program_.narrow) out_ += " narrow";
    if (program_.rank >= 0) out_ += fmt::format(" rank {}", program_.rank);
    out_ += "\n";
    if (program_.order.grouped >= 0)
      out_ += fmt::format("  order grouped {} ({}, {})\n", program_.order.count, symbol_name(program_.order.grouped),
                          symbol_name(program_.order.along));
    if (program_.consumers.count != 1) print_consumers(program_.consumers);
  }

  void print_consumers(const Consumers& consumers) {
    out_ += fmt::format("  consumers {} {}", consumers.count,
                        consumers.along < 0 ? "in turn" : "along " + symbol_name(consumers.along));
    if (consumers.programs > 0) out_ += fmt::format(" programs {}", consumers.programs);
    if (consumers.registers > 0)
      out_ += fmt::format(" registers {} and {}", consumers.registers, consumers.producer_registers);
    if (consumers.stored_along >= 0)
      out_ += fmt::format(" store {} along {}", consumers.stored_together, symbol_name(consumers.stored_along));
    out_ += "\n";
  }

  void print_places() {
    for (const SymbolInfo& symbol : program_.symbols)
      if (symbol.kind == SymbolKind::kBlock || symbol.kind == SymbolKind::kConsumer)
        out_ += fmt::format("  {} {} = {}\n", symbol.kind == SymbolKind::kBlock ? "number" : "consumer", symbol.name,
                            symbol.range.high + 1);
    for (const Symbol symbol : program_.places) {
      const bool known = symbol >= 0 && symbol < static_cast<Symbol>(program_.symbols.size());
      out_ += fmt::format("  place {} = {}\n", symbol_name(symbol),
                          known ? index_text(program_.symbols[symbol].value) : "?");
    }
  }

  std::string buffer_text(const Buffer& buffer) const {
    std::string text = fmt::format("buffer {}: {}[{}]", buffer.name, kw::name_of(buffer.dtype), indices(buffer.shape));
    if (!buffer.strides.empty()) text += " strides [" + indices(buffer.strides) + "]";
    text += fmt::format(" {}", kRoleWords[static_cast<size_t>(buffer.role)]);
    if (buffer.space != Space::kGlobal) text += fmt::format(" {}", kSpaceWords[static_cast<size_t>(buffer.space)]);
    if (buffer.alignment != 16) text += fmt::format(" align {}", buffer.alignment);
    return text;
  }

  // --- Instructions ---

  bool is_known(int buffer) const { return buffer >= 0 && buffer < static_cast<int>(program_.buffers.size()); }

  // The part that is added first, and the rest.
  std::string coordinate(const Coordinate& coordinate) const {
    const SumOrder& sum = coordinate.sum;
    const Index rest = coordinate.index - sum.first;
    std::string text;
    if (!(sum.first == Index(0))) text = index_text(sum.first) + (sum.first_wide ? " i64; " : "; ");
    if (coordinate.value == kNoValue || !(kernel::as_constant(rest) == 0)) text += index_text(rest);
    if (coordinate.value != kNoValue)
      text += (kernel::as_constant(rest) == 0 ? "" : " + ") + value_name(coordinate.value);
    return text + (sum.wide ? " i64" : "") + (sum.together ? " together" : "");
  }

  std::string place(const Access& access) const {
    const std::string coordinates = joined(access.coordinates, [&](const Coordinate& one) { return coordinate(one); });
    return (is_known(access.buffer) ? program_.buffers[access.buffer].name : "?") + "[" + coordinates + "]" +
           (access.wide ? " offset i64" : "");
  }

  std::string mask_text(const Access& access, bool with_otherwise) const {
    if (access.mask == kNoValue) return "";
    std::string text = " where " + value_name(access.mask);
    if (with_otherwise) {
      const bool real = !is_known(access.buffer) || is_floating(program_.buffers[access.buffer].dtype);
      const std::string number = real ? number_text(access.otherwise) : fmt::format("{:.0f}", access.otherwise);
      text += " otherwise " + (access.any_otherwise ? "any" : number);
    }
    return text;
  }

  static std::string hint_text(Hint hint) {
    return hint == Hint::kNone ? "" : fmt::format(" hint {}", kHintWords[static_cast<size_t>(hint)]);
  }

  std::string wait_text(const Instruction& wait) const {
    if (wait.awaited == Awaited::kCopies) return fmt::format("wait {}", wait.pending);
    if (wait.awaited == Awaited::kBoxes) return "wait boxes";
    return "wait " + values(wait.operands) + (wait.pending == 0 ? "" : fmt::format(" left {}", wait.pending));
  }

  static std::string layout_text(Layout layout, std::string_view preposition = "in") {
    return layout == Layout::kFree ? "" : fmt::format(" {} {}", preposition, kLayoutWords[static_cast<size_t>(layout)]);
  }

  std::string constant_text(const Instruction& instruction) const {
    const Value result = instruction.results.empty() ? kNoValue : instruction.results[0];
    const bool known = result >= 0 && result < static_cast<Value>(program_.values.size());
    const DType dtype = known ? program_.values[result].type.dtype : DType::f32;
    if (dtype == DType::b1) return instruction.integer ? "constant true" : "constant false";
    if (is_integral(dtype)) return fmt::format("constant {}", instruction.integer);
    return "constant " + number_text(instruction.number);
  }

  std::string right_side(const Instruction& instruction) const {
    switch (instruction.kind) {
      case Kind::kConstant: return constant_text(instruction) + layout_text(instruction.layout);
      case Kind::kMove: return "move " + values(instruction.operands) + layout_text(instruction.layout, "to");
      case Kind::kIndex: return fmt::format("index {}{}", index_text(instruction.index), wide(instruction));
      case Kind::kRelabel:
        return fmt::format("relabel {} {} -> {}", values(instruction.operands), symbol_name(instruction.from),
                           symbol_name(instruction.to));
      case Kind::kSplit:
        return fmt::format("split {} {} -> {}", values(instruction.operands), symbol_name(instruction.from),
                           symbols(instruction.lanes));
      case Kind::kStack:
        return fmt::format("stack {} along {}", values(instruction.operands), symbol_name(instruction.to));
      case Kind::kUnstack:
        return fmt::format("unstack {} along {}", values(instruction.operands), symbol_name(instruction.from));
      case Kind::kLoad:
        return "load " + place(instruction.access) + (instruction.mode == CopyMode::kBulk ? " bulk" : "") +
               mask_text(instruction.access, true) + hint_text(instruction.hint) +
               (instruction.coherent ? " coherent" : "") + layout_text(instruction.layout);
      case Kind::kDot:
        return "dot " + values(instruction.operands) + (instruction.from_zero ? " from_zero" : "") +
               (instruction.precision == DotPrecision::kIeee
                    ? ""
                    : fmt::format(" precision {}", kPrecisionWords[static_cast<size_t>(instruction.precision)]));
      case Kind::kFold:
        return fmt::format("fold {} {} over {}{}{}", kernel::name_of(instruction.reduce), values(instruction.operands),
                           symbols(instruction.lanes), instruction.at_once ? " at_once" : "",
                           instruction.to_number ? " to_number" : "");
      case Kind::kScan: return scan_text(instruction);
      default:
        return fmt::format("{} {}{}{}", kernel::name_of(instruction.op), values(instruction.operands),
                           exactness_text(instruction.exactness), instruction.nonnegative ? " nonnegative" : "");
    }
  }

  static std::string_view wide(const Instruction& instruction) { return instruction.wide ? " wide" : ""; }

  static std::string exactness_text(Exactness exactness) {
    return exactness == Exactness::kUsual ? "" : fmt::format(" {}", kExactnessWords[static_cast<size_t>(exactness)]);
  }

  std::string scan_text(const Instruction& scan) const {
    const auto middle = scan.operands.begin() + static_cast<std::ptrdiff_t>(scanned_operands(scan));
    std::string text = fmt::format("scan {} {} along {}{}", kernel::name_of(scan.reduce),
                                   values({scan.operands.begin(), middle}), symbol_name(scan.from),
                                   scan.reversed ? " reversed" : "");
    if (scan.integer > 0) text += fmt::format(" first {}", scan.integer);
    if (scan.way != ScanWay::kFree) text += fmt::format(" {}", kScanWayWords[static_cast<size_t>(scan.way)]);
    return scan.way == ScanWay::kAfter ? text + " " + values({middle, scan.operands.end()}) : text;
  }

  std::string store_text(const Instruction& instruction) const {
    std::string text = "store " + place(instruction.access) + (instruction.mode == CopyMode::kBulk ? " bulk" : "") +
                       " <- " + values(instruction.operands);
    text += mask_text(instruction.access, false);
    if (instruction.combines) text += fmt::format(" combine {}", kernel::name_of(instruction.reduce));
    if (instruction.in_order) text += " in_order";
    return text + hint_text(instruction.hint);
  }

  std::string copy_text(const Instruction& instruction) const {
    return fmt::format("copy {} {} <- {}{}{}", kCopyWords[static_cast<size_t>(instruction.mode)],
                       place(instruction.destination), place(instruction.access),
                       instruction.lanes.empty() ? "" : " over " + symbols(instruction.lanes),
                       mask_text(instruction.access, instruction.access.otherwise != 0.0));
  }

  std::string for_text(const Instruction& instruction) const {
    std::string text = fmt::format("for {} = {} to {}", symbol_name(instruction.symbol), index_text(instruction.begin),
                                   index_text(instruction.end));
    if (instruction.until != kNoValue) text += " until " + value_name(instruction.until);
    if (instruction.step != 1) text += fmt::format(" step {}", instruction.step);
    if (instruction.stages != 0) text += fmt::format(" stages {}", instruction.stages);
    if (instruction.unrolled) text += " unrolled";
    if (instruction.reversed) text += " reversed";
    if (instruction.counter >= 0) text += " counter " + symbol_name(instruction.counter);
    if (instruction.shared) text += " shared";
    if (instruction.simd) text += " simd";
    text += wide(instruction);
    if (instruction.arguments.empty()) return text;
    text += " carry ";
    for (size_t i = 0; i < instruction.arguments.size(); ++i) {
      text += (i > 0 ? ", " : "") + definition(instruction.arguments[i]) + " = ";
      text += i < instruction.operands.size() ? value_name(instruction.operands[i]) : "%?";
    }
    return text + " -> " + values(instruction.results);
  }

  void print_yield(const std::vector<Value>& yields, int depth) {
    if (!yields.empty()) out_ += std::string(2 * depth, ' ') + "yield " + values(yields) + "\n";
  }

  void print_body(const std::vector<Instruction>& body, int depth) {
    const std::string indent(2 * depth, ' ');
    for (const Instruction& instruction : body) {
      out_ += indent + head(instruction);
      if (instruction.kind == Kind::kFor || instruction.kind == Kind::kIf) {
        out_ += " {\n";
        print_body(instruction.body, depth + 1);
        print_yield(instruction.yields, depth + 1);
        if (!instruction.otherwise_body.empty() || !instruction.otherwise_yields.empty()) {
          out_ += indent + "} else {\n";
          print_body(instruction.otherwise_body, depth + 1);
          print_yield(instruction.otherwise_yields, depth + 1);
        }
        out_ += indent + "}";
      }
      out_ += "\n";
    }
  }

  const Program& program_;
  std::vector<Symbol> number_;               // [symbol]: its number in the text
  std::vector<Symbol> symbols_;              // the other way round
  std::vector<kernel::SymbolRange> ranges_;  // [number]
  std::string out_;
};

}  // namespace

std::string print_program(const Program& program) { return ProgramPrinter(program).whole(); }

std::string print_head(const Program& program, const Instruction& instruction) {
  return ProgramPrinter(program).head(instruction);
}

}  // namespace kw::tile
