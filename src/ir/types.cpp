#include "ir/types.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "support/error.hpp"

namespace kw {
namespace {

struct DTypeRow {
  std::string_view name, torch;
  int64_t bytes;
  double epsilon;
};

// In the order of the enumeration.
constexpr std::array<DTypeRow, 14> kDTypes = {{
    {"f64", "torch.float64", 8, 0x1p-52},
    {"f32", "torch.float32", 4, 0x1p-23},
    {"f16", "torch.float16", 2, 0x1p-10},
    {"bf16", "torch.bfloat16", 2, 0x1p-7},
    {"f8e4m3fn", "torch.float8_e4m3fn", 1, 0x1p-3},
    {"f8e5m2", "torch.float8_e5m2", 1, 0x1p-2},
    {"i64", "torch.int64", 8, 0},
    {"i32", "torch.int32", 4, 0},
    {"i16", "torch.int16", 2, 0},
    {"i8", "torch.int8", 1, 0},
    {"u8", "torch.uint8", 1, 0},
    {"b1", "torch.bool", 1, 0},
    {"c64", "torch.complex64", 8, 0x1p-23},
    {"c128", "torch.complex128", 16, 0x1p-52},
}};

const DTypeRow& row(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)); }

}  // namespace

std::string_view name_of(DType dtype) { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::string_view torch_name(DType dtype) { return row(dtype).torch; }
int64_t size_of(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return dtype <= DType::f8e5m2; }
bool is_eight_bit_float(DType dtype) { return dtype == DType::f8e4m3fn || dtype == DType::f8e5m2; }
bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 || is_eight_bit_float(dtype); }
bool is_integral(DType dtype) { return dtype >= DType::i64 && dtype <= DType::u8; }
double epsilon_of(DType dtype) { return row(dtype).epsilon; }

DType accumulator_of(DType dtype) {
  if (is_integral(dtype) || dtype == DType::b1) return DType::i64;
  if (is_floating(dtype) && dtype != DType::f64) return DType::f32;
  return dtype;
}

int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

bool is_countable(const Shape& shape) {
  constexpr int64_t kMost = int64_t{1} << 56;  // elements of 16 bytes, counted in bytes, still fit
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || std::max<int64_t>(size, 1) > kMost / elements) return false;
    elements *= std::max<int64_t>(size, 1);
  }
  return true;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(shape[axis], 1);  // PyTorch's rule: an empty axis counts as one
  }
  return strides;
}

int64_t TensorType::elements() const { return product(shape); }

bool TensorType::is_contiguous() const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1) continue;
    if (strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

bool TensorType::is_dense() const {
  if (elements() == 0) return true;
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (const size_t axis : axes) {
    if (strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

}  // namespace kw
