#include <fmt/format.h>

#include "emit/cpu/tile_context.hpp"
#include "emit/cpu/tile_printer.hpp"

namespace kw::cpu {

using kernel::ReduceOp;
using tile::Instruction;
using tile::Symbol;
using tile::Value;

namespace {

// Folds and scans that walk over tiles on their own.
class WholePrinter {
 public:
  WholePrinter(TileContext& at, const Instruction& one)
      : at_(at), one_(one), operand_(one.operands[0]), result_(one.results[0]) {}

  void fold() {
    switch (one_.reduce) {
      case ReduceOp::kArgMax:
      case ReduceOp::kArgMin: return extreme_place();
      case ReduceOp::kMax:
      case ReduceOp::kMin: return extreme_with_its_place();
      default: refuse_tile(at_.text.program(), "a fold by " + std::string(kernel::name_of(one_.reduce)));
    }
  }

  void scan() {
    if (one_.way == tile::ScanWay::kNetwork) refuse_tile(at_.text.program(), "a scan in an order of its own");
    refuse_tile(at_.text.program(), "a scan by " + std::string(kernel::name_of(one_.reduce)));
  }

 private:
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    at_.out.line(fmt::format(text, std::forward<Arguments>(arguments)...));
  }
  std::string fresh(const std::string& what) { return at_.text.fresh(at_.text.own_name(result_) + "_" + what); }
  std::string value(size_t operand = 0) const { return at_.value(one_.operands[operand]).text; }

  void open_all() {
    for (Symbol lane : one_.lanes) at_.open_loop(lane);
  }
  void close_all() {
    for (size_t i = 0; i < one_.lanes.size(); ++i) at_.close_loop();
  }

  // The first of equals; NaN wins.
  void extreme_place() {
    const std::string best = fresh("best"), candidate = fresh("candidate"), position = fresh("position");
    line("{} {} = 0;", at_.text.held_type(operand_), best);
    line("int64_t {} = 0;", position);
    line("{} = -1;", at_.text.element(result_).text);
    open_all();
    line("const {} {} = {};", at_.text.held_type(operand_), candidate, value());
    const std::string place = at_.text.element(result_).text;
    at_.out.open(fmt::format("if ({0} < 0 || {1} {2} {3} || ({1} != {1} && {3} == {3}))", place, candidate,
                             one_.reduce == ReduceOp::kArgMax ? ">" : "<", best));
    line("{} = {};", best, candidate);
    line("{} = {};", place, position);
    at_.out.close();
    line("++{};", position);
    close_all();
  }

  // Of equals the one with the largest place; NaN wins.
  void extreme_with_its_place() {
    const std::string best = fresh("best"), candidate = fresh("candidate"), place = fresh("place"), at = fresh("at");
    line("{} {} = {};", at_.text.held_type(operand_), best, identity_text(at_, one_.reduce, operand_).text);
    line("{} {} = -1;", at_.text.held_type(one_.operands[1]), place);
    open_all();
    line("const {} {} = {};", at_.text.held_type(operand_), candidate, value());
    line("const {} {} = {};", at_.text.held_type(one_.operands[1]), at, value(1));
    const char* beats = one_.reduce == ReduceOp::kMax ? ">" : "<";
    at_.out.open(
        fmt::format("if ({0} {1} {2} || ({0} == {2} && {3} > {4}) || ({0} != {0} && ({2} == {2} || {3} > {4})))",
                    candidate, beats, best, at, place));
    line("{} = {};", best, candidate);
    line("{} = {};", place, at);
    at_.out.close();
    close_all();
    line("{} = {};", at_.text.element(result_).text, best);
    line("{} = {};", at_.text.element(one_.results[1]).text, place);
  }

  TileContext& at_;
  const Instruction& one_;
  Value operand_, result_;
};

}  // namespace

void print_whole_fold(TileContext& at, const Instruction& fold) { WholePrinter(at, fold).fold(); }
void print_scan(TileContext& at, const Instruction& scan) { WholePrinter(at, scan).scan(); }

}  // namespace kw::cpu
