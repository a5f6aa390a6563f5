#include <fmt/format.h>

#include <algorithm>

#include "emit/cpu/tile_accesses.hpp"
#include "emit/cpu/tile_context.hpp"
#include "support/text.hpp"

namespace kw::cpu {
namespace {

using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;

// Lanes that can be walked as one: the inner ones behind each other in both arrays.
struct Run {
  Lanes lanes;
  int64_t width = 1;
};

class DotPrinter {
 public:
  DotPrinter(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step)
      : at_(at), accesses_(accesses), dot_(*step.instruction), product_(step.product), sum_(dot_.results[0]) {
    const bool turned = product_.column >= 0 && tile::has_lane(lanes(dot_.operands[1]), product_.column);
    left_ = dot_.operands[turned ? 2 : 1];
    right_ = dot_.operands[turned ? 1 : 2];
  }

  void print() {
    assign(at_, {{sum_, dot_.operands[0]}});
    switch (product_.way) {
      case lower::Product::Way::kSums: return print_sums();
      case lower::Product::Way::kColumns: return print_columns();
      case lower::Product::Way::kCall: return print_call();
    }
  }

 private:
  const Lanes& lanes(Value value) const { return at_.text.type(value).lanes; }

  // The operand's load, where it is read where it lies.
  const tile::Instruction* load(Value value) const { return value == left_ ? product_.load : nullptr; }

  // The lanes of an array that `fits`, in the order of memory; of what is no array, in any.
  template <typename Fits>
  Lanes lanes_of(Value value, const Fits& fits) const {
    Lanes result;
    for (Symbol lane : load(value) ? lanes(value) : at_.text.place(value).lanes)
      if (fits(lane)) result.push_back(lane);
    return result;
  }

  Lanes summed() const {
    return lanes_of(left_, [&](Symbol lane) { return !tile::has_lane(lanes(sum_), lane); });
  }

  Run innermost(const Lanes& from, Value first, Value second) const {
    Run run;
    for (size_t i = from.size(); i-- > 0;) {
      if (!run.lanes.empty()) {
        const Symbol inner = run.lanes.back();
        const auto follows = [&](Value value) {
          return stride(value, from[i]) == stride(value, inner) * at_.text.width(inner);
        };
        if (!follows(first) || !follows(second)) break;
      }
      run.lanes.push_back(from[i]);
      run.width *= at_.text.width(from[i]);
    }
    return run;
  }

  void print_call() {
    const Run columns = innermost(lanes_of(right_, [&](Symbol lane) { return is_of(lane, right_, left_); }), right_,
                                  sum_);
    const Run rows = innermost(lanes_of(left_, [&](Symbol lane) { return is_of(lane, left_, right_); }), left_, sum_);
    const Run depth = innermost(summed(), left_, right_);
    LanePositions starts;
    for (const Run* run : {&columns, &rows, &depth})
      for (Symbol lane : run->lanes) starts[lane] = "0";
    size_t loops = 0;
    for (Symbol lane : all_lanes()) {
      if (starts.count(lane)) continue;
      at_.open_loop(lane);
      ++loops;
    }
    at_.text.helpers().insert("add_product");
    const auto step = [&](Value value, const Run& run) {
      return run.lanes.empty() ? 0 : stride(value, run.lanes.front());
    };
    at_.out.line(fmt::format("add_product<{}, {}, {}>({}, {}, {}, {}, {}, {}, {});", rows.width, columns.width,
                             depth.width, start(left_, starts), step(left_, rows), step(left_, depth),
                             start(right_, starts), step(right_, depth), start(sum_, starts), step(sum_, rows)));
    for (; loops > 0; --loops) at_.close_loop();
  }

  bool is_of(Symbol lane, Value owner, Value other) const {
    return tile::has_lane(lanes(sum_), lane) && tile::has_lane(lanes(owner), lane) &&
           !tile::has_lane(lanes(other), lane);
  }

  // Those of the sum, then those summed over.
  Lanes all_lanes() const {
    Lanes all = lanes_of(sum_, [](Symbol) { return true; });
    for (Symbol lane : summed()) all.push_back(lane);
    return all;
  }

  int64_t stride(Value value, Symbol lane) const {
    if (!load(value)) return at_.text.stride(value, lane);
    return *kernel::as_constant(*tile::stride_along(at_.text.program(), load(value)->access, lane));
  }

  std::string start(Value value, const LanePositions& positions) const {
    if (load(value)) return accesses_.first(load(value)->access, lanes(value));
    const std::string at = at_.text.element_index(value, positions);
    return at_.text.name(value) + (at.empty() ? "" : " + " + at);
  }

  std::string factor(Value value) const {
    if (load(value)) return within(accesses_.load(*load(value)), precedence::kMultiply);
    return within(cast_text(at_.value(value), at_.text.held(value), at_.text.held(sum_), at_.text.helpers()),
                  precedence::kMultiply);
  }

  void print_columns() {
    Lanes loops = all_lanes();
    std::erase(loops, product_.column);
    for (Symbol lane : loops) at_.open_loop(lane);
    at_.out.line("#pragma omp simd");
    at_.open_loop(product_.column);
    at_.out.line(fmt::format("{} += {} * {};", at_.text.element(sum_).text, factor(left_), factor(right_)));
    for (size_t i = 0; i <= loops.size(); ++i) at_.close_loop();
  }

  void print_sums() {
    const Lanes outer = lanes_of(sum_, [](Symbol) { return true; }), inner = summed();
    for (Symbol lane : outer) at_.open_loop(lane);
    const std::string total = at_.text.fresh(at_.text.own_name(sum_) + "_total");
    at_.out.line(fmt::format("{} {} = {};", at_.text.held_type(sum_), total, at_.text.element(sum_).text));
    for (Symbol lane : inner) {
      if (lane == inner.back()) at_.out.line("#pragma omp simd reduction(+ : " + total + ")");
      at_.open_loop(lane);
    }
    at_.out.line(fmt::format("{} += {} * {};", total, factor(left_), factor(right_)));
    for (size_t i = 0; i < inner.size(); ++i) at_.close_loop();
    at_.out.line(at_.text.element(sum_).text + " = " + total + ";");
    for (size_t i = 0; i < outer.size(); ++i) at_.close_loop();
  }

  TileContext& at_;
  TileAccesses& accesses_;
  const tile::Instruction& dot_;
  const lower::Product& product_;
  Value sum_;
  Value left_ = tile::kNoValue, right_ = tile::kNoValue;  // the one whose elements are spread, and the one with columns
};

}  // namespace

void print_dot(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step) {
  DotPrinter(at, accesses, step).print();
}

}  // namespace kw::cpu
