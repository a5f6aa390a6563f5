#include "ir/promote.hpp"

#include <algorithm>

namespace kw {
namespace {

enum class Category { kNone, kBool, kInteger, kFloat, kComplex };

Category category_of(DType dtype) {
  if (dtype == DType::b1) return Category::kBool;
  if (is_integral(dtype)) return Category::kInteger;
  return is_floating(dtype) ? Category::kFloat : Category::kComplex;
}

// One rank of deciders: tensors with axes, 0-d tensors or numbers.
struct Decider {
  std::optional<DType> dtype;
  bool unknown = false;
  void meet(DType other) {
    if (!dtype) dtype = other;
    else if (const auto common = promote_types(*dtype, other)) dtype = common;
    else unknown = true;
  }
};

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower) return higher;
  const Category high = category_of(*higher), low = category_of(*lower);
  if (high == Category::kComplex) return higher;
  if (high == Category::kFloat && low == Category::kComplex) return *higher == DType::f64 ? DType::c128 : DType::c64;
  if (high == Category::kFloat) return higher;
  if (high == Category::kBool || low == Category::kFloat || low == Category::kComplex)
    return promote_types(*higher, *lower);
  return higher;
}

}  // namespace

std::optional<DType> promote_types(DType left, DType right) {
  if (left == right) return left;
  if (is_eight_bit_float(left) || is_eight_bit_float(right)) return std::nullopt;
  Category low = category_of(left), high = category_of(right);
  if (low > high) {
    std::swap(left, right);
    std::swap(low, high);
  }
  if (high == Category::kComplex)
    return left == DType::f64 || left == DType::c128 || right == DType::c128 ? DType::c128 : DType::c64;
  if (low != high) return right;
  if (high == Category::kFloat && size_of(left) == size_of(right)) return DType::f32;    // f16 with bf16
  if (high == Category::kInteger && size_of(left) == size_of(right)) return DType::i16;  // i8 with u8
  return size_of(left) > size_of(right) ? left : right;
}

std::optional<DType> result_type(const Graph& graph, const Node& node, const std::vector<std::string_view>& arguments) {
  Decider with_axes, zero_dimensional;
  bool float_number = false, integer_number = false, bool_number = false;
  for (const auto name : arguments) {
    const Argument* argument = node.find(name);
    if (!argument) continue;
    const auto meet = [&](ValueId id) {
      if (id != kNoValue) (graph.type(id).rank() > 0 ? with_axes : zero_dimensional).meet(graph.type(id).dtype);
    };
    if (const auto* value = std::get_if<ValueRef>(argument)) meet(value->id);
    if (const auto* values = std::get_if<ValueList>(argument))
      std::for_each(values->ids.begin(), values->ids.end(), meet);
    float_number |= std::holds_alternative<double>(*argument);
    integer_number |= std::holds_alternative<int64_t>(*argument);
    bool_number |= std::holds_alternative<bool>(*argument);
  }
  if (with_axes.unknown || zero_dimensional.unknown) return std::nullopt;
  const auto tensors = combine(with_axes.dtype, zero_dimensional.dtype);
  if (float_number) return tensors && category_of(*tensors) >= Category::kFloat ? tensors : std::nullopt;
  const std::optional<DType> number = integer_number ? std::optional(DType::i64)
                                      : bool_number  ? std::optional(DType::b1)
                                                     : std::nullopt;
  return combine(with_axes.dtype, combine(zero_dimensional.dtype, number));
}

std::optional<Shape> broadcast(const Shape& left, const Shape& right) {
  const Shape& longer = left.size() >= right.size() ? left : right;
  const Shape& shorter = left.size() >= right.size() ? right : left;
  Shape out = longer;
  const size_t skipped = longer.size() - shorter.size();
  for (size_t axis = 0; axis < shorter.size(); ++axis) {
    int64_t& size = out[skipped + axis];
    if (size == shorter[axis] || shorter[axis] == 1) continue;
    if (size != 1) return std::nullopt;
    size = shorter[axis];
  }
  return out;
}

std::optional<int64_t> normalise_axis(int64_t axis, int64_t rank) {
  rank = std::max<int64_t>(rank, 1);
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? std::nullopt : std::optional(axis);
}

}  // namespace kw
