#include <fmt/format.h>

#include "emit/cpu/tile_accesses.hpp"
#include "emit/cpu/tile_context.hpp"
#include "support/text.hpp"

namespace kw::cpu {
namespace {

using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;

class DotPrinter {
 public:
  DotPrinter(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step)
      : at_(at), accesses_(accesses), product_(step.product), sum_(step.instruction->results[0]) {}

  void print(Value start) {
    assign(at_, {{sum_, start}});
    switch (product_.way) {
      case lower::Product::Way::kSums: return print_sums();
      case lower::Product::Way::kColumns: return print_columns();
      case lower::Product::Way::kCall: return print_call();
    }
  }

 private:
  // The operand's load, where it is read where it lies.
  const tile::Instruction* load(Value value) const { return value == product_.left ? product_.load : nullptr; }

  int64_t width(const Lanes& run) const {
    int64_t width = 1;
    for (Symbol lane : run) width *= at_.text.width(lane);
    return width;
  }

  void print_call() {
    const Lanes &rows = product_.rows, &columns = product_.columns, &depth = product_.depth;
    LanePositions starts;
    for (const Lanes* run : {&columns, &rows, &depth})
      for (Symbol lane : *run) starts[lane] = "0";
    for (Symbol lane : product_.loops) at_.open_loop(lane);
    at_.text.helpers().insert("add_product");
    const Value left = product_.left, right = product_.right;
    const auto step = [&](Value value, const Lanes& run) { return run.empty() ? 0 : stride(value, run.back()); };
    at_.out.line(fmt::format("add_product<{}, {}, {}>({}, {}, {}, {}, {}, {}, {});", width(rows), width(columns),
                             width(depth), start(left, starts), step(left, rows), step(left, depth),
                             start(right, starts), step(right, depth), start(sum_, starts), step(sum_, rows)));
    close_loops(product_.loops.size());
  }

  void close_loops(size_t count) {
    for (size_t i = 0; i < count; ++i) at_.close_loop();
  }

  int64_t stride(Value value, Symbol lane) const {
    if (!load(value)) return at_.text.stride(value, lane);
    return *kernel::as_constant(*tile::stride_along(at_.text.program(), load(value)->access, lane));
  }

  std::string start(Value value, const LanePositions& positions) const {
    if (load(value)) return accesses_.first(load(value)->access, at_.text.type(value).lanes);
    const std::string at = at_.text.element_index(value, positions);
    return at_.text.name(value) + (at.empty() ? "" : " + " + at);
  }

  std::string factor(Value value) const {
    if (load(value)) return within(accesses_.load(*load(value)), precedence::kMultiply);
    return within(cast_text(at_.value(value), at_.text.held(value), at_.text.held(sum_), at_.text.helpers()),
                  precedence::kMultiply);
  }

  void print_columns() {
    for (Symbol lane : product_.loops) at_.open_loop(lane);
    at_.out.line("#pragma omp simd");
    at_.open_loop(product_.column);
    at_.out.line(
        fmt::format("{} += {} * {};", at_.text.element(sum_).text, factor(product_.left), factor(product_.right)));
    close_loops(product_.loops.size() + 1);
  }

  void print_sums() {
    const Lanes& summed = product_.depth;
    for (Symbol lane : product_.loops) at_.open_loop(lane);
    const std::string total = at_.text.fresh(at_.text.own_name(sum_) + "_total");
    at_.out.line(fmt::format("{} {} = {};", at_.text.held_type(sum_), total, at_.text.element(sum_).text));
    for (Symbol lane : summed) {
      if (lane == summed.back()) at_.out.line("#pragma omp simd reduction(+ : " + total + ")");
      at_.open_loop(lane);
    }
    at_.out.line(fmt::format("{} += {} * {};", total, factor(product_.left), factor(product_.right)));
    close_loops(summed.size());
    at_.out.line(at_.text.element(sum_).text + " = " + total + ";");
    close_loops(product_.loops.size());
  }

  TileContext& at_;
  TileAccesses& accesses_;
  const lower::Product& product_;
  Value sum_;
};

}  // namespace

void print_dot(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step) {
  if (at.notes.shares_forms(*step.instruction)) at.note(Reason::kSharedForms);
  DotPrinter(at, accesses, step).print(step.instruction->operands[0]);
}

}  // namespace kw::cpu
