// Rows spread over several programs: each finds the partial results of its block, writes them down, waits for the other
// programs of its row, and combines what all of them wrote, in one order, while its block stays in registers.
#include <fmt/format.h>

#include "emit/triton/kernel_printer.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

int64_t power_of_two_from(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

}  // namespace

int64_t multiprocessors_for_row(const Kernel& kernel) { return (programs_of_row(kernel) + 1) / 2; }

std::string KernelPrinter::arrival_number() const {
  return fmt::format("tl.atomic_add({}_ptr, 1, sem=\"relaxed\")", kernel_.buffers[kernel_.exchange.counters].name);
}

// What this program's block folds to, one name for each component; moments of blocks of several lengths have their
// lengths as well.
std::vector<std::string> KernelPrinter::block_results(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const auto name = [&](int component) { return fresh(component_name(id, component) + "_part", ""); };
  const auto number = [&](double value) { return literal(expr.dtype, value, 0).text; };
  if (expr.reduce == ReduceOp::kMoments) {
    const std::string mean = name(0), squares = name(1), operand = operand_tile(id, 0);
    double points = 1;
    for (const Axis& axis : kernel_.axes)
      if (axis.cooperative) points *= static_cast<double>(axis.block);
    std::vector<std::string> results = {mean, squares};
    std::string count = number(points);
    if (padding_.any()) {
      count = fresh("count_part", "");
      line(fmt::format("{} = {}", count,
                       fold(fmt::format("({}).to({})", valid_mask(), dtype_name(expr.dtype)), "tl.sum")));
      results.push_back(count);
    }
    // Scaled by a power of two, exactly, so that no sum of large values overflows.
    const double scale = static_cast<double>(power_of_two_from(static_cast<int64_t>(points)));
    const std::string total = fold(fmt::format("{} * {}", operand, number(1.0 / scale)), "tl.sum");
    line(fmt::format("{} = {}", mean,
                     padding_.any() ? fmt::format("{} / ({} * {})", total, count, number(1.0 / scale)) : total));
    const std::string deviation = fresh(squares + "_from_mean", "");
    line(fmt::format("{} = {}", deviation,
                     where_valid(fmt::format("{} - {}", value_text(expr.operands[0]).text, mean), "0.0")));
    line(fmt::format("{} = {}", squares, fold(fmt::format("{0} * {0}", deviation), "tl.sum")));
    return results;
  }
  if (expr.reduce == ReduceOp::kMaxSumExp) {
    const std::string largest = name(0), total = name(1), operand = operand_tile(id, 0);
    line(fmt::format("{} = {}", largest, fold_with(operand, "larger")));
    // A block of −∞ alone adds nothing to its row.
    line(fmt::format(
        "{0} = {1}", total,
        fold(fmt::format("tl.exp({0} - tl.where({1} == float(\"-inf\"), 0.0, {1}))", operand, largest), "tl.sum")));
    return {largest, total};
  }
  const std::string value = name(0), operand = operand_tile(id, 0);
  switch (expr.reduce) {
    case ReduceOp::kSum: line(fmt::format("{} = {}", value, fold(operand, "tl.sum"))); break;
    case ReduceOp::kProd: line(fmt::format("{} = {}", value, fold_with(operand, "multiply"))); break;
    case ReduceOp::kMax: line(fmt::format("{} = {}", value, fold_with(operand, "larger"))); break;
    case ReduceOp::kMin: line(fmt::format("{} = {}", value, fold_with(operand, "smaller"))); break;
    default: throw Error(ErrorKind::kInternal, "kernel " + kernel_.name + ": a Reduce that programs cannot exchange");
  }
  return {value};
}

// The row's results from its blocks'.
void KernelPrinter::combine_blocks(ExprId id, const std::vector<std::string>& parts, const std::string& present) {
  const Expr& expr = kernel_.exprs[id];
  const auto result = [&](int component) { return component_name(id, component); };
  const auto folded = [&](const std::string& value, const std::string& helper) {
    helpers_.insert(helper);
    return fmt::format("tl.reduce({}, 0, combine_fn={})", value, helper);
  };
  const auto valid = [&](const std::string& value) {
    return present.empty() ? value : fmt::format("tl.where({}, {}, 0.0)", present, value);
  };
  if (expr.reduce == ReduceOp::kMoments) {
    const auto number = [&](double value) { return literal(expr.dtype, value, 0).text; };
    const bool ragged = parts.size() > 2;
    const double programs = static_cast<double>(programs_of_row(kernel_)),
                 elements = static_cast<double>(reduced_elements());
    const std::string count = ragged ? parts[2] : number(elements / programs);
    line(fmt::format("{} = {}", result(0),
                     mean_text(parts[0], ragged ? count : "", ragged ? elements : programs, expr.dtype,
                               [](const std::string& text) { return fmt::format("tl.sum({}, axis=0)", text); })));
    const std::string shift = fresh(result(0) + "_shift", "");
    line(fmt::format("{} = {} - {}", shift, parts[0], result(0)));
    line(fmt::format("{} = tl.sum({}, axis=0)", result(1),
                     valid(fmt::format("{1} + {2} * {0} * {0}", shift, parts[1], count))));
    return;
  }
  if (expr.reduce == ReduceOp::kMaxSumExp) {
    line(fmt::format("{} = {}", result(0), folded(parts[0], "larger")));
    line(fmt::format("{} = tl.sum({} * tl.exp({} - {}), axis=0)", result(1), parts[1], parts[0], result(0)));
    return;
  }
  const bool sum = expr.reduce == ReduceOp::kSum;
  const std::string helper = expr.reduce == ReduceOp::kProd  ? "multiply"
                             : expr.reduce == ReduceOp::kMax ? "larger"
                                                             : "smaller";
  line(fmt::format("{} = {}", result(0), sum ? fmt::format("tl.sum({}, axis=0)", parts[0]) : folded(parts[0], helper)));
}

void KernelPrinter::exchange(const std::vector<ExprId>& reduces) {
  const int64_t programs = program_count(kernel_), row = programs_of_row(kernel_),
                lanes = std::max<int64_t>(2, power_of_two_from(row));
  const std::string partials = kernel_.buffers[kernel_.exchange.partials].name + "_ptr",
                    counters = kernel_.buffers[kernel_.exchange.counters].name + "_ptr";
  std::vector<std::vector<std::string>> mine;
  for (ExprId id : reduces) mine.push_back(block_results(id));
  const int64_t first_slot = exchanged_slots_;
  const auto place = [&](int64_t slot, const std::string& program) {
    return slot == 0 ? fmt::format("{} + {}", partials, program)
                     : fmt::format("{} + ({} + {})", partials, slot * programs, program);
  };
  int64_t slot = first_slot;
  for (const auto& names : mine)
    for (const std::string& name : names) line(fmt::format("tl.store({}, {})", place(slot++, "program"), name));
  exchanged_slots_ = slot;

  const std::string arrived = fresh("arrived_ptr", "");
  line("# The programs of the row wait for each other.");
  line("tl.debug_barrier()");
  line(fmt::format("{} = {} + ({} + program // {})", arrived, counters, 1 + exchanges_++ * (programs / row), row));
  line(fmt::format("tl.atomic_add({}, 1, sem=\"release\")", arrived));
  line(fmt::format("while tl.atomic_add({}, 0, sem=\"acquire\") < {}:", arrived, row));
  line("    pass");

  const std::string part = fresh("part", "");
  std::string present;
  line(fmt::format("{} = tl.arange(0, {})", part, lanes));
  if (lanes != row) {
    present = fresh("is_part", "");
    line(fmt::format("{} = {} < {}", present, part, row));
  }
  const std::string at = fresh("part_program", "");
  line(fmt::format("{0} = program // {1} * {1} + {2}", at, row, part));
  slot = first_slot;
  for (size_t index = 0; index < reduces.size(); ++index) {
    const Expr& expr = kernel_.exprs[reduces[index]];
    std::vector<std::string> parts;
    for (size_t component = 0; component < mine[index].size(); ++component) {
      parts.push_back(fresh(mine[index][component] + "s", ""));
      const bool first = component == 0;
      const std::string other = literal(expr.dtype, first ? identity_of(expr.reduce, expr.dtype, 0) : 0.0, 0).text;
      const std::string mask = present.empty() ? "" : fmt::format(", mask={}, other={}", present, other);
      line(fmt::format("{} = tl.load({}{}, cache_modifier=\".cg\")", parts.back(), place(slot++, at), mask));
    }
    combine_blocks(reduces[index], parts, present);
    for (ExprId sibling : siblings_of(kernel_, reduces[index])) bind(sibling);
  }
}

}  // namespace kw::triton
