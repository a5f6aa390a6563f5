// Element types and tensor types shared by graphs, kernels and tile programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kw {

enum class DType { f64, f32, f16, bf16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8, b1, c64, c128 };

std::string_view name_of(DType dtype);  // "f32"
std::optional<DType> parse_dtype(std::string_view name);
std::string_view torch_name(DType dtype);  // "torch.float32"
int64_t size_of(DType dtype);              // bytes
bool is_floating(DType dtype);
bool is_eight_bit_float(DType dtype);
bool is_narrow_float(DType dtype);  // of 16 or 8 bits: kernels compute in f32
bool is_integral(DType dtype);      // integers, not booleans
double epsilon_of(DType dtype);     // distance from 1 to the next value; 0 for integers
DType accumulator_of(DType dtype);  // f32 for 16-bit floats, i64 for integers and booleans, else itself

using Shape = std::vector<int64_t>;

// A strided tensor. Sizes and strides are in elements; `offset` is the storage offset in elements.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  Shape strides;
  int64_t offset = 0;
  std::string device = "cpu";

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const;
  int64_t bytes() const { return elements() * size_of(dtype); }
  bool is_contiguous() const;  // row-major and dense; size-1 axes' strides do not matter
  bool is_dense() const;       // covers its memory once in some order of axes
  bool operator==(const TensorType&) const = default;
};

Shape contiguous_strides(const Shape& shape);
int64_t product(const Shape& shape);
bool is_countable(const Shape& shape);  // no size below 0, and the product of the others than 0 a small part of
                                        // int64_t's range

}  // namespace kw
