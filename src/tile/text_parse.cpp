#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>

#include "support/error.hpp"
#include "tile/definitions.hpp"
#include "tile/text.hpp"
#include "tile/text_names.hpp"
#include "tile/text_words.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

class ProgramParser : ProgramNames {
 public:
  explicit ProgramParser(std::string_view text) : ProgramNames(text) {}

  Program whole() {
    reader_.expect("program");
    program_.name = reader_.name();
    reader_.expect("{");
    while (parse_declaration()) {}
    while (!reader_.next_is("}")) program_.body.push_back(instruction());
    reader_.expect("}");
    if (!reader_.at_end()) reader_.fail("expected the end of the text after the program");
    if (const auto fault = first_fault(program_))
      reader_.fail_at(fault->instruction < 0 ? 0 : starts_[fault->instruction], fault->message);
    return std::move(program_);
  }

 private:
  // --- Declarations ---

  bool parse_declaration() {
    if (reader_.accept("doc")) program_.doc = reader_.quoted();
    else if (reader_.accept("size")) parse_list([&] { parse_size(); });
    else if (reader_.accept("grid")) parse_list([&] { parse_grid(); });
    else if (reader_.accept("lane")) parse_list([&] { parse_lane(); });
    else if (reader_.accept("launch")) parse_launch();
    else if (reader_.accept("order")) parse_order();
    else if (reader_.accept("consumers")) parse_consumers();
    else if (reader_.accept("number")) parse_number(SymbolKind::kBlock);
    else if (reader_.accept("consumer")) parse_number(SymbolKind::kConsumer);
    else if (reader_.accept("place")) parse_place();
    else if (reader_.accept("buffer")) parse_buffer();
    else if (reader_.accept("tickets")) program_.tickets = buffer_named();
    else return false;
    return true;
  }

  template <typename Parse>
  void parse_list(const Parse& parse) {
    do parse();
    while (reader_.accept(","));
  }

  void parse_size() {
    SymbolInfo info{new_name().text, SymbolKind::kSize, {}, {}};
    reader_.expect("=");
    info.range.low = reader_.integer();
    reader_.expect("..");
    info.range.high = reader_.integer();
    if (reader_.accept("by")) info.range.divisor = reader_.integer();
    if (reader_.accept("threads")) info.threads = whole_number(1, 1 << 10);
    add_symbol(std::move(info));
  }

  void parse_grid() {
    SymbolInfo info{new_name().text, SymbolKind::kGrid, {}, {}};
    reader_.expect("=");
    info.count = index();
    info.range = grid_range(info.count, ranges_);
    program_.grid.push_back(add_symbol(std::move(info)));
  }

  void parse_lane() {
    SymbolInfo info{new_name().text, SymbolKind::kLane, {}, {}};
    reader_.expect("=");
    const size_t at = reader_.position();
    const int64_t width = reader_.integer();
    if (width < 1) reader_.fail_at(at, fmt::format("lane '{}' is {} wide, but a lane is at least 1", info.name, width));
    info.range = {0, width - 1, 1};
    info.shared = reader_.accept("shared");
    info.simd = reader_.accept("simd");
    if (reader_.accept("vectors")) info.vectors = whole_number(1, kMostOfVector);
    if (reader_.accept("dimension")) info.dimension = whole_number(0, kHighestRank);
    add_symbol(std::move(info));
  }

  void parse_launch() {
    reader_.expect("warps");
    program_.warps = whole_number(1, 1024);
    if (reader_.accept("registers")) program_.max_registers = whole_number(1, 1 << 16);
    program_.approximate = reader_.accept("approximate");
    program_.contracts = reader_.accept("contracts");
    program_.narrow = reader_.accept("narrow");
    if (reader_.accept("rank")) program_.rank = whole_number(0, kHighestRank);
  }

  void parse_order() {
    reader_.expect("grouped");
    program_.order.count = reader_.integer();
    reader_.expect("(");
    program_.order.grouped = used_symbol(SymbolKind::kGrid, "dimension of the grid");
    reader_.expect(",");
    program_.order.along = used_symbol(SymbolKind::kGrid, "dimension of the grid");
    reader_.expect(")");
  }

  void parse_number(SymbolKind kind) {
    SymbolInfo info{new_name().text, kind, {}, {}};
    reader_.expect("=");
    const int64_t count = whole_number(1, std::numeric_limits<int32_t>::max());
    info.range = {0, count - 1};
    add_symbol(std::move(info));
  }

  // Of a dimension of the grid, or of a name for a part of that.
  void parse_place() {
    TextReader ahead = reader_;
    const auto known = symbols_.find(ahead.name());
    Symbol symbol = -1;
    if (known == symbols_.end()) {
      SymbolInfo info{new_name().text, SymbolKind::kNamed, {}, {}};
      info.dtype = DType::i32;
      reader_.expect("=");
      info.value = index();
      info.range = range_of_named(program_, info.value);
      symbol = add_symbol(std::move(info));
    } else {
      symbol = used_symbol(SymbolKind::kGrid, "dimension of the grid");
      reader_.expect("=");
      program_.symbols[symbol].value = index();
    }
    program_.places.push_back(symbol);
  }

  void parse_consumers() {
    program_.consumers.count = whole_number(1, 16);
    if (reader_.accept("in")) {
      reader_.expect("turn");
    } else {
      reader_.expect("along");
      program_.consumers.along = used_symbol(SymbolKind::kGrid, "dimension of the grid");
    }
    if (reader_.accept("programs")) program_.consumers.programs = whole_number(1, 1 << 30);
    if (reader_.accept("registers")) {
      program_.consumers.registers = whole_number(1, 255);
      reader_.expect("and");
      program_.consumers.producer_registers = whole_number(1, 255);
    }
    if (reader_.accept("store")) {
      program_.consumers.stored_together = whole_number(1, 16);
      reader_.expect("along");
      program_.consumers.stored_along = used_symbol(SymbolKind::kLane, "lane");
    }
  }

  void parse_buffer() {
    Buffer buffer;
    buffer.name = new_name().text;
    reader_.expect(":");
    buffer.dtype = dtype();
    buffer.shape = indices();
    if (reader_.accept("strides")) {
      const size_t at = reader_.position();
      buffer.strides = indices();
      if (buffer.strides.size() != buffer.shape.size())
        reader_.fail_at(at, fmt::format("buffer '{}' has {} dimensions, but {} strides", buffer.name,
                                        buffer.shape.size(), buffer.strides.size()));
    }
    buffer.role = word<BufferRole>(kRoleWords, "role of a buffer called");
    if (reader_.next_is_name() && !next_begins_something()) buffer.space = word<Space>(kSpaceWords, "memory space");
    if (reader_.accept("align")) buffer.alignment = reader_.integer();
    buffers_[buffer.name] = static_cast<int>(program_.buffers.size());
    program_.buffers.push_back(std::move(buffer));
  }

  bool next_begins_something() {
    for (const std::string_view begin :
         {"doc",      "size",  "grid",   "lane",    "launch", "order",  "consumers", "number",
          "consumer", "place", "buffer", "tickets", "align",  "copy",   "wait",      "barrier",
          "for",      "if",    "store",  "index",   "skip",   "release"})
      if (reader_.next_is(begin)) return true;
    return false;
  }

  // --- Values and accesses ---

  Value new_value() {
    reader_.expect("%");
    ValueInfo info;
    info.name = new_name().text;
    reader_.expect(":");
    info.type.dtype = dtype();
    if (reader_.accept("[")) {
      info.type.lanes = used_lanes();
      reader_.expect("]");
    }
    program_.values.push_back(std::move(info));
    return static_cast<Value>(program_.values.size() - 1);
  }

  std::vector<Value> new_values() {
    std::vector<Value> list = {new_value()};
    while (reader_.accept(",")) list.push_back(new_value());
    return list;
  }

  Coordinate coordinate() {
    Coordinate result;
    if (!reader_.next_is("%")) {
      result.index = index();
      SumOrder& sum = result.sum;
      const bool wide = reader_.accept("i64");
      if (!reader_.accept(";")) {
        sum.wide = wide;
      } else {
        sum.first = result.index;
        sum.first_wide = wide;
        if (!reader_.next_is("%")) result.index = result.index + index();
      }
    }
    if (reader_.next_is("%") || reader_.accept("+")) {
      result.value = used_value();
      if (reader_.accept("+")) result.index = result.index + index();
    }
    result.sum.wide = reader_.accept("i64") || result.sum.wide;
    result.sum.together = reader_.accept("together");
    return result;
  }

  int buffer_named() {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = buffers_.find(name);
    if (found == buffers_.end()) reader_.fail_at(at, fmt::format("no buffer is called '{}'", name));
    return found->second;
  }

  Access place() {
    Access access;
    access.buffer = buffer_named();
    reader_.expect("[");
    if (reader_.accept("]")) return access;
    do access.coordinates.push_back(coordinate());
    while (reader_.accept(","));
    reader_.expect("]");
    if (reader_.accept("offset")) {
      reader_.expect("i64");
      access.wide = true;
    }
    return access;
  }

  void parse_mask(Access& access, bool with_otherwise) {
    if (!reader_.accept("where")) return;
    access.mask = used_value();
    if (!with_otherwise || !reader_.accept("otherwise")) return;
    access.any_otherwise = reader_.accept("any");
    if (!access.any_otherwise) access.otherwise = reader_.number();
  }

  void parse_hint(Instruction& result) {
    if (reader_.accept("hint")) result.hint = word<Hint>(kHintWords, "hint");
  }

  ReduceOp reduce_op() {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = kernel::find_reduce_op(name);
    if (!found) reader_.fail_at(at, fmt::format("there is no reduction '{}'", name));
    return *found;
  }

  // --- Instructions ---

  Instruction instruction() {
    starts_.push_back(reader_.position());
    if (reader_.next_is("%")) return computation();
    if (reader_.accept("index")) return definition();
    if (reader_.accept("store")) return store();
    if (reader_.accept("copy")) return copy();
    if (reader_.accept("for")) return loop();
    if (reader_.accept("if")) return branch();
    Instruction result;
    if (reader_.accept("wait")) {
      result.kind = Kind::kWait;
      parse_wait(result);
    } else if (reader_.accept("release")) {
      result.kind = Kind::kRelease;
      reader_.expect("boxes");
      if (reader_.accept("back")) result.pending = whole_number(1, 1 << 10);
    } else if (reader_.accept("skip")) {
      result.kind = Kind::kSkip;
      reader_.expect("boxes");
    } else if (reader_.accept("barrier")) {
      result.kind = Kind::kBarrier;
      result.scope = word<Scope>(kScopeWords, "scope of a barrier called");
      if (reader_.accept("along")) {
        do result.lanes.push_back(used_symbol(SymbolKind::kGrid, "dimension of the grid"));
        while (reader_.accept(","));
      }
      if (reader_.accept("counted")) {
        result.access.buffer = buffer_named();
        if (reader_.next_is("["))
          for (const Index& at : indices()) result.access.coordinates.push_back({at});
        reader_.expect("turn");
        result.index = index();
        result.wide = reader_.accept("wide");
      }
    } else {
      reader_.fail(
          "expected an instruction: '%name: type = …', index, store, copy, wait, release, skip, barrier, for or if");
    }
    return result;
  }

  void parse_wait(Instruction& result) {
    if (reader_.accept("boxes")) {
      result.awaited = Awaited::kBoxes;
    } else if (reader_.next_is("%")) {
      result.awaited = Awaited::kProduct;
      result.operands = {used_value()};
      if (reader_.accept("left")) result.pending = whole_number(1, 1 << 10);
    } else {
      result.pending = whole_number(0, 1 << 20);
    }
  }

  void parse_layout(Instruction& result, std::string_view preposition = "in") {
    if (reader_.accept(preposition)) result.layout = word<Layout>(kLayoutWords, "layout called");
  }

  Instruction definition() {
    Instruction result;
    result.kind = Kind::kDefine;
    SymbolInfo info{new_name().text, SymbolKind::kNamed, {}, {}};
    reader_.expect(":");
    info.dtype = dtype();
    reader_.expect("=");
    info.value = index();
    info.range = range_of_named(program_, info.value);
    named_.push_back(info.name);
    result.symbol = add_symbol(std::move(info));
    return result;
  }

  Instruction computation() {
    Instruction result;
    result.results = new_values();
    reader_.expect("=");
    parse_right_side(result);
    for (const Value value : result.results) show(value);
    return result;
  }

  void parse_right_side(Instruction& result) {
    const size_t at = reader_.position();
    const std::string word_here = reader_.name();
    if (word_here == "constant") {
      result.kind = Kind::kConstant;
      parse_constant(result);
      parse_layout(result);
    } else if (word_here == "move") {
      result.kind = Kind::kMove;
      result.operands = {used_value()};
      parse_layout(result, "to");
    } else if (word_here == "index") {
      result.kind = Kind::kIndex;
      result.index = index();
      result.wide = reader_.accept("wide");
    } else if (word_here == "relabel") {
      result.kind = Kind::kRelabel;
      result.operands = {used_value()};
      result.from = used_symbol(SymbolKind::kLane, "lane");
      reader_.expect("->");
      result.to = used_symbol(SymbolKind::kLane, "lane");
    } else if (word_here == "split") {
      result.kind = Kind::kSplit;
      result.operands = {used_value()};
      result.from = used_symbol(SymbolKind::kLane, "lane");
      reader_.expect("->");
      result.lanes = used_lanes();
    } else if (word_here == "stack" || word_here == "unstack") {
      result.kind = word_here == "stack" ? Kind::kStack : Kind::kUnstack;
      result.operands = used_values();
      reader_.expect("along");
      (result.kind == Kind::kStack ? result.to : result.from) = used_symbol(SymbolKind::kLane, "lane");
    } else if (word_here == "load") {
      result.kind = Kind::kLoad;
      result.access = place();
      if (reader_.accept("bulk")) result.mode = CopyMode::kBulk;
      parse_mask(result.access, true);
      parse_hint(result);
      result.coherent = reader_.accept("coherent");
      parse_layout(result);
    } else if (word_here == "dot") {
      result.kind = Kind::kDot;
      result.operands = used_values();
      result.from_zero = reader_.accept("from_zero");
      if (reader_.accept("precision")) result.precision = word<DotPrecision>(kPrecisionWords, "precision");
    } else if (word_here == "fold") {
      result.kind = Kind::kFold;
      result.reduce = reduce_op();
      result.operands = used_values();
      reader_.expect("over");
      result.lanes = used_lanes();
      result.at_once = reader_.accept("at_once");
      result.to_number = reader_.accept("to_number");
    } else if (word_here == "scan") {
      result.kind = Kind::kScan;
      result.reduce = reduce_op();
      result.operands = used_values();
      reader_.expect("along");
      result.from = used_symbol(SymbolKind::kLane, "lane");
      result.reversed = reader_.accept("reversed");
      if (reader_.accept("first")) result.integer = reader_.integer();
      if (reader_.accept(kScanWayWords[1])) result.way = ScanWay::kNetwork;
      else if (reader_.accept(kScanWayWords[2])) result.way = ScanWay::kPicked;
      else if (reader_.accept(kScanWayWords[3])) result.way = ScanWay::kTopK;
      else if (reader_.accept(kScanWayWords[4])) {
        result.way = ScanWay::kAfter;
        const std::vector<Value> before = used_values();
        result.operands.insert(result.operands.end(), before.begin(), before.end());
      }
    } else if (const auto op = kernel::find_scalar_op(word_here)) {
      result.kind = Kind::kOp;
      result.op = *op;
      result.operands = used_values();
      for (const Exactness exactness : {Exactness::kApproximate, Exactness::kExact})
        if (reader_.accept(kExactnessWords[static_cast<size_t>(exactness)])) result.exactness = exactness;
      result.nonnegative = reader_.accept("nonnegative");
    } else {
      reader_.fail_at(at, fmt::format("there is no operation '{}'", word_here));
    }
  }

  void parse_constant(Instruction& result) {
    const DType type = program_.values[result.results[0]].type.dtype;
    if (type == DType::b1) {
      result.integer = reader_.accept("true");
      if (!result.integer) reader_.expect("false");
    } else if (is_integral(type)) {
      result.integer = reader_.integer();
    } else {
      result.number = reader_.number();
    }
  }

  Instruction store() {
    Instruction result;
    result.kind = Kind::kStore;
    result.access = place();
    if (reader_.accept("bulk")) result.mode = CopyMode::kBulk;
    reader_.expect("<-");
    result.operands = {used_value()};
    parse_mask(result.access, false);
    result.combines = reader_.accept("combine");
    if (result.combines) result.reduce = reduce_op();
    result.in_order = reader_.accept("in_order");
    parse_hint(result);
    return result;
  }

  Instruction copy() {
    Instruction result;
    result.kind = Kind::kCopy;
    result.mode = word<CopyMode>(kCopyWords, "mode of copies called");
    result.destination = place();
    reader_.expect("<-");
    result.access = place();
    if (reader_.accept("over")) result.lanes = used_lanes();
    parse_mask(result.access, true);
    return result;
  }

  // `{ … yield … }`; what it defines is not seen after.
  void parse_block(std::vector<Instruction>& body, std::vector<Value>& yields) {
    const size_t shown = shown_.size();
    reader_.expect("{");
    while (!reader_.next_is("}") && !reader_.next_is("yield")) body.push_back(instruction());
    if (reader_.accept("yield")) yields = used_values();
    reader_.expect("}");
    hide_from(shown);
  }

  Instruction loop() {
    Instruction result;
    result.kind = Kind::kFor;
    const std::string name = new_name().text;
    reader_.expect("=");
    result.begin = index();
    reader_.expect("to");
    result.end = index();
    if (reader_.accept("until")) result.until = used_value();
    if (reader_.accept("step")) result.step = whole_number(1, std::numeric_limits<int32_t>::max());
    if (reader_.accept("stages")) result.stages = whole_number(1, 1 << 10);
    result.unrolled = reader_.accept("unrolled");
    result.reversed = reader_.accept("reversed");
    std::string counter;
    if (reader_.accept("counter")) counter = new_name().text;
    result.shared = reader_.accept("shared");
    result.simd = reader_.accept("simd");
    result.wide = reader_.accept("wide");
    std::vector<Name> results;
    if (reader_.accept("carry")) {
      do {
        result.arguments.push_back(new_value());
        reader_.expect("=");
        result.operands.push_back(used_value());
      } while (reader_.accept(","));
      reader_.expect("->");
      do {
        reader_.expect("%");
        results.push_back(new_name());
      } while (reader_.accept(","));
      if (results.size() != result.arguments.size())
        reader_.fail_at(results[0].position, fmt::format("the loop carries {} values, but has {} results",
                                                         result.arguments.size(), results.size()));
    }
    result.symbol = add_symbol(
        {name, SymbolKind::kLoop, loop_range(result.begin, result.end, result.step, ranges_), {}});
    const size_t shown = shown_.size(), named = named_.size();
    named_.push_back(name);
    if (!counter.empty()) {
      const Index count = iterations_of(program_, result);
      result.counter = add_symbol({counter, SymbolKind::kLoop, loop_range(0, count, 1, ranges_), count});
      named_.push_back(counter);
    }
    for (const Value argument : result.arguments) show(argument);
    parse_block(result.body, result.yields);
    hide_from(shown);
    // The next loop may call its variable, and its indices, so, too.
    for (; named_.size() > named; named_.pop_back()) {
      symbols_.erase(named_.back());
      names_.erase(named_.back());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      program_.values.push_back({results[i].text, program_.values[result.arguments[i]].type});
      result.results.push_back(static_cast<Value>(program_.values.size() - 1));
      show(result.results.back());
    }
    return result;
  }

  Instruction branch() {
    Instruction result;
    result.kind = Kind::kIf;
    result.operands = {used_value()};
    if (reader_.accept("->")) result.results = new_values();
    parse_block(result.body, result.yields);
    if (reader_.accept("else")) parse_block(result.otherwise_body, result.otherwise_yields);
    for (const Value value : result.results) show(value);
    return result;
  }

  std::unordered_map<std::string, int> buffers_;
  std::vector<std::string> named_;  // loops' variables and named indices, in the order in which they were defined
  std::vector<size_t> starts_;      // [instruction, as `for_each` counts]: where its text begins
};

}  // namespace

Program parse_program(std::string_view text) { return ProgramParser(text).whole(); }

}  // namespace kw::tile
