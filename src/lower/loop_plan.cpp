#include "lower/loop_plan.hpp"

namespace kw::lower {

int64_t held_bytes(DType dtype) { return is_narrow_float(dtype) ? size_of(DType::f32) : size_of(dtype); }

int64_t stride_of(const tile::Program& program, const TilePlace& array, tile::Symbol lane) {
  int64_t stride = 1;
  for (size_t i = array.lanes.size(); i-- > 0; stride *= tile::width_of(program, array.lanes[i]))
    if (array.lanes[i] == lane) return stride;
  return 0;
}

int64_t bytes_of(const tile::Buffer& buffer) {
  tile::Index last;
  const std::vector<tile::Index> strides = tile::strides_of(buffer);
  for (size_t at = 0; at < strides.size(); ++at) last = last + (buffer.shape[at] - tile::Index(1)) * strides[at];
  return (kernel::as_constant(last).value_or(0) + 1) * size_of(buffer.dtype);
}

}  // namespace kw::lower
