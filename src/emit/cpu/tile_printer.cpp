#include "emit/cpu/tile_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "emit/cpu/tile_accesses.hpp"
#include "emit/cpu/tile_context.hpp"
#include "lower/loop_tree.hpp"
#include "kernel/operations.hpp"
#include "lower/walks.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/block_places.hpp"

namespace kw::cpu {
namespace {

using kernel::ScalarOp;
using lower::Home;
using lower::LoopStep;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::SymbolKind;
using tile::Value;

// Longer results of a single use get a line of their own, and so do operands where an expression gets long.
constexpr size_t kLongestInline = 60, kLongestExpression = 90, kShortestNamed = 16;

class TilePrinter {
 public:
  TilePrinter(const tile::Program& program, const lower::LoopPlan& plan, HelperSet& helpers)
      : program_(program),
        plan_(plan),
        at_(program_, plan_, helpers),
        accesses_(at_, plan),
        uses_(program.values.size()),
        users_(program.values.size()),
        holds_load_(program.values.size()),
        ends_(plan.named_ends.size()),
        refuses_(refuses_indices(program)) {
    for (size_t value = 0; value < plan_.places.size(); ++value) {
      const Value storage = plan_.places[value].storage;
      if (storage != tile::kNoValue && storage != static_cast<Value>(value)) shared_.insert(storage);
    }
    tile::for_each(program_.body, [&](const Instruction& one) {
      note(one);
      lower::for_each_use(one, [&](Value value, lower::Use) {
        ++uses_[value];
        users_[value] = &one;
      });
    });
    find_holding(plan_.body);
  }

  PrintedTile run() {
    check_memory();
    print_head();
    print_grid();
    if (refuses_) at_.out.line("return refused;");
    at_.out.close();
    return {in_columns(at_.out.text()), takes_threads(program_), refuses_};
  }

 private:
  // --- What there is ---

  void note(const Instruction& one) {
    if (one.results.size() == 1 && is_written(one.results[0]))
      at_.written[one.results[0]] = one.kind == Kind::kIndex ? at_.text.index(one.index) : at_.text.constant(one);
    if (one.kind == Kind::kBarrier && one.scope != tile::Scope::kBlock)
      refuse_tile(program_, "a barrier of several blocks");
    if (one.kind == Kind::kStack || one.kind == Kind::kUnstack) refuse_tile(program_, "stacked tiles");
    if (one.kind == Kind::kRelease) refuse_tile(program_, "what consumers on a GPU tell their producer");
  }

  void find_holding(const std::vector<LoopStep>& steps) {
    for (const LoopStep& step : steps) {
      for (Value mask : step.holds)
        if (--uses_[mask] == 0) at_.holding.insert(mask);
      find_holding(step.body);
    }
  }

  bool is_written(Value value) const { return plan_.places[value].home == Home::kWritten; }

  void check_memory() const {
    for (const tile::Buffer& buffer : program_.buffers)
      if (buffer.space == tile::Space::kCluster) refuse_tile(program_, "memory of a cluster, '" + buffer.name + "'");
  }

  // --- The function, and the blocks of its grid ---

  void print_head() {
    std::vector<std::string> parameters;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const tile::Buffer& buffer = program_.buffers[i];
      if (buffer.space != tile::Space::kGlobal) continue;
      parameters.push_back((buffer.role == tile::BufferRole::kInput ? "const " : "") + storage_type(buffer.dtype) +
                           "* " + at_.text.buffer(static_cast<int>(i)));
    }
    for (size_t i = 0; i < program_.symbols.size(); ++i)
      if (program_.symbols[i].kind == SymbolKind::kSize && program_.symbols[i].threads == 0)
        parameters.push_back("int64_t " + at_.text.symbol(static_cast<Symbol>(i)));
    if (takes_threads(program_)) parameters.emplace_back("int threads");
    if (!program_.doc.empty()) at_.out.line("// " + program_.doc);
    const std::string head = std::string("extern \"C\" ") + (refuses_ ? "const int64_t* " : "void ") + program_.name +
                             "(";
    const std::string line = head + join(parameters, ", ") + ")";
    at_.out.open(line.size() <= 120 ? line : head + "\n    " + join(parameters, ",\n    ") + ")");
    if (refuses_) at_.out.line("const int64_t* refused = nullptr;");
    for (size_t i = 0; i < program_.symbols.size(); ++i)
      if (const int least = program_.symbols[i].threads; least > 1) {
        at_.note(Reason::kOwners);
        at_.out.line(
            fmt::format("const int {} = threads < {} ? 1 : threads;", at_.text.symbol(static_cast<Symbol>(i)), least));
      }
  }

  void print_grid() {
    if (program_.grid.empty()) {
      const bool all_shared = std::all_of(plan_.body.begin(), plan_.body.end(),
                                          [](const LoopStep& step) { return step.instruction && step.shared > 0; });
      if (!all_shared) print_scratch(true);
      return print_block(plan_.body);
    }
    const std::string schedule = plan_.is_uneven ? " schedule(dynamic)" : "";
    const Symbol number = program_.places.empty() ? program_.grid[0] : tile::number_of_block(program_);
    const std::string& block = at_.text.symbol(number);
    std::string count;
    for (Symbol symbol : program_.grid) {
      if (program_.symbols[symbol].count == tile::Index(1) && program_.grid.size() > 1) continue;
      const Text one = at_.text.index(program_.symbols[symbol].count);
      count += (count.empty() ? "" : " * ") +
               (program_.grid.size() == 1 ? one.text : within(one, precedence::kMultiply + 1));
    }
    if (count.empty()) count = "1";
    if (plan_.scratch_bytes > 0) {
      at_.out.line("#pragma omp parallel num_threads(threads)");
      at_.out.open("");
      print_scratch();
      if (plan_.is_uneven) at_.note(Reason::kUneven);
      at_.out.line("#pragma omp for" + schedule);
    } else {
      if (plan_.is_uneven) at_.note(Reason::kUneven);
      at_.out.line("#pragma omp parallel for num_threads(threads)" + schedule);
    }
    at_.out.open(fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0})", block, count));
    for (Symbol symbol : program_.places)
      at_.out.line(fmt::format("{} int64_t {} = {};",
                               kernel::as_constant(program_.symbols[symbol].value) ? "constexpr" : "const",
                               at_.text.symbol(symbol), at_.text.index(program_.symbols[symbol].value).text));
    print_block(plan_.body);
    at_.out.close();
    if (plan_.scratch_bytes > 0) at_.out.close();
  }

  void print_scratch(bool keeps = false) {
    if (plan_.scratch_bytes == 0) return;
    at_.text.helpers().insert(keeps ? "kept_scratch" : "thread_scratch");
    const std::string scratch = at_.text.fresh("scratch");
    at_.note(Reason::kScratch);
    at_.out.line(
        fmt::format("const {} {}({});", keeps ? "KeptScratch" : "ThreadScratch", scratch, plan_.scratch_bytes));
    const auto print = [&](const std::string& type, const std::string& name, int64_t offset) {
      at_.out.line(fmt::format("{0}* const {1} = {2}.array<{0}>({3});", type, name, scratch, offset));
    };
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (program_.buffers[i].space == tile::Space::kShared)
        print(storage_type(program_.buffers[i].dtype), at_.text.buffer(static_cast<int>(i)), plan_.shared[i]);
    for (size_t i = 0; i < program_.values.size(); ++i) {
      const Value value = static_cast<Value>(i);
      const lower::TilePlace& place = plan_.places[value];
      if (place.home == Home::kScratch && place.storage == value)
        print(at_.text.held_type(value), at_.text.name(value), place.offset);
    }
  }

  // --- Steps ---

  // `ends_loop`: nothing follows the block in the loop around it.
  void print_block(const std::vector<LoopStep>& steps, bool ends_loop = false) {
    const TileAccesses::Scope scope = accesses_.scope();
    const std::set<const Instruction*> around = std::move(here_);
    here_.clear();
    for (const LoopStep& step : steps)
      if (step.instruction) here_.insert(step.instruction);
    for (const LoopStep& step : steps) {
      declare(step);
      if (!step.instruction || !step.body.empty()) define_loads();
      say_why(step);
      if (step.unless_refused && !step.body.empty()) at_.out.line("if (refused) continue;");
      if (!step.instruction) print_loop(step);
      else if (ends_loop && &step == &steps.back() && may_continue(step)) print_rest(step);
      else print(step);
    }
    here_ = around;
    accesses_.leave(scope);
  }

  // Why the step is as it is, where its text does not tell.
  void say_why(const LoopStep& step) {
    if (step.unless_refused) at_.note(Reason::kRefused);
    if (!step.instruction) return;
    const Instruction& one = *step.instruction;
    if (one.kind == Kind::kIf && at_.notes.asks_data(one)) at_.note(Reason::kOnlyWhere);
    if (one.kind == Kind::kOp && at_.notes.is_first_or_zero(one)) at_.note(Reason::kFirstElement);
  }

  // Variables that a fold or a loop begins with are declared where they begin.
  void declare(const LoopStep& step) {
    for (Value value : step.declared) {
      if (at_.text.is_array(value)) {
        const int64_t spare = at_.text.place(value).spare;
        if (spare > 0) at_.note(Reason::kSpare);
        at_.out.line(fmt::format("alignas(64) {} {}[{}{}];", at_.text.held_type(value), at_.text.name(value),
                                 at_.text.elements(value), spare > 0 ? fmt::format(" + {}", spare) : ""));
        continue;
      }
      const auto results_in = [&](const Instruction* one) {
        return std::count(one->results.begin(), one->results.end(), value) != 0;
      };
      const bool folded = std::any_of(step.folds.begin(), step.folds.end(),
                                      [&](const lower::BegunFold& begun) { return results_in(begun.fold); });
      const bool carried = step.instruction && step.instruction->kind == Kind::kFor &&
                           std::count(step.instruction->arguments.begin(), step.instruction->arguments.end(), value);
      const bool walked = std::any_of(step.scans.begin(), step.scans.end(),
                                      [&](const lower::BegunScan& begun) { return results_in(begun.scan); });
      if (!folded && !carried && !walked) at_.out.line(at_.text.held_type(value) + " " + at_.text.name(value) + ";");
    }
  }

  void print_loop(const LoopStep& loop) {
    if (loop.moves) return print_moves(loop);
    if (loop.transposes) return print_transposition(loop);
    accesses_.print_starts(loop);
    const bool shared = loop.shared > 0;
    for (const lower::BegunFold& begun : loop.folds) begin_fold(at_, begun);
    begin_scans(at_, loop);
    const std::string begin = bound_text(at_, loop, true, std::to_string(loop.first));
    print_ends(loop, true);
    const std::string end = end_of(loop);
    print_ends(loop, false);
    if (loop.is_short) at_.note(Reason::kShortCounter);
    if (shared || loop.simd)
      at_.out.line(std::string("#pragma omp") + (shared ? " parallel for" : "") + (loop.simd ? " simd" : "") +
                   reduction_clauses(at_, loop, shared) + (shared ? " num_threads(threads) schedule(static)" : ""));
    if (loop.unroll > 0) {
      at_.note(Reason::kRowsAtOnce);
      at_.out.line(fmt::format("#pragma GCC unroll {}", loop.unroll));
    }
    if (loop.reversed) at_.open_backwards(loop.lane, end);
    else at_.open_loop(loop.lane, end, loop.is_short, begin);
    const std::set<Value> known = at_.known;
    at_.known.insert(loop.known.begin(), loop.known.end());
    print_block(loop.body, loop.folds.empty());
    at_.known = known;
    at_.close_loop();
    for (const lower::BegunFold& begun : loop.folds) end_fold(at_, *begun.fold);
  }

  void print_moves(const LoopStep& loop) {
    print_ends(loop, true);
    const std::string count = end_of(loop);
    for (const LoopStep& step : loop.body) {
      if (step.instruction->kind != Kind::kStore) continue;
      const auto load = std::find_if(loop.body.begin(), loop.body.end(), [&](const LoopStep& other) {
        return other.instruction->kind == Kind::kLoad && other.instruction->results[0] == step.instruction->operands[0];
      });
      const tile::Access &from = load->instruction->access, &to = step.instruction->access;
      at_.out.line(fmt::format("std::memcpy({}, {}, {} * sizeof({}));", accesses_.first(to, {loop.lane}),
                               accesses_.first(from, {loop.lane}), count,
                               storage_type(program_.buffers[to.buffer].dtype)));
    }
  }

  void print_transposition(const LoopStep& outer) {
    const LoopStep& inner = outer.body[0];
    const Instruction& load = *inner.body[0].instruction;
    const Value value = inner.body.back().instruction->results[0];
    accesses_.print_starts(outer);
    const std::string place = at_.text.element_index(value, {{outer.lane, "0"}, {inner.lane, "0"}});
    print_ends(outer, false);
    print_ends(outer, true);
    const std::string rows = end_of(inner), columns = end_of(outer);
    at_.text.helpers().insert("transpose_tile");
    at_.note(Reason::kTransposed);
    at_.out.line(fmt::format("transpose_tile({}, {}, {}, {}, {}, {});",
                             accesses_.first(load.access, {outer.lane, inner.lane}),
                             at_.text.index(*tile::stride_along(program_, load.access, inner.lane)).text,
                             at_.text.name(value) + (place.empty() ? "" : " + " + place),
                             at_.text.stride(value, outer.lane), rows, columns));
  }

  std::string end_of(const LoopStep& loop) {
    return bound_text(at_, loop, false, loop.end_name >= 0 ? ends_[loop.end_name] : std::to_string(loop.last));
  }

  // Ends that are computed before the loop: its own, or those of loops inside.
  void print_ends(const LoopStep& loop, bool own) {
    for (const int end : loop.named_ends) {
      if ((end == loop.end_name) != own) continue;
      const lower::NamedEnd& one = plan_.named_ends[end];
      ends_[end] = at_.text.fresh(at_.text.symbol(one.lane) + "_end");
      at_.note(one.whole_vectors ? Reason::kWholeVectors : Reason::kLoopEnds);
      at_.out.line(
          fmt::format("{} int64_t {} = {};", one.whole_vectors ? "constexpr" : "const", ends_[end], text_of(one)));
    }
  }

  std::string text_of(const lower::NamedEnd& named) {
    const std::string points = at_.text.index(named.points).text;
    if (!named.whole_vectors) return points;
    at_.text.helpers().insert("whole_vectors");
    return "whole_vectors(" + points + ")";
  }

  void print(const LoopStep& step) {
    const Instruction& one = *step.instruction;
    lower::for_each_use(one, [&](Value value, lower::Use) { std::erase(unread_, value); });
    if (one.results.empty()) define_loads();
    switch (one.kind) {
      case Kind::kConstant: return give(one, at_.text.constant(one));
      case Kind::kIndex: return print_index(one);
      case Kind::kOp: return print_op(one);
      case Kind::kRelabel:
      case Kind::kSplit: return print_renamed(one);
      case Kind::kLoad: return give(one, accesses_.load(one));
      case Kind::kStore:
        if (at_.notes.is_late(one)) at_.note(Reason::kLateStores);
        return accesses_.store(one, step.unless_refused);
      case Kind::kCopy: return accesses_.copy(one);
      case Kind::kDot: return print_dot(at_, accesses_, step);
      case Kind::kFold: return print_fold_step(at_, one);
      case Kind::kScan: return print_scan(step);
      case Kind::kDefine:
      case Kind::kMove:
      case Kind::kRelease:
      case Kind::kSkip:
      case Kind::kStack:
      case Kind::kUnstack: return;  // refused
      case Kind::kFor: return print_for(step);
      case Kind::kIf: return print_if(step);
      // Copies are done at once, and one thread runs a block in order.
      case Kind::kWait:
      case Kind::kBarrier: return;
    }
  }

  void print_scan(const LoopStep& step) {
    const Instruction& one = *step.instruction;
    if (lower::is_simple_scan(one)) return print_scan_step(at_, one);
    if (one.way == tile::ScanWay::kNetwork) refuse_tile(program_, "a scan in an order of its own");
    if (!kernel::is_sort(one.reduce)) refuse_tile(program_, "a scan by " + std::string(kernel::name_of(one.reduce)));
    print_sort(at_, accesses_, step);
  }

  // The result in its array, in a variable, or where it is used if that is once and the text is short.
  void give(const Instruction& one, const Text& text, bool may_inline = true) {
    const Value value = one.results[0];
    if (at_.holding.count(value) != 0) return;
    if (at_.text.is_array(value)) return at_.out.line(at_.text.element(value).text + " = " + text.text + ";");
    holds_load_[value] = one.kind == Kind::kLoad ||
                         std::any_of(one.operands.begin(), one.operands.end(),
                                     [&](Value of) { return holds_load_[of] && at_.written.count(of) != 0; });
    may_inline = may_inline && uses_[value] == 1 && here_.count(users_[value]) && text.text.size() <= kLongestInline;
    if (may_inline && !reads_shared_array(one) && !plan_.places[value].has_statement) {
      at_.written[value] = text;
      if (holds_load_[value]) unread_.push_back(value);
      return;
    }
    define(value, text);
  }

  // Loads that are written where they are used come before the memory may change.
  void define_loads() {
    for (Value value : std::exchange(unread_, {}))
      if (at_.written.count(value) != 0) define(value, Text(at_.written[value]));
  }

  // Such an array may be overwritten before the use.
  bool reads_shared_array(const Instruction& one) const {
    return std::any_of(one.operands.begin(), one.operands.end(), [&](Value operand) {
      return at_.text.is_array(operand) && shared_.count(plan_.places[operand].storage) != 0;
    });
  }

  void define(Value value, const Text& text) {
    at_.written.erase(value);
    at_.out.line(fmt::format("const {} {} = {};", at_.text.held_type(value), at_.text.name(value), text.text));
  }

  void print_index(const Instruction& one) {
    const Value value = one.results[0];
    const Text text = at_.text.index(one.index);
    const bool narrow = at_.text.type(value).dtype == DType::i32;
    if (is_written(value)) return;
    const auto variable = kernel::as_symbol(one.index);
    if (narrow && variable && at_.is_short(*variable)) return void(at_.written[value] = text);
    give(one, narrow ? cast_text(text, DType::i64, DType::i32, at_.text.helpers()) : text);
  }

  void print_op(const Instruction& one) {
    while (true) {
      std::vector<Text> operands;
      if (one.op == ScalarOp::kSelect && at_.asked(one.operands[0]) == tile::kNoValue)
        return give(one, at_.value(one.operands[1]));
      for (Value operand : inputs_of(one)) operands.push_back(at_.value(operand));
      const bool is_broadcast = one.op == ScalarOp::kSelect && operands[0].text == "true";
      const Text text = is_broadcast ? operands[1] : at_.text.operation(one, operands);
      if (text.text.size() > kLongestExpression && name_longest(one.operands)) continue;
      return give(one, text);
    }
  }

  // Of which some may be known to hold.
  std::vector<Value> inputs_of(const Instruction& one) const {
    std::vector<Value> inputs = one.operands;
    const bool is_both = one.op == ScalarOp::kLogicalAnd;
    for (size_t i = 0; (is_both && i < 2) || (one.op == ScalarOp::kSelect && i < 1); ++i)
      if (const Value asked = at_.asked(inputs[i]); asked != tile::kNoValue) inputs[i] = asked;
    return inputs;
  }

  // Gives the longest of the operands that have none a line of its own. False where none is worth one.
  bool name_longest(const std::vector<Value>& operands) {
    Value longest = tile::kNoValue;
    for (Value operand : operands) {
      const auto found = at_.written.find(operand);
      if (found == at_.written.end() || is_written(operand)) continue;
      if (found->second.text.size() < kShortestNamed) continue;
      if (longest == tile::kNoValue || found->second.text.size() > at_.written[longest].text.size()) longest = operand;
    }
    if (longest == tile::kNoValue) return false;
    define(longest, Text(at_.written[longest]));
    return true;
  }

  void print_renamed(const Instruction& one) {
    LanePositions positions;
    if (one.kind == Kind::kRelabel) positions[one.from] = at_.text.symbol(one.to);
    else
      positions[one.from] = fmt::format("{} * {} + {}", at_.text.symbol(one.lanes[0]), at_.text.width(one.lanes[1]),
                                        at_.text.symbol(one.lanes[1]));
    give(one, at_.value(one.operands[0], positions));
  }

  // --- Control ---

  void print_for(const LoopStep& step) {
    const Instruction& loop = *step.instruction;
    Assignments first, next;
    for (size_t i = 0; i < loop.arguments.size(); ++i) {
      first.emplace_back(loop.arguments[i], loop.operands[i]);
      next.emplace_back(loop.arguments[i], loop.yields[i]);
    }
    assign(at_, first, {step.declared.begin(), step.declared.end()});
    const TileAccesses::Scope scope = accesses_.scope();
    accesses_.print_starts(step);
    const Text end = end_of_for(at_, loop);
    if (at_.notes.fills_arrays(loop)) at_.note(Reason::kBlocks);
    else if (at_.notes.crosses_lines(loop)) at_.note(Reason::kSquares);
    if (step.is_short) at_.note(Reason::kShortCounter);
    print_pragma(step);
    const bool around = std::exchange(is_shared_, step.shared > 1);
    at_.out.open(head_of(at_.text, step, end));
    // The innermost of the loops that threads share.
    if (step.shared == 1 && program_.grid.empty()) print_scratch(true);
    const std::set<Value> known = at_.known;
    at_.known.insert(step.known.begin(), step.known.end());
    print_block(step.body, next.empty());
    at_.known = known;
    assign(at_, next);
    at_.out.close();
    is_shared_ = around;
    accesses_.leave(scope);
  }

  // Of a nest that threads share the first loop has it.
  void print_pragma(const LoopStep& step) {
    const bool shared = step.shared > 0 && !is_shared_;
    std::string line = std::string("#pragma omp") + (shared ? " parallel for" : "") + (step.simd ? " simd" : "");
    if (shared && step.shared > 1) line += fmt::format(" collapse({})", step.shared);
    const auto owners = kernel::as_symbol(step.instruction->end);
    const bool own = owners && program_.symbols[*owners].threads > 0;
    if (shared)
      line += " num_threads(" + (own ? at_.text.symbol(*owners) : std::string("threads")) + ") schedule(static)";
    const auto count = kernel::as_constant(step.instruction->end - step.instruction->begin);
    if (shared || step.simd) at_.out.line(line);
    else if (step.instruction->unrolled && count) at_.out.line(fmt::format("#pragma GCC unroll {}", *count));
  }

  static bool may_continue(const LoopStep& step) {
    return step.instruction->kind == Kind::kIf && step.otherwise_body.empty() && step.instruction->results.empty();
  }

  // Of a loop's iteration what an If has, which is its end. Compilers take those that are left out for the fewer.
  void print_rest(const LoopStep& branch) {
    lower::for_each_use(*branch.instruction, [&](Value value, lower::Use) { std::erase(unread_, value); });
    at_.out.line("if (!(" + at_.value(branch.instruction->operands[0]).text + ")) continue;");
    print_block(branch.body, true);
  }

  void print_if(const LoopStep& step) {
    const Instruction& branch = *step.instruction;
    const auto yields = [&](const std::vector<Value>& values) {
      Assignments all;
      for (size_t i = 0; i < values.size(); ++i) all.emplace_back(branch.results[i], values[i]);
      assign(at_, all);
    };
    at_.out.open("if (" + at_.value(branch.operands[0]).text + ")");
    print_block(step.body);
    yields(branch.yields);
    at_.out.close();
    if (step.otherwise_body.empty() && branch.otherwise_yields.empty()) return;
    at_.out.open("else");
    print_block(step.otherwise_body);
    yields(branch.otherwise_yields);
    at_.out.close();
  }

  const tile::Program& program_;
  const lower::LoopPlan& plan_;
  TileContext at_;
  TileAccesses accesses_;
  std::vector<int> uses_;                  // [value]
  std::vector<const Instruction*> users_;  // [value] the last
  std::vector<bool> holds_load_;           // [value] is a load written where it is used, in its text?
  std::vector<Value> unread_;              // of these, what nothing has used yet
  std::set<const Instruction*> here_;      // of the block that is printed
  std::set<Value> shared_;                 // arrays of several values
  std::vector<std::string> ends_;          // [named end]
  bool is_shared_ = false;                 // within a loop that threads share with the next one
  const bool refuses_;
};

}  // namespace

PrintedTile print_tile_function(const lower::Lowered& lowered, HelperSet& helpers) {
  KW_ASSERT(lowered.loops, "a program for a CPU has loops before it is printed");
  return TilePrinter(lowered.program, *lowered.loops, helpers).run();
}

}  // namespace kw::cpu
