#include "lower/sorted_rows.hpp"

#include <memory>

#include "tile/value_facts.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

class RowFinder {
 public:
  RowFinder(const tile::Program& program, LoopPlan& plan) : program_(program), plan_(plan) {}

  void visit(std::vector<LoopStep>& steps) {
    for (LoopStep& step : steps) {
      if (step.instruction && step.instruction->kind == Kind::kScan && kernel::is_sort(step.instruction->reduce))
        step.rows = rows_of(*step.instruction);
      visit(step.body);
      visit(step.otherwise_body);
    }
  }

 private:
  SortedRows rows_of(const Instruction& sort) {
    if (!facts_) facts_ = std::make_unique<tile::ValueFacts>(program_);
    SortedRows rows;
    const Instruction* maker = facts_->maker(sort.operands[0]);
    const bool is_array = tile::has_lane(plan_.places[sort.operands[0]].lanes, sort.from);
    if (maker && maker->kind == Kind::kLoad && !is_array) rows.load = maker;
    rows.takes_places = sort.operands.size() > 1 && is_place(sort.operands[1], sort.from);
    for (const Value value : tiles_of_sort(plan_, sort, rows.load))
      if (stride_of(program_, plan_.places[value], sort.from) != 1) rows.copied.push_back(value);
    return rows;
  }

  // Is it each element's own place along the lane, in tiles of more lanes, too?
  bool is_place(Value value, Symbol lane) const {
    const Instruction* one = facts_->maker(value);
    if (one && one->kind == Kind::kOp && one->op == tile::ScalarOp::kSelect)
      return facts_->is_true(one->operands[0]) && is_place(one->operands[1], lane);
    return one && one->kind == Kind::kIndex && kernel::as_symbol(one->index) == lane;
  }

  const tile::Program& program_;
  LoopPlan& plan_;
  std::unique_ptr<const tile::ValueFacts> facts_;  // none before the first sort
};

}  // namespace

void find_sorted_rows(const tile::Program& program, LoopPlan& plan) { RowFinder(program, plan).visit(plan.body); }

std::vector<Value> tiles_of_sort(const LoopPlan& plan, const Instruction& sort, const Instruction* load) {
  std::vector<Value> tiles;
  if (!load) tiles.push_back(sort.operands[0]);
  for (const Value result : sort.results)
    if (plan.places[result].storage != tile::kNoValue) tiles.push_back(result);
  return tiles;
}

}  // namespace kw::lower
