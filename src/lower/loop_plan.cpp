#include "lower/loop_plan.hpp"

namespace kw::lower {

int64_t held_bytes(DType dtype) { return is_narrow_float(dtype) ? size_of(DType::f32) : size_of(dtype); }

int64_t bytes_of(const tile::Buffer& buffer) {
  tile::Index last;
  const std::vector<tile::Index> strides = tile::strides_of(buffer);
  for (size_t at = 0; at < strides.size(); ++at) last = last + (buffer.shape[at] - tile::Index(1)) * strides[at];
  return (kernel::as_constant(last).value_or(0) + 1) * size_of(buffer.dtype);
}

}  // namespace kw::lower
