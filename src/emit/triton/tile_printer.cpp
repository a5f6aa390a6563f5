#include "emit/triton/tile_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "emit/triton/consumers.hpp"
#include "emit/python_text.hpp"
#include "emit/triton/expressions.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/triton/index_text.hpp"
#include "emit/triton/lane_dimensions.hpp"
#include "emit/triton/tile_addresses.hpp"
#include "emit/triton/tile_atomics.hpp"
#include "emit/triton/tile_folds.hpp"
#include "emit/triton/tile_launch.hpp"
#include "emit/triton/tile_loops.hpp"
#include "emit/triton/tile_matrices.hpp"
#include "emit/triton/tile_notes.hpp"
#include "emit/runtime/triton/refused_indices.hpp"
#include "emit/triton/tile_stacks.hpp"
#include "emit/triton/tile_symbols.hpp"
#include "emit/triton/tile_uses.hpp"
#include "emit/triton/tile_windows.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/text_words.hpp"
#include "tile/value_facts.hpp"

namespace kw::triton {
namespace {

using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Instruction;
using tile::kNoValue;
using tile::Kind;
using tile::Symbol;
using tile::TileType;
using tile::Value;
using Lanes = std::vector<Symbol>;

// Longer results of a single use get a line of their own.
constexpr size_t kLongestInline = 60;
// Arguments of calls are broken into lines beyond it.
constexpr size_t kColumns = 120;

class TilePrinter {
 public:
  explicit TilePrinter(const tile::Program& program)
      : program_(program),
        ranges_(tile::ranges_of(program)),
        full_rank_(program.rank >= 0),
        indices_(program),
        addresses_(program, indices_),
        windows_(program, indices_),
        uses_(program),
        values_(program),
        texts_(program.values.size()),
        mentions_(program.values.size()) {
    if (has_consumers(program)) consumers_.emplace(program, indices_, windows_);
  }

  TileKernel run() {
    require_nonnegative_dividends(program_);
    print_head();
    print_body(program_.body);
    indent_ = 4;
    if (consumers_) lines(consumers_->end());
    if (consumers_) out_ += "\n\n" + consumers_->producer() + "\n\n" + consumers_->kernel();
    return {std::move(out_), launch_function(program_, indices_), std::move(helpers_)};
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kInternal, fmt::format("tile program '{}' has no Triton form: {}", program_.name, what));
  }

  // --- Lines ---

  void lines(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) line(text);
  }
  void line(const std::string& text) {
    if (!note_.empty() && notes_.insert(note_).second) line(std::exchange(note_, ""));
    note_.clear();
    const std::string short_lines = python::with_short_lines(text, indent_, python::kLongestLine);
    out_ += text.empty() ? "\n" : std::string(indent_, ' ') + short_lines + "\n";
  }

  const TileType& type(Value value) const { return program_.values[value].type; }
  const std::string& name(Value value) const { return program_.values[value].name; }
  int64_t width(Symbol lane) const { return tile::width_of(program_, lane); }

  // --- Head ---

  void print_head() {
    for (const tile::Buffer& buffer : program_.buffers)
      if (buffer.space != tile::Space::kGlobal) refuse("shared memory of its own");
    lines(consumers_ ? consumers_->definition() : definition_lines(program_));
    indent_ = 4;
    const std::string doc = consumers_ ? "One of the blocks that run as one." : program_.doc;
    if (!doc.empty()) line(python::docstring(doc, indent_, python::kLongestLine));
    if (consumers_) {
      lines(consumers_->walk());
      if (program_.consumers.programs > 0) indent_ += 4;
    }
    lines(symbol_lines(program_, indices_));
    if (consumers_) lines(consumers_->behind_symbols());
    lines(indices_.definitions(program_.body));
    if (consumers_) return;
    for (const TileWindows::Window& window : windows_.all())
      assign(window.name, call(window.name.size() + 3, "tl.make_tensor_descriptor", windows_.arguments(window)));
  }

  // --- Values ---

  // As a tile of these lanes, of which it has some.
  Text text(Value value, const Lanes& lanes) const {
    Lanes own;
    for (Symbol lane : lanes)
      if (std::find(type(value).lanes.begin(), type(value).lanes.end(), lane) != type(value).lanes.end())
        own.push_back(lane);
    const Text in_order = own == type(value).lanes ? texts_[value] : Text{turned(value, own)};
    const std::string marks = full_rank_ ? spread(program_, own, lanes) : brackets(own, lanes);
    if (marks.empty()) return in_order;
    return {wrap(in_order, Binding::kAtom) + marks};
  }

  // The result in a line of its own, or where it is used if that is once, in the same body, and the text is short.
  void give(Value value, Text text, const std::vector<Value>& operands, bool may_inline = true) {
    if (text.constant || (may_inline && uses_.is_used_once(value) && text.text.size() <= kLongestInline)) {
      texts_[value] = std::move(text);
      for (Value operand : operands) mentions_[value].insert(mentions_[operand].begin(), mentions_[operand].end());
      return;
    }
    assign(name(value), text.text);
    texts_[value] = {name(value)};
  }

  void assign(const std::string& name, const std::string& text) { line(fmt::format("{} = {}", name, text)); }

  // A call, with its arguments in lines of their own where it would be long behind what stands before it.
  std::string call(size_t before, const std::string& function, const std::vector<std::string>& arguments) const {
    return python::call_at(indent_, before, function, arguments, kColumns);
  }

  std::string shape_text(const Lanes& lanes) const {
    if (full_rank_) return shape_of(program_, lanes);
    std::vector<std::string> sizes;
    for (Symbol lane : lanes) sizes.push_back(std::to_string(width(lane)));
    return "(" + join(sizes, ", ") + (sizes.size() == 1 ? ",)" : ")");
  }

  // --- Instructions ---

  void print_body(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) print(one);
  }

  void print(const Instruction& one) {
    if (const std::string note = note_of(program_, values_, one); !note.empty()) note_ = note;
    switch (one.kind) {
      case Kind::kDefine: return;  // printed before what stands at the head of its body
      case Kind::kConstant: return print_constant(one);
      case Kind::kIndex: return print_index(one);
      case Kind::kOp: return print_op(one);
      case Kind::kRelabel:
      case Kind::kSplit: return print_renamed(one);
      case Kind::kStack: return print_stack(one);
      case Kind::kUnstack: return print_unstack(one);
      case Kind::kLoad: return print_load(one);
      case Kind::kStore: return print_store(one);
      case Kind::kDot: return print_dot(one);
      case Kind::kFold: return print_fold(one);
      case Kind::kScan: return print_scan(one);
      case Kind::kFor: return print_for(one);
      case Kind::kIf: return print_if(one);
      case Kind::kCopy: refuse("copies to shared memory are Triton's own");
      case Kind::kWait:
      case Kind::kRelease:
      case Kind::kSkip:
        if (!consumers_) refuse("waits for copies to shared memory");
        return lines(consumers_->waits(one));
      case Kind::kMove: return print_move(one);
      case Kind::kBarrier: return print_barrier(one);
    }
  }

  void print_barrier(const Instruction& one) {
    if (one.scope == tile::Scope::kBlock) return line("tl.debug_barrier()");
    if (one.scope != tile::Scope::kGrid || one.access.buffer < 0)
      refuse("a barrier of several blocks without a counter");
    helpers_.insert("wait_for_all");
    const std::string counter = one.access.coordinates.empty() ? program_.buffers[one.access.buffer].name
                                                               : place_of(one.access, {}).pointer();
    line(
        fmt::format("wait_for_all({}, {})", counter, indices_.spelled(tile::arrivals_at(program_, one), {}, one.wide)));
  }

  void print_constant(const Instruction& one) {
    const Value value = one.results[0];
    const Text number = literal(type(value).dtype, one.number, one.integer, full_);
    if (type(value).lanes.empty()) {
      texts_[value] = number;
      return;
    }
    const std::string layout = consumers_ ? consumers_->layout_of(one) : "";
    const Text full{fmt::format("{}({}, {}, {}{})", full_, shape_text(type(value).lanes), number.text,
                                dtype_name(type(value).dtype), layout.empty() ? "" : ", " + layout)};
    if (values_.is_true(value)) texts_[value] = full;  // the condition of what is spread over these lanes
    else give(value, full, {});
  }

  void print_index(const Instruction& one) {
    const Value value = one.results[0];
    if (const auto number = kernel::as_constant(one.index)) {
      texts_[value] = literal(type(value).dtype, 0, *number, full_);
      return;
    }
    const bool single = kernel::as_symbol(one.index).has_value(), is_long = type(value).dtype == DType::i64;
    if (is_long && !single && !one.wide && program_.narrow)  // one step of 64 bits, the last
      return give(value, {"(" + indices_.spelled(one.index, type(value).lanes) + ").to(tl.int64)"}, {});
    const Text text{indices_.spelled(one.index, type(value).lanes, is_long || one.wide),
                    single ? Binding::kAtom : Binding::kAdd};
    if (text.binding == Binding::kAtom) texts_[value] = text;
    else give(value, text, {});
  }

  Operation operation_of(const Instruction& one) const {
    return {one.op, type(one.results[0]).dtype, type(one.operands.back()).dtype, one.exactness, one.nonnegative};
  }

  void print_op(const Instruction& one) {
    const Value value = one.results[0];
    if (!texts_[value].text.empty()) return;  // printed with the load of its operand
    if (one.op == ScalarOp::kBounded) return print_bounded(one);
    const Lanes& lanes = type(value).lanes;
    if (one.op == ScalarOp::kSelect && values_.is_true(one.operands[0]))
      return give(value, {fmt::format("tl.broadcast_to({}, {})", text(one.operands[1], lanes).text, shape_text(lanes))},
                  one.operands);
    const Operation operation = operation_of(one);
    while (true) {
      std::vector<Text> operands;
      for (Value operand : one.operands) operands.push_back(text(operand, lanes));
      std::vector<std::string> helpers;
      const Text result = operation_text(operation, operands, helpers);
      if (indent_ + name(value).size() + 3 + result.text.size() > python::kLongestLine && name_longest(one.operands))
        continue;
      helpers_.insert(helpers.begin(), helpers.end());
      return give(value, result, one.operands, !full_rank_ || !values_.takes_last_of(one));
    }
  }

  // Where a mask withheld what an index is made of, it may be anything, and is nobody's mistake.
  void print_bounded(const Instruction& one) {
    const Value value = one.results[0];
    const Instruction* size = values_.maker(one.operands[1]);
    if (!size || size->kind != Kind::kConstant) refuse("an index held against what is no number");
    std::vector<std::string> masks, arguments = {texts_[one.operands[0]].text, texts_[one.operands[1]].text,
                                                 place_of_refused(program_, size->integer)};
    for (Value mask : values_.masks_behind(value))
      masks.push_back(wrap(text(mask, type(value).lanes), Binding::kBitAnd));
    if (!masks.empty()) arguments.push_back(join(masks, " & "));
    give(value, {call(name(value).size() + 3, with_helper("bounded"), arguments)}, one.operands, false);
  }

  // Gives the longest of the operands that have none a line of its own. False where none is worth one.
  bool name_longest(const std::vector<Value>& operands) {
    constexpr size_t kShortest = 20;
    Value longest = kNoValue;
    for (Value operand : operands)
      if (!texts_[operand].constant && texts_[operand].text.size() >= kShortest &&
          texts_[operand].text != name(operand) &&
          (longest == kNoValue || texts_[operand].text.size() > texts_[longest].text.size()))
        longest = operand;
    if (longest == kNoValue) return false;
    name_here(longest);
    return true;
  }

  void name_here(Value value) {
    if (texts_[value].text == name(value) || python::is_identifier(texts_[value].text)) return;
    assign(name(value), texts_[value].text);
    texts_[value] = {name(value)};
    mentions_[value].clear();
  }

  void print_renamed(const Instruction& one) {
    Lanes lanes = type(one.operands[0]).lanes;
    const auto found = std::find(lanes.begin(), lanes.end(), one.from);
    Text text = texts_[one.operands[0]];
    *found = one.kind == Kind::kSplit ? one.lanes[0] : one.to;
    if (one.kind == Kind::kSplit) {
      lanes.insert(found + 1, one.lanes[1]);
      text = {fmt::format("tl.reshape({}, {})", text.text, shape_text(lanes))};
    }
    const Lanes& wanted = type(one.results[0]).lanes;
    give(one.results[0], lanes == wanted ? text : Text{permuted(text.text, lanes, wanted)}, one.operands);
  }

  size_t rank_of(Value tile) const { return full_rank_ ? static_cast<size_t>(program_.rank) : type(tile).lanes.size(); }

  void print_stack(const Instruction& one) {
    std::vector<std::string> parts;
    for (Value part : one.operands) parts.push_back(texts_[part].text);
    give(one.results[0], {stack_text(parts, rank_of(one.operands[0]), helpers_)}, one.operands);
  }

  void print_unstack(const Instruction& one) {
    std::vector<std::string> parts;
    for (Value part : one.results) {
      parts.push_back(uses_.is_used(part) ? name(part) : "_");
      texts_[part] = {name(part)};
    }
    assign(join(parts, ", "),
           unstack_text(texts_[one.operands[0]].text, parts.size(), rank_of(one.results[0]), helpers_));
  }

  // --- Memory ---

  TileAddresses::Place place_of(const tile::Access& access, const Lanes& lanes) const {
    return addresses_.of(
        access, lanes, [&](Value value) { return text(value, lanes); },
        fmt::format("tl.zeros({}, tl.int32)", shape_text(lanes)));
  }

  void print_load(const Instruction& one) {
    const Value value = one.results[0];
    if (one.mode == tile::CopyMode::kBulk)
      return give(value, {consumers_ ? consumers_->loaded(one) : windows_.load_text(one)}, {}, false);
    const Lanes& lanes = type(value).lanes;
    if (!std::is_sorted(lanes.begin(), lanes.end()))
      refuse("a load whose lanes are not in the order of their declaration");
    std::vector<std::string> arguments = {place_of(one.access, lanes).pointer()};
    if (one.access.mask != kNoValue) {
      arguments.push_back("mask=" + text(one.access.mask, lanes).text);
      const double otherwise = one.access.otherwise;
      if (!one.access.any_otherwise)
        arguments.push_back(
            "other=" +
            literal(type(value).dtype, otherwise, static_cast<int64_t>(std::isfinite(otherwise) ? otherwise : 0)).text);
    }
    if (one.coherent) arguments.emplace_back("cache_modifier=\".cg\"");
    if (one.hint == tile::Hint::kKeep) arguments.emplace_back("eviction_policy=\"evict_last\"");
    if (one.hint == tile::Hint::kStream) arguments.emplace_back("eviction_policy=\"evict_first\"");
    Text result{call(name(value).size() + 3, "tl.load", arguments)};
    if (type(value).dtype == DType::b1) result.text += ".to(tl.int1)";
    // A cast that alone uses what is loaded stands in its line.
    const Instruction* user = values_.only_operation(value);
    if (user && user->op == ScalarOp::kCast && type(user->results[0]).dtype != DType::b1) {
      std::vector<std::string> helpers;
      assign(name(value), operation_text(operation_of(*user), {result}, helpers).text);
      helpers_.insert(helpers.begin(), helpers.end());
      texts_[user->results[0]] = {name(value)};
      return;
    }
    give(value, result, {}, false);
  }

  void print_store(const Instruction& one) {
    const Value stored = one.operands[0];
    // What combines may have several values for an element.
    const Lanes lanes = united(tile::lanes_of(program_, one.access), type(stored).lanes);
    if (one.mode == tile::CopyMode::kBulk) {
      const std::string tile = text(stored, lanes).text;
      return consumers_ ? lines(consumers_->stores(one, tile)) : line(windows_.store_text(one, tile));
    }
    const TileAddresses::Place place = place_of(one.access, lanes);
    const Text& value = texts_[stored];
    std::vector<std::string> arguments = {place.pointer(), value.constant && type(stored).dtype != DType::i32
                                                               ? typed(value, type(stored).dtype)
                                                               : text(stored, lanes).text};
    const std::string mask = one.access.mask == kNoValue ? "" : text(one.access.mask, lanes).text;
    if (!mask.empty()) arguments.push_back("mask=" + mask);
    if (one.in_order) refuse("stores in the order of their points");
    if (!one.combines) return line(call(0, "tl.store", arguments));
    // Atomics want tiles of one shape, and numbers where the address is one.
    const bool is_number = std::none_of(program_.symbols.begin(), program_.symbols.end(),
                                        [](const auto& symbol) { return symbol.kind == tile::SymbolKind::kLane; });
    const std::string shape = is_number ? "(1,)" : shape_text(lanes);
    std::string tile = text(stored, lanes).text;
    if (value.constant)
      tile = fmt::format("tl.full({}, {}, {})", is_number ? "()" : shape, tile, dtype_name(type(stored).dtype));
    else if (type(stored).lanes != lanes) tile = fmt::format("tl.broadcast_to({}, {})", tile, shape);
    const AtomicCall atomic = atomic_call(place, tile, mask, shape, one.reduce, type(stored).dtype, helpers_);
    line(call(0, atomic.function, atomic.arguments));
  }

  // --- Products ---

  // The operand with its dimensions in this order.
  std::string turned(Value operand, const Lanes& wanted) const {
    const Lanes& lanes = type(operand).lanes;
    if (lanes == wanted) return texts_[operand].text;
    if (consumers_) return texts_[operand].text + ".permute((1, 0))";
    if (lanes.size() == 2) return fmt::format("tl.trans({})", texts_[operand].text);
    return permuted(texts_[operand].text, lanes, wanted);
  }

  void print_dot(const Instruction& one) {
    const Value total = one.operands[0], result = one.results[0];
    std::string why_not;
    const std::optional<Matrices> matrices = matrices_of(program_, one, why_not);
    if (!matrices) refuse(why_not);
    std::vector<std::string> arguments = {
        turned(matrices->left, matrices->left_lanes), turned(matrices->right, matrices->right_lanes),
        texts_[total].constant ? typed(texts_[total], type(total).dtype) : texts_[total].text};
    if (consumers_) return print_product(one, std::move(arguments));
    if (type(matrices->left).dtype == DType::f32)
      arguments.push_back("input_precision=" +
                          (one.precision == tile::DotPrecision::kBf16x6
                               ? with_helper("SIX_PRODUCTS")
                               : fmt::format("\"{}\"", tile::kPrecisionWords[static_cast<size_t>(one.precision)])));
    if (type(result).dtype == DType::i32) arguments.emplace_back("out_dtype=tl.int32");
    give(result, {call(name(result).size() + 3, "tl.dot", arguments)}, one.operands);
  }

  // Of consumers: products run by themselves until their sum is wanted.
  void print_product(const Instruction& one, std::vector<std::string> arguments) {
    const std::string& result = name(one.results[0]);
    if (one.from_zero) arguments.emplace_back("use_acc=False");
    arguments.emplace_back("is_async=True");
    assign(result, call(result.size() + 3, "hopper.warpgroup_mma", arguments));
    texts_[one.results[0]] = {result};
  }

  // What a loop has carried stays a variable; else it is moved where it is used.
  void print_move(const Instruction& one) {
    const Value from = one.operands[0], to = one.results[0];
    const std::string moved = fmt::format("gl.convert_layout({}, {})", texts_[from].text, consumers_->layout_of(one));
    mentions_[to] = mentions_[from];
    if (consumers_->is_left_by_loop(from)) assign(name(from), moved);
    texts_[to] = {consumers_->is_left_by_loop(from) ? name(from) : moved};
  }

  // --- Folds ---

  std::string with_helper(const std::string& helper) {
    helpers_.insert(helper);
    return helper;
  }

  void print_fold(const Instruction& one) {
    const Value operand = one.operands[0];
    if (one.reduce == ReduceOp::kArgMax || one.reduce == ReduceOp::kArgMin) return print_place(one);
    if (one.operands.size() == 2 && kernel::takes_along(one.reduce)) return print_fold_along(one);
    const std::string text = fold_text(texts_[operand], one.reduce, type(operand).dtype,
                                       folded_dimensions(program_, one), helpers_);
    if (text.empty()) refuse(fmt::format("a fold by {}", kernel::name_of(one.reduce)));
    give(one.results[0], {text}, one.operands, !full_rank_);
  }

  void print_fold_along(const Instruction& one) {
    if (one.lanes.size() != 1) refuse("an extreme of several lanes that takes something along");
    assign(fmt::format("{}, {}", name(one.results[0]), name(one.results[1])),
           fold_along_text(texts_[one.operands[0]], texts_[one.operands[1]], one.reduce,
                           folded_dimensions(program_, one), helpers_));
    for (Value result : one.results) texts_[result] = {name(result)};
  }

  void print_place(const Instruction& one) {
    if (one.lanes.size() != 1) refuse("a place among several lanes");
    const Value operand = one.operands[0];
    const Lanes& lanes = type(operand).lanes;
    const FoldedDimensions dimensions = folded_dimensions(program_, one);
    std::string places = program_.symbols[one.lanes[0]].name;
    if (!full_rank_) places += brackets({one.lanes[0]}, lanes) + ".to(tl.int64)";
    if (!full_rank_ || dimensions.count > 1) places = fmt::format("tl.broadcast_to({}, {})", places, shape_text(lanes));
    line(place_line(name(one.results[0]), texts_[operand], places, one.reduce, dimensions, helpers_));
    texts_[one.results[0]] = {name(one.results[0])};
  }

  // The dimension of tiles that a lane is.
  size_t dimension_of(Symbol lane, Value tile) const {
    if (full_rank_) return static_cast<size_t>(program_.symbols[lane].dimension);
    const Lanes& lanes = type(tile).lanes;
    return static_cast<size_t>(std::find(lanes.begin(), lanes.end(), lane) - lanes.begin());
  }

  void print_scan(const Instruction& one) {
    if (one.way == tile::ScanWay::kAfter) refuse("a scan that goes on from what was met before");
    const size_t dimension = dimension_of(one.from, one.operands[0]);
    std::vector<Text> tiles;
    std::vector<DType> types;
    std::vector<std::string> results;
    for (Value operand : one.operands) {
      if (one.operands.size() > 1) name_here(operand);
      tiles.push_back(texts_[operand]);
      types.push_back(type(operand).dtype);
    }
    for (Value result : one.results) results.push_back(name(result));
    if (kernel::is_sort(one.reduce)) {
      if (dimension + 1 != rank_of(one.operands[0])) refuse("a sort that is not along the last dimension");
      std::string numbers = results[0] + "_numbers";
      while (indices_.is_taken(numbers)) numbers += "_";
      lines(sort_lines(one, results, tiles, types, numbers, helpers_));
    } else {
      const std::string text = scan_text(one, tiles, types[0], dimension, width(one.from), helpers_);
      if (text.empty()) refuse(fmt::format("a scan by {}", kernel::name_of(one.reduce)));
      if (results.size() == 1) return give(one.results[0], {text}, one.operands, !full_rank_);
      assign(join(results, ", "), text);
    }
    for (Value result : one.results) texts_[result] = {name(result)};
  }

  // --- Control ---

  // Carried values are variables: called as the loop's results are, set before it and at the end of its body.
  void print_for(const Instruction& one) {
    for (size_t i = 0; i < one.results.size(); ++i) {
      const Text& before = texts_[one.operands[i]];
      const std::string start = before.constant ? scalar(before, type(one.operands[i]).dtype) : before.text;
      assign(name(one.results[i]), start);
      texts_[one.arguments[i]] = texts_[one.results[i]] = {name(one.results[i])};
      mentions_[one.arguments[i]] = {one.arguments[i]};
    }
    const LoopHead head = loop_head(program_, one, indices_, one.until == kNoValue ? "" : texts_[one.until].text);
    if (consumers_) lines(consumers_->before_loop());
    line(head.line);
    indent_ += 4;
    const size_t empty = out_.size();
    if (!head.start.empty()) line(head.start);
    lines(indices_.definitions(one.body));
    print_body(one.body);
    set_variables(one.yields, one.results, one.arguments);
    if (consumers_) lines(consumers_->end_iteration());
    if (out_.size() == empty) line("pass");
    indent_ -= 4;
    if (consumers_) lines(consumers_->behind_loop());
  }

  // `variable = value` for each; what mentions a variable that is set before it is computed first.
  void set_variables(const std::vector<Value>& values, const std::vector<Value>& variables,
                     const std::vector<Value>& arguments) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool late = std::any_of(arguments.begin(), arguments.begin() + static_cast<long>(i),
                                    [&](Value argument) { return mentions_[values[i]].contains(argument); });
      const Text& text = texts_[values[i]];
      texts.push_back(text.constant ? scalar(text, type(values[i]).dtype) : text.text);
      if (!late) continue;
      std::string next = name(values[i]);
      if (std::find(arguments.begin(), arguments.end(), values[i]) != arguments.end()) next += "_before";
      assign(next, texts[i]);
      texts[i] = next;
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (texts[i] != name(variables[i])) assign(name(variables[i]), texts[i]);
  }

  void print_if(const Instruction& one) {
    line(fmt::format("if {}:", texts_[one.operands[0]].text));
    const auto branch = [&](const std::vector<Instruction>& body, const std::vector<Value>& yields) {
      indent_ += 4;
      const size_t empty = out_.size();
      print_body(body);
      for (size_t i = 0; i < yields.size(); ++i) assign(name(one.results[i]), texts_[yields[i]].text);
      if (out_.size() == empty) line("pass");
      indent_ -= 4;
    };
    branch(one.body, one.yields);
    if (!one.otherwise_body.empty() || !one.otherwise_yields.empty()) {
      line("else:");
      branch(one.otherwise_body, one.otherwise_yields);
    }
    for (Value result : one.results) texts_[result] = {name(result)};
  }

  const tile::Program& program_;
  std::vector<kernel::SymbolRange> ranges_;
  const bool full_rank_;  // all tiles have the same dimensions
  IndexText indices_;
  const TileAddresses addresses_;
  TileWindows windows_;
  const std::string_view full_ = has_consumers(program_) ? "gl.full" : "tl.full";
  std::optional<ConsumerText> consumers_;
  const TileUses uses_;
  const tile::ValueFacts values_;
  std::vector<Text> texts_;                // [value]
  std::vector<std::set<Value>> mentions_;  // [value] loops' arguments that its text names
  std::set<std::string> helpers_;
  std::string note_;             // above the next line
  std::set<std::string> notes_;  // that stand above one already
  std::string out_;
  int indent_ = 0;
};

}  // namespace

TileKernel print_tile_kernel(const tile::Program& program) { return TilePrinter(program).run(); }

}  // namespace kw::triton
