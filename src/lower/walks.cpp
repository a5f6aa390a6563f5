#include "lower/walks.hpp"

#include <algorithm>

#include "lower/loop_plan.hpp"
#include "lower/loop_tree.hpp"

namespace kw::lower {

using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

namespace {

bool is_cast(const Instruction& one) { return one.kind == Kind::kOp && one.op == ScalarOp::kCast; }

// A tile of more lanes, all alike along these.
bool is_broadcast(const Instruction& one, const std::vector<const Instruction*>& definers) {
  if (one.kind != Kind::kOp || one.op != ScalarOp::kSelect) return false;
  const Instruction* condition = definers[one.operands[0]];
  return condition && condition->kind == Kind::kConstant && condition->integer != 0;
}

bool sorts(const Instruction& one) { return one.kind == Kind::kScan && kernel::is_sort(one.reduce); }

bool reads_plainly(const Instruction& one) {
  return one.kind == Kind::kLoad && one.mode == tile::CopyMode::kPlain &&
         std::all_of(one.access.coordinates.begin(), one.access.coordinates.end(),
                     [](const tile::Coordinate& at) { return at.value == tile::kNoValue; });
}

// The values of which sorts may take rows from memory. Floats of few bits keep them: whatever reads them in order has
// to take them so.
std::vector<bool> find_rows_in_memory(const tile::Program& program, const std::vector<const Instruction*>& definers) {
  std::vector<bool> wide(program.values.size()), result(program.values.size());
  tile::for_each(program.body, [&](const Instruction& one) {
    const bool takes = (one.kind == Kind::kStore && !one.combines) || is_cast(one);
    for_each_use(one, [&](Value value, Use) { wide[value] = wide[value] || !takes; });
  });
  tile::for_each(program.body, [&](const Instruction& one) {
    if (!sorts(one)) return;
    const Instruction* load = definers[one.operands[0]];
    const bool keeps_bits = !is_narrow_float(program.values[one.results[0]].type.dtype) || !wide[one.results[0]];
    result[one.operands[0]] = load && keeps_bits && lies_in_rows(program, *load, one.from);
  });
  return result;
}

}  // namespace

bool lies_in_rows(const tile::Program& program, const Instruction& load, Symbol along) {
  if (!reads_plainly(load) || load.access.mask != tile::kNoValue) return false;
  return tile::stride_along(program, load.access, along) == tile::Index(1) &&
         program.buffers[load.access.buffer].dtype == program.values[load.results[0]].type.dtype;
}

bool is_simple_scan(const Instruction& one) {
  const bool in_order = one.way == tile::ScanWay::kFree || one.way == tile::ScanWay::kAfter;
  return one.kind == Kind::kScan && in_order && kernel::step_of(one.reduce).has_value();
}

Walks find_walks(const tile::Program& program) {
  Walks walks;
  walks.is_repeated.resize(program.values.size());
  std::map<Value, Symbol> scanned;
  std::vector<const Instruction*> definers(program.values.size());
  std::vector<bool> stored(program.buffers.size());
  bool any = false;
  tile::for_each(program.body, [&](const Instruction& one) {
    for (Value value : one.results) definers[value] = &one;
    if (one.kind == Kind::kStore) stored[one.access.buffer] = true;
    any = any || sorts(one) || is_simple_scan(one);
    if (!is_simple_scan(one)) return;
    walks.along[&one] = one.from;
    for (size_t i = 0; i < tile::scanned_operands(one); ++i) scanned[one.results[i]] = one.from;
  });
  if (!any) return walks;
  const auto narrows = [&](const Instruction& one) {
    const auto bytes = [&](Value value) { return held_bytes(program.values[value].type.dtype); };
    return is_cast(one) && bytes(one.results[0]) <= bytes(one.operands[0]);
  };
  // What else reads the result, too, needs an array of it.
  std::vector<bool> in_points(program.values.size(), true);
  const std::vector<bool> in_memory = find_rows_in_memory(program, definers);
  tile::for_each(program.body, [&](const Instruction& one) {
    for_each_use(one, [&](Value value, Use use) {
      if (!narrows(one)) scanned.erase(value);
      const bool takes_row = sorts(one) && value == one.operands[0] && in_memory[value];
      if (use != Use::kPoint && !takes_row) in_points[value] = false;
    });
  });
  tile::for_each(program.body, [&](const Instruction& one) {
    const auto found = narrows(one) ? scanned.find(one.operands[0]) : scanned.end();
    if (found != scanned.end()) {
      walks.along[&one] = found->second;
      return;
    }
    const bool reads = reads_plainly(one) && !stored[one.access.buffer];
    if (one.results.empty() || !in_points[one.results[0]]) return;
    // An array of a single row in double precision stays in the nearest cache.
    const bool converts = is_cast(one) && (narrows(one) || program.values[one.results[0]].type.lanes.size() > 1 ||
                                           walks.is_repeated[one.operands[0]]);
    if (reads || converts || is_broadcast(one, definers)) walks.is_repeated[one.results[0]] = true;
  });
  return walks;
}

}  // namespace kw::lower
