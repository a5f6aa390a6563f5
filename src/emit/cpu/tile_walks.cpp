// Simple scans: what a walk has met before its loops, and how each step goes on.
#include <fmt/format.h>

#include "emit/cpu/tile_context.hpp"
#include "lower/walks.hpp"

namespace kw::cpu {

using kernel::ReduceOp;
using lower::LoopStep;
using tile::Instruction;
using tile::Symbol;
using tile::Value;

namespace {

// Where the walk keeps what it has met of component i: an element for each row.
Text met(const TileContext& at, const Instruction& scan, size_t i) {
  if (scan.way == tile::ScanWay::kAfter) return at.text.element(scan.results[tile::scanned_operands(scan) + i]);
  const RunningScan& running = at.walks.at(scan.results[i]);
  std::string place;
  for (Symbol lane : running.lanes) {
    const std::string outer = place.find(' ') == std::string::npos ? place : "(" + place + ")";
    place = place.empty() ? at.text.symbol(lane)
                          : fmt::format("{} * {} + {}", outer, at.text.width(lane), at.text.symbol(lane));
  }
  return {place.empty() ? running.name : running.name + "[" + place + "]", precedence::kPrimary};
}

void begin(TileContext& at, const lower::BegunScan& begun) {
  const Instruction& scan = *begun.scan;
  int64_t elements = 1;
  for (Symbol lane : begun.kept) elements *= at.text.width(lane);
  for (size_t i = 0; i < scan.results.size(); ++i) {
    const Value result = scan.results[i];
    const RunningScan running{at.text.fresh(at.text.own_name(result) + "_so_far"), begun.kept};
    const std::string start = i == 0 ? identity_text(at, scan.reduce, result).text : "0";
    const std::string type = at.text.held_type(result);
    if (running.lanes.empty()) {
      at.out.line(fmt::format("{} {} = {};", type, running.name, start));
    } else {
      at.out.line(fmt::format("alignas(64) {} {}[{}];", type, running.name, elements));
      at.out.line(fmt::format("std::fill_n({}, {}, {});", running.name, elements, start));
    }
    at.walks[result] = running;
  }
}

}  // namespace

void begin_scans(TileContext& at, const LoopStep& loop) {
  Assignments before;
  std::set<Value> variables;
  for (const lower::BegunScan& begun : loop.scans) {
    const Instruction* scan = begun.scan;
    if (at.notes.is_widened(*scan)) at.note(Reason::kWideFold);
    if (scan->way != tile::ScanWay::kAfter) begin(at, begun);
    for (size_t i = tile::scanned_operands(*scan); i < scan->operands.size(); ++i) {
      before.emplace_back(scan->results[i], scan->operands[i]);
      if (!at.text.is_array(scan->results[i])) variables.insert(scan->results[i]);
    }
  }
  assign(at, before, variables);
}

void print_scan_step(TileContext& at, const Instruction& scan) {
  const size_t components = tile::scanned_operands(scan);
  const Text sum = met(at, scan, 0);
  const auto take = [&](size_t i, const std::string& text) { at.out.line(met(at, scan, i).text + " = " + text + ";"); };
  const DType dtype = at.text.type(scan.results[0]).dtype;
  Text next = at.value(scan.operands[0]);
  if (components > 1) {
    // Of equals the last is the extreme, and NaN beats all but NaN.
    if (next.text.find_first_of(" (") != std::string::npos) {
      const std::string name = at.text.is_array(scan.operands[0]) ? at.text.fresh(at.text.own_name(scan.operands[0]))
                                                                  : at.text.name(scan.operands[0]);
      at.out.line(fmt::format("const {} {} = {};", at.text.held_type(scan.operands[0]), name, next.text));
      next = {name, precedence::kPrimary};
    }
    std::string condition = next.text + (scan.reduce == ReduceOp::kMax ? " >= " : " <= ") + sum.text;
    if (is_floating(dtype)) condition += fmt::format(" || {0} != {0}", next.text);
    const std::string moves = at.text.fresh(at.text.own_name(scan.results[0]) + "_moves");
    at.out.line(fmt::format("const bool {} = {};", moves, condition));
    for (size_t i = 0; i < components; ++i)
      take(i, fmt::format("{} ? {} : {}", moves,
                          i == 0 ? next.text : within(at.value(scan.operands[i]), precedence::kChoice + 1),
                          met(at, scan, i).text));
    at.text.release(moves);
  } else if (!is_narrow_float(dtype) && (scan.reduce == ReduceOp::kSum || scan.reduce == ReduceOp::kProd)) {
    at.out.line(fmt::format("{} {} {};", sum.text, scan.reduce == ReduceOp::kSum ? "+=" : "*=", next.text));
  } else {
    take(0, at.text.operation(*kernel::step_of(scan.reduce), dtype, {sum, next}, {dtype, dtype}).text);
  }
  for (size_t i = 0; i < components; ++i) {
    const Value result = scan.results[i];
    if (at.text.is_array(result)) at.out.line(at.text.element(result).text + " = " + met(at, scan, i).text + ";");
    else at.written[result] = met(at, scan, i);
  }
}

}  // namespace kw::cpu
