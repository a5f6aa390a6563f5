#include <fmt/format.h>

#include <algorithm>

#include "emit/cpu/tile_context.hpp"
#include "kernel/scalar_values.hpp"
#include "lower/loop_tree.hpp"

namespace kw::cpu {

using kernel::ReduceOp;
using lower::LoopStep;
using tile::Instruction;
using tile::Symbol;
using tile::Value;

namespace {

bool is_extreme(ReduceOp reduce) { return reduce == ReduceOp::kMax || reduce == ReduceOp::kMin; }

std::string_view clause_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kExtendedSum: return "+";
    case ReduceOp::kProd: return "*";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kAny: return "||";
    default: return "&&";
  }
}

// The fold of one operand, or of what comes along, whose largest one counts.
ReduceOp reduce_of(const Instruction& fold, size_t component) { return component == 0 ? fold.reduce : ReduceOp::kMax; }

// Where the part of the result's array begins that the open loops are at.
std::string open_part(const TileContext& at, Value value, int64_t& elements) {
  LanePositions positions;
  elements = 1;
  for (Symbol lane : at.text.place(value).lanes) {
    if (at.is_open(lane)) continue;
    positions[lane] = "0";
    elements *= at.text.width(lane);
  }
  const std::string place = at.text.element_index(value, positions);
  return at.text.name(value) + (place.empty() ? "" : " + " + place);
}

// What a component is folded into before the loop.
RunningFold begin_component(TileContext& at, const Instruction& fold, size_t component) {
  const Value result = fold.results[component];
  const Text start = identity_text(at, reduce_of(fold, component), result);
  const std::vector<Symbol>& lanes = at.text.type(result).lanes;
  RunningFold running;
  if (!std::all_of(lanes.begin(), lanes.end(), [&](Symbol lane) { return at.is_open(lane); })) {
    int64_t elements = 1;
    const std::string part = open_part(at, result, elements);
    at.out.line(fmt::format("std::fill_n({}, {}, {});", part, elements, start.text));
    return running;
  }
  running.sum = at.text.is_array(result) ? at.text.fresh(at.text.own_name(result) + "_so_far") : at.text.name(result);
  at.out.line(fmt::format("{} {} = {};", at.text.held_type(result), running.sum, start.text));
  return running;
}

Text so_far(const TileContext& at, Value result) {
  const RunningFold& running = at.running.at(result);
  return running.sum.empty() ? at.text.element(result) : Text{running.sum, precedence::kPrimary};
}

// The value of an operand that is written several times: short, or with a name of its own.
std::string named_value(TileContext& at, Value operand) {
  const Text value = at.value(operand);
  if (value.text.find_first_of(" ([") == std::string::npos) return value.text;
  const std::string name = at.text.is_array(operand) ? at.text.fresh(at.text.own_name(operand)) : at.text.name(operand);
  at.out.line(fmt::format("const {} {} = {};", at.text.held_type(operand), name, value.text));
  return name;
}

// Of equal extremes the one with the largest value beside it; NaN wins.
void print_step_along(TileContext& at, const Instruction& fold) {
  const Text best = so_far(at, fold.results[0]), beside_best = so_far(at, fold.results[1]);
  const std::string value = named_value(at, fold.operands[0]), beside = named_value(at, fold.operands[1]);
  std::string condition = fmt::format("{0} {1} {2} || ({0} == {2} && {3} > {4})", value,
                                      fold.reduce == ReduceOp::kMax ? ">" : "<", best.text, beside, beside_best.text);
  if (is_floating(at.text.held(fold.operands[0])))
    condition += fmt::format(" || ({0} != {0} && ({1} == {1} || {2} > {3}))", value, best.text, beside,
                             beside_best.text);
  const std::string moves = at.text.fresh(at.text.own_name(fold.results[0]) + "_moves");
  at.out.line(fmt::format("const bool {} = {};", moves, condition));
  at.out.line(fmt::format("{0} = {1} ? {2} : {0};", best.text, moves, value));
  at.out.line(fmt::format("{0} = {1} ? {2} : {0};", beside_best.text, moves, beside));
  at.text.release(moves);
}

}  // namespace

Text identity_text(const TileContext& at, ReduceOp reduce, Value value) {
  const DType dtype = at.text.held(value);
  const kernel::Number number = kernel::identity(reduce, dtype);
  return constant_text(dtype, number.real, number.whole, at.text.helpers());
}

void begin_fold(TileContext& at, const lower::BegunFold& begun) {
  const Instruction& fold = *begun.fold;
  if (at.notes.is_widened(fold)) at.note(Reason::kWideFold);
  if (fold.reduce == ReduceOp::kExtendedSum) at.note(Reason::kExtendedSum);
  if (at.notes.finds_place(fold)) at.note(Reason::kPlaces);
  for (size_t i = 0; i < fold.results.size(); ++i) at.running[fold.results[i]] = begin_component(at, fold, i);
  RunningFold& running = at.running[fold.results[0]];
  running.in_parts = begun.in_parts;
  if (!begun.flags_nan) return;
  at.note(Reason::kNanFlag);
  running.is_nan = at.text.fresh(running.sum + "_is_nan");
  at.out.line(fmt::format("int {} = 0;", running.is_nan));
}

void print_fold_step(TileContext& at, const Instruction& fold) {
  if (lower::folds_along(fold)) return print_step_along(at, fold);
  const Value result = fold.results[0], operand = fold.operands[0];
  const RunningFold& running = at.running[result];
  const Text sum = so_far(at, result);
  if (running.in_parts && is_extreme(fold.reduce)) {
    const std::string value = named_value(at, operand);
    at.out.line(
        fmt::format("{0} = {1} {2} {0} ? {1} : {0};", sum.text, value, fold.reduce == ReduceOp::kMax ? ">" : "<"));
    if (!running.is_nan.empty()) at.out.line(fmt::format("{} |= {} != {};", running.is_nan, value, value));
    return;
  }
  const Text value = at.value(operand);
  const DType dtype = at.text.type(result).dtype;
  const bool adds = fold.reduce == ReduceOp::kSum || fold.reduce == ReduceOp::kExtendedSum;
  if (adds && lower::held_bytes(dtype) >= 4 && !is_narrow_float(dtype)) {
    at.out.line(fmt::format("{} += {};", sum.text, value.text));
    return;
  }
  const Text next = at.text.operation(*kernel::step_of(fold.reduce), dtype, {sum, value}, {dtype, dtype});
  at.out.line(fmt::format("{} = {};", sum.text, next.text));
}

void end_fold(TileContext& at, const Instruction& fold) {
  for (const Value result : fold.results) {
    const RunningFold& running = at.running[result];
    if (!running.is_nan.empty()) at.out.line(fmt::format("if ({}) {} = NAN;", running.is_nan, running.sum));
    if (!running.sum.empty() && at.text.is_array(result))
      at.out.line(fmt::format("{} = {};", at.text.element(result).text, running.sum));
  }
}

std::string reduction_clauses(const TileContext& at, const LoopStep& loop, bool shared) {
  std::vector<const Instruction*> folds;
  for (const lower::BegunFold& begun : loop.folds)
    if (shared) folds.push_back(begun.fold);
  for (const LoopStep& step : loop.body)
    if (step.instruction && step.instruction->kind == tile::Kind::kFold &&
        std::find(folds.begin(), folds.end(), step.instruction) == folds.end())
      folds.push_back(step.instruction);
  std::string text;
  for (const Instruction* fold : folds) {
    const Value result = fold->results[0];
    const RunningFold& running = at.running.at(result);
    if (!running.in_parts && !shared) continue;
    const std::string sum = running.sum.empty() ? fmt::format("{}[:{}]", at.text.name(result), at.text.elements(result))
                                                : running.sum;
    text += fmt::format(" reduction({} : {})", clause_of(fold->reduce), sum);
    if (!running.is_nan.empty()) text += fmt::format(" reduction(| : {})", running.is_nan);
  }
  return text;
}

}  // namespace kw::cpu
