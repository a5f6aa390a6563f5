#include <fmt/format.h>

#include "emit/cpu/tile_context.hpp"
#include "emit/cpu/tile_printer.hpp"

namespace kw::cpu {

using kernel::ReduceOp;
using kernel::ScalarOp;
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
      case ReduceOp::kMoments: return moments();
      case ReduceOp::kCombineMoments: return combined_moments();
      case ReduceOp::kMaxSumExp:
      case ReduceOp::kCombineMaxSumExp: return max_sum_exp();
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
  std::string function(ScalarOp op, const std::string& operand) const {
    const DType dtype = at_.text.held(operand_);
    return at_.text.operation(op, dtype, {{operand, precedence::kPrimary}}, {dtype}).text;
  }
  // What a component comes to, where the result lives.
  void give(size_t component, const std::string& text) {
    const Value result = one_.results[component];
    const DType dtype = at_.text.held(result);
    const Text held = cast_text({text, 0}, DType::f64, dtype, at_.text.helpers());
    line("{} = {};", at_.text.element(result).text, at_.text.rounded(held, at_.text.type(result).dtype).text);
  }

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

  void moments() {
    const std::string mean = fresh("mean"), squares = fresh("squares");
    int64_t count = 1;
    for (Symbol lane : one_.lanes) count *= at_.text.width(lane);
    line("double {} = 0.0;", mean);
    open_all();
    line("{} += {};", mean, value());
    close_all();
    line("{} /= {};", mean, count);
    line("double {} = 0.0;", squares);
    open_all();
    line("{0} += ({1} - {2}) * ({1} - {2});", squares, value(), mean);
    close_all();
    give(0, mean);
    give(1, squares);
  }

  // Chan et al. 1983.
  void combined_moments() {
    const std::string mean = fresh("mean"), squares = fresh("squares"), count = fresh("count"), other = fresh("other"),
                      distance = fresh("distance");
    line("double {} = 0.0, {} = 0.0, {} = 0.0;", mean, squares, count);
    open_all();
    line("const double {} = {};", other, value(2));
    line("if ({} == 0.0) continue;", other);
    line("const double {} = {} - {};", distance, value(0), mean);
    line("{} += {} * ({} / ({} + {}));", mean, distance, other, count, other);
    line("{0} += {1} + {2} * {2} * ({3} * {4} / ({3} + {4}));", squares, value(1), distance, count, other);
    line("{} += {};", count, other);
    close_all();
    give(0, mean);
    give(1, squares);
  }

  // An infinite maximum is not subtracted: ∞ − ∞ is none.
  void max_sum_exp() {
    const std::string largest = fresh("largest"), shift = fresh("shift"), sum = fresh("sum");
    const std::string type = at_.text.held_type(operand_);
    at_.text.helpers().insert("maximum");
    line("{} {} = -INFINITY;", type, largest);
    open_all();
    line("{0} = maximum({0}, {1});", largest, value());
    close_all();
    line("const {} {} = std::isinf({}) ? 0 : {};", type, shift, largest, largest);
    line("double {} = 0.0;", sum);
    open_all();
    if (one_.reduce == ReduceOp::kMaxSumExp) {
      line("{} += {};", sum, function(ScalarOp::kExp, value() + " - " + shift));
    } else {
      const std::string scale = function(ScalarOp::kExp, value() + " - " + shift);
      line("{0} += {1} == 0 ? 0 : {1} * ({2} == {3} ? 1 : {4});", sum, value(1), value(), largest, scale);
    }
    close_all();
    give(0, largest);
    give(1, sum);
  }

  TileContext& at_;
  const Instruction& one_;
  Value operand_, result_;
};

}  // namespace

void print_whole_fold(TileContext& at, const Instruction& fold) { WholePrinter(at, fold).fold(); }
void print_scan(TileContext& at, const Instruction& scan) { WholePrinter(at, scan).scan(); }

}  // namespace kw::cpu
