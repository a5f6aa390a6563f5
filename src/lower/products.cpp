#include "lower/products.hpp"

#include <algorithm>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Symbol;
using tile::Value;
using Lanes = std::vector<Symbol>;

class ProductFinder {
 public:
  ProductFinder(const tile::Program& program, const LoopPlan& plan, const Instruction& dot)
      : program_(program), plan_(plan), dot_(dot), sum_(dot.results[0]) {}

  Product find() {
    for (Symbol lane : plan_.places[sum_].lanes)
      if (is_of(lane, dot_.operands[1], dot_.operands[2]) || is_of(lane, dot_.operands[2], dot_.operands[1]))
        found_.column = lane;
    const bool turned = found_.column >= 0 && tile::has_lane(lanes(dot_.operands[1]), found_.column);
    found_.left = dot_.operands[turned ? 2 : 1];
    found_.right = dot_.operands[turned ? 1 : 2];
    if (found_.column >= 0) found_.load = load_in_memory(found_.left);
    found_.loops = plan_.places[sum_].lanes;
    found_.depth = lanes_of(found_.left, [&](Symbol lane) { return !tile::has_lane(lanes(sum_), lane); });
    if (found_.column < 0) return found_;
    found_.loops.insert(found_.loops.end(), found_.depth.begin(), found_.depth.end());
    const DType dtype = program_.values[sum_].type.dtype;
    const bool is_float = dtype == DType::f32 || is_narrow_float(dtype);
    const bool is_dense = stride(found_.right, found_.column) == 1 && stride(sum_, found_.column) == 1;
    if (is_dense && is_float) call();
    else walk_columns();
    return found_;
  }

 private:
  void walk_columns() {
    found_.way = Product::Way::kColumns;
    found_.depth.clear();
    std::erase(found_.loops, found_.column);
  }

  void call() {
    found_.way = Product::Way::kCall;
    const Value left = found_.left, right = found_.right;
    found_.columns = run_of(lanes_of(right, [&](Symbol lane) { return is_of(lane, right, left); }), right, sum_);
    found_.rows = run_of(lanes_of(left, [&](Symbol lane) { return is_of(lane, left, right); }), left, sum_);
    found_.depth = run_of(found_.depth, left, right);
    for (const Lanes* run : {&found_.columns, &found_.rows, &found_.depth})
      for (Symbol lane : *run) std::erase(found_.loops, lane);
  }

  // Those that can be walked as one: the inner ones behind each other in both arrays.
  Lanes run_of(const Lanes& from, Value first, Value second) const {
    size_t begin = from.size();
    for (; begin > 0; --begin) {
      if (begin == from.size()) continue;
      const Symbol outer = from[begin - 1], inner = from[begin];
      const auto follows = [&](Value value) {
        return stride(value, outer) == stride(value, inner) * tile::width_of(program_, inner);
      };
      if (!follows(first) || !follows(second)) break;
    }
    return {from.begin() + static_cast<std::ptrdiff_t>(begin), from.end()};
  }

  const Lanes& lanes(Value value) const { return program_.values[value].type.lanes; }

  // Those of an array in the order of memory; of what is read where it lies, in any.
  template <typename Fits>
  Lanes lanes_of(Value value, const Fits& fits) const {
    const bool in_memory = value == found_.left && found_.load;
    Lanes result = in_memory ? lanes(value) : plan_.places[value].lanes;
    std::erase_if(result, [&](Symbol lane) { return !fits(lane); });
    return result;
  }

  // A lane of the sum that only one of the operands has.
  bool is_of(Symbol lane, Value owner, Value other) const {
    return tile::has_lane(lanes(sum_), lane) && tile::has_lane(lanes(owner), lane) &&
           !tile::has_lane(lanes(other), lane);
  }

  int64_t stride(Value value, Symbol lane) const {
    if (value != found_.left || !found_.load) return stride_of(program_, plan_.places[value], lane);
    const auto along = tile::stride_along(program_, found_.load->access, lane);
    return along ? kernel::as_constant(*along).value_or(0) : 0;
  }

  // The load of what is read where it lies; nullptr of what is not.
  const Instruction* load_in_memory(Value value) const {
    const Instruction* load = nullptr;
    if (plan_.places[value].home == Home::kMemory)
      tile::for_each(program_.body, [&](const Instruction& one) {
        if (one.kind == tile::Kind::kLoad && one.results[0] == value) load = &one;
      });
    return load;
  }

  const tile::Program& program_;
  const LoopPlan& plan_;
  const Instruction& dot_;
  const Value sum_;
  Product found_;
};

}  // namespace

Product product_of(const tile::Program& program, const LoopPlan& plan, const Instruction& dot) {
  return ProductFinder(program, plan, dot).find();
}

}  // namespace kw::lower
