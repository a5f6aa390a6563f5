#include "tile/value_facts.hpp"

#include <algorithm>

namespace kw::tile {

ValueFacts::ValueFacts(const Program& program)
    : program_(program),
      alike_(program),
      ranges_(ranges_of(program)),
      users_(program.values.size()),
      escapes_(program.values.size()),
      leaves_branch_(program.values.size()),
      own_body_(program.values.size()) {
  visit(program.body);
}

void ValueFacts::visit(const std::vector<Instruction>& body) {
  for (const Instruction& one : body) {
    body_of_[&one] = &body;
    for (Value result : one.results) own_body_[result] = &body;
    const auto use = [&](Value value) {
      if (value != kNoValue) users_[value].push_back(&one);
    };
    for (Value operand : one.operands) use(operand);
    use(one.until);
    for (const Access* access : {&one.access, &one.destination}) {
      use(access->mask);
      for (const Coordinate& coordinate : access->coordinates) use(coordinate.value);
    }
    for (const std::vector<Value>* values : {&one.yields, &one.otherwise_yields})
      for (Value value : *values) {
        escapes_[value] = true;
        if (one.kind == Kind::kFor) use(value);
        else leaves_branch_[value] = true;
      }
    visit(one.body);
    visit(one.otherwise_body);
  }
}

const Instruction* ValueFacts::only_operation(Value value) const {
  if (escapes_[value] || users_[value].size() != 1) return nullptr;
  const Instruction* user = users_[value][0];
  return user->kind == Kind::kOp && body_of_.at(user) == own_body_[value] ? user : nullptr;
}

bool ValueFacts::takes_last_of(const Instruction& operation) const {
  return only_operation(operation.results[0]) != nullptr &&
         std::any_of(operation.operands.begin(), operation.operands.end(),
                     [&](Value operand) { return alike_.argument_of(operand) == operand; });
}

bool ValueFacts::is_true(Value value) const {
  const Instruction* made = maker(value);
  const bool is_condition = program_.values[value].type.dtype == DType::b1;
  return made && made->kind == Kind::kConstant && is_condition && made->integer != 0;
}

bool ValueFacts::is_nonnegative(Value value) const {
  const Instruction* made = maker(value);
  if (is_floating(program_.values[value].type.dtype)) return range(value).low >= 0;
  if (!made) return false;
  if (made->kind == Kind::kConstant) return made->integer >= 0;
  return made->kind == Kind::kIndex && kernel::range_of(made->index, ranges_).low >= 0;
}

bool ValueFacts::has_plain_inverse(Value value) const {
  constexpr double kLeast = 1e-30, kMost = 1e30;
  const kernel::ValueRange between = range(value);
  return between.low >= kLeast && between.high <= kMost;
}

kernel::ValueRange ValueFacts::range(Value value) const {
  const Instruction* made = maker(value);
  if (!is_floating(program_.values[value].type.dtype)) return {};
  // While it is computed nothing is known of it: what loops carry is made of itself.
  if (const auto [known, is_new] = known_ranges_.try_emplace(value); !is_new) return known->second;
  if (!made) return known_ranges_[value] = carried_range(value);
  kernel::ValueRange found;
  if (made->kind == Kind::kConstant) found = kernel::range_of_constant(made->number);
  if (made->kind == Kind::kFold) found = kernel::range_of(made->reduce, range(made->operands[0]));
  if (made->kind == Kind::kOp) {
    std::vector<kernel::ValueRange> operands;
    for (Value operand : made->operands) operands.push_back(range(operand));
    const bool same = operands.size() == 2 && made->operands[0] == made->operands[1];
    found = kernel::range_of(made->op, program_.values[value].type.dtype, operands, same);
  }
  return known_ranges_[value] = found;
}

// Of what loops carry from what changes no fold, where each iteration takes its step.
kernel::ValueRange ValueFacts::carried_range(Value value) const {
  while (alike_.yield_of(value) != kNoValue && !maker(alike_.yield_of(value))) value = alike_.yield_of(value);
  const Value yield = alike_.yield_of(value), initial = alike_.initial_of(value);
  const Instruction *step = yield == kNoValue ? nullptr : maker(yield), *start = maker(initial);
  if (!step || !start || step->kind != Kind::kOp || step->operands.size() != 2 || start->kind != Kind::kConstant ||
      step->operands[0] != alike_.argument_of(value))
    return {};
  for (const ReduceOp fold : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin})
    if (kernel::step_of(fold) == step->op && kernel::identity_of(fold) == start->number)
      return kernel::range_of(fold, range(step->operands[1]));
  return {};
}

bool ValueFacts::has_all_lanes(Value value, Value mask) const {
  const auto& lanes = program_.values[mask].type.lanes;
  return std::all_of(lanes.begin(), lanes.end(),
                     [&](Symbol lane) { return has_lane(program_.values[value].type.lanes, lane); });
}

// What a mask withholds along lanes that are folded is what changes no fold.
std::set<Value> ValueFacts::masks_behind(Value value) const {
  std::set<Value> masks, seen;
  std::vector<Value> left = {value};
  while (!left.empty()) {
    const Value one = left.back();
    left.pop_back();
    const Instruction* made = maker(one);
    if (!seen.insert(one).second || !made) continue;
    if (made->kind == Kind::kLoad) {
      if (made->access.mask != kNoValue && has_all_lanes(value, made->access.mask)) masks.insert(made->access.mask);
      for (const Coordinate& coordinate : made->access.coordinates)
        if (coordinate.value != kNoValue) left.push_back(coordinate.value);
    }
    left.insert(left.end(), made->operands.begin(), made->operands.end());
  }
  return masks;
}

}  // namespace kw::tile
