#include <algorithm>
#include <numeric>

#include "ir/infer.hpp"
#include "ir/op_registry.hpp"
#include "ir/promote.hpp"

namespace kw {
namespace {

using Maybe = std::optional<TensorType>;

Maybe viewed(const TensorType& self, Shape shape) {
  const int64_t known = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                        [](int64_t sum, int64_t size) { return size < 0 ? sum : sum * size; });
  for (auto& size : shape)
    if (size < 0) {
      if (known == 0) return std::nullopt;
      size = self.elements() / known;
    }
  if (product(shape) != self.elements()) return std::nullopt;
  auto strides = view_strides(self, shape);
  if (!strides) return std::nullopt;
  return TensorType{self.dtype, std::move(shape), std::move(*strides), self.offset, self.device};
}

Maybe permuted(const TensorType& self, const IntList& axes) {
  if (static_cast<int64_t>(axes.size()) != self.rank()) return std::nullopt;
  TensorType out = self;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = normalise_axis(axes[i], self.rank());
    if (!axis) return std::nullopt;
    out.shape[i] = self.shape[*axis];
    out.strides[i] = self.strides[*axis];
  }
  return out;
}

Maybe swapped(const TensorType& self, int64_t first, int64_t second) {
  const auto a = normalise_axis(first, self.rank()), b = normalise_axis(second, self.rank());
  if (!a || !b) return std::nullopt;
  TensorType out = self;
  if (out.shape.empty()) return out;
  std::swap(out.shape[*a], out.shape[*b]);
  std::swap(out.strides[*a], out.strides[*b]);
  return out;
}

Maybe expanded(const TensorType& self, const IntList& size) {
  const auto rank = static_cast<int64_t>(size.size());
  if (rank < self.rank()) return std::nullopt;
  TensorType out{self.dtype, size, Shape(size.size(), 0), self.offset, self.device};
  // PyTorch gives an added axis of size one the stride of a contiguous neighbour; the value is free, it is never
  // stepped over.
  for (int64_t axis = rank - 1; axis >= 0; --axis) {
    const int64_t from = axis - (rank - self.rank());
    if (from < 0) {
      if (size[axis] < 0) return std::nullopt;
      out.strides[axis] = size[axis] == 1 && axis + 1 < rank ? out.shape[axis + 1] * out.strides[axis + 1] : 0;
      continue;
    }
    if (size[axis] == -1) out.shape[axis] = self.shape[from];
    else if (self.shape[from] != 1 && self.shape[from] != size[axis]) return std::nullopt;
    out.strides[axis] = self.shape[from] == out.shape[axis] ? self.strides[from] : 0;
  }
  return out;
}

Maybe squeezed(const TensorType& self, const Node& node) {
  std::vector<bool> drop(self.shape.size(), !node.find("dim"));
  for (const int64_t dim : node.integers("dim")) {
    const auto axis = normalise_axis(dim, self.rank());
    if (!axis) return std::nullopt;
    if (!drop.empty()) drop[*axis] = true;
  }
  TensorType out{self.dtype, {}, {}, self.offset, self.device};
  for (size_t axis = 0; axis < self.shape.size(); ++axis) {
    if (drop[axis] && self.shape[axis] == 1) continue;
    out.shape.push_back(self.shape[axis]);
    out.strides.push_back(self.strides[axis]);
  }
  return out;
}

Maybe unsqueezed(const TensorType& self, int64_t dim) {
  const auto axis = normalise_axis(dim, self.rank() + 1);
  if (!axis) return std::nullopt;
  TensorType out = self;
  const int64_t stride = *axis < self.rank() ? self.shape[*axis] * self.strides[*axis] : 1;
  out.shape.insert(out.shape.begin() + *axis, 1);
  out.strides.insert(out.strides.begin() + *axis, stride);
  return out;
}

Maybe selected(const TensorType& self, int64_t dim, int64_t index) {
  if (self.shape.empty()) return std::nullopt;
  const auto axis = normalise_axis(dim, self.rank());
  if (!axis) return std::nullopt;
  if (index < 0) index += self.shape[*axis];
  if (index < 0 || index >= self.shape[*axis]) return std::nullopt;
  TensorType out = self;
  out.offset += index * self.strides[*axis];
  out.shape.erase(out.shape.begin() + *axis);
  out.strides.erase(out.strides.begin() + *axis);
  return out;
}

Maybe sliced(const TensorType& self, int64_t dim, int64_t start, int64_t end, int64_t step) {
  if (self.shape.empty() || step < 1) return std::nullopt;
  const auto axis = normalise_axis(dim, self.rank());
  if (!axis) return std::nullopt;
  const int64_t size = self.shape[*axis];
  const auto clamp = [&](int64_t place) { return std::clamp(place < 0 ? place + size : place, int64_t{0}, size); };
  start = clamp(start);
  end = std::max(clamp(end), start);
  TensorType out = self;
  out.shape[*axis] = (end - start + step - 1) / step;
  out.offset += start * self.strides[*axis];
  out.strides[*axis] *= step;
  return out;
}

Maybe diagonal(const TensorType& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const auto first = normalise_axis(dim1, self.rank()), second = normalise_axis(dim2, self.rank());
  if (!first || !second || *first == *second) return std::nullopt;
  const int64_t rows = self.shape[*first], columns = self.shape[*second];
  const int64_t size = std::max<int64_t>(
      offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns), 0);
  TensorType out = self;
  if (size > 0) out.offset += offset >= 0 ? offset * self.strides[*second] : -offset * self.strides[*first];
  for (const int64_t axis : {std::max(*first, *second), std::min(*first, *second)}) {
    out.shape.erase(out.shape.begin() + axis);
    out.strides.erase(out.strides.begin() + axis);
  }
  out.shape.push_back(size);
  out.strides.push_back(self.strides[*first] + self.strides[*second]);
  return out;
}

Maybe unfolded(const TensorType& self, int64_t dim, int64_t size, int64_t step) {
  const auto axis = normalise_axis(dim, self.rank());
  if (self.shape.empty() || !axis || step < 1 || size > self.shape[*axis]) return std::nullopt;
  TensorType out = self;
  out.shape[*axis] = (self.shape[*axis] - size) / step + 1;
  out.strides[*axis] *= step;
  out.shape.push_back(size);
  out.strides.push_back(self.strides[*axis]);
  return out;
}

Maybe flattened(const TensorType& self, int64_t start, int64_t end) {
  if (self.shape.empty()) return viewed(self, {1});
  const auto from = normalise_axis(start, self.rank()), to = normalise_axis(end, self.rank());
  if (!from || !to || *from > *to) return std::nullopt;
  Shape shape(self.shape.begin(), self.shape.begin() + *from);
  shape.push_back(product({self.shape.begin() + *from, self.shape.begin() + *to + 1}));
  shape.insert(shape.end(), self.shape.begin() + *to + 1, self.shape.end());
  return viewed(self, shape);
}

Maybe unflattened(const TensorType& self, int64_t dim, const IntList& sizes) {
  const auto axis = normalise_axis(dim, self.rank());
  if (self.shape.empty() || !axis) return std::nullopt;
  Shape shape(self.shape.begin(), self.shape.begin() + *axis);
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.insert(shape.end(), self.shape.begin() + *axis + 1, self.shape.end());
  return viewed(self, shape);
}

}  // namespace

std::optional<Shape> view_strides(const TensorType& type, const Shape& shape) {
  if (type.elements() == 0) return shape == type.shape ? type.strides : contiguous_strides(shape);
  if (type.shape.empty()) return Shape(shape.size(), 1);
  Shape strides(shape.size());
  auto view_axis = static_cast<int64_t>(shape.size()) - 1;
  int64_t chunk_stride = type.strides.back(), chunk = 1, viewed = 1;
  // From the back: each run of axes that lie contiguously behind one another is one chunk, to be cut up anew.
  for (int64_t axis = type.rank() - 1; axis >= 0; --axis) {
    chunk *= type.shape[axis];
    if (axis != 0 && (type.shape[axis - 1] == 1 || type.strides[axis - 1] == chunk * chunk_stride)) continue;
    while (view_axis >= 0 && (viewed < chunk || shape[view_axis] == 1)) {
      strides[view_axis] = viewed * chunk_stride;
      viewed *= shape[view_axis];
      --view_axis;
    }
    if (viewed != chunk) return std::nullopt;
    if (axis > 0) {
      chunk_stride = type.strides[axis - 1];
      chunk = viewed = 1;
    }
  }
  return view_axis == -1 ? std::optional(strides) : std::nullopt;
}

std::optional<TensorType> infer_view(const Graph& graph, const Node& node) {
  ValueId operand = node.value("self");
  if (operand == kNoValue) operand = node.value("input");
  if (operand == kNoValue) return std::nullopt;
  const TensorType& self = graph.type(operand);
  const int64_t rank = self.rank();
  switch (rule_of(node)) {
    case OpRule::kSame: return self;
    case OpRule::kReshape:
      if (node.find("dtype")) return std::nullopt;  // the bits of another type
      return viewed(self, node.integers(node.find("shape") ? "shape" : "size"));
    case OpRule::kFlatten: return flattened(self, node.integer("start_dim", 0), node.integer("end_dim", -1));
    case OpRule::kUnflatten: return unflattened(self, node.integer("dim", 0), node.integers("sizes"));
    case OpRule::kSqueeze: return squeezed(self, node);
    case OpRule::kUnsqueeze: return unsqueezed(self, node.integer("dim", 0));
    case OpRule::kExpand: return expanded(self, node.integers("size"));
    case OpRule::kPermute: return permuted(self, node.integers("dims"));
    case OpRule::kTranspose:
      return node.find("axis0") ? swapped(self, node.integer("axis0", 0), node.integer("axis1", 0))
                                : swapped(self, node.integer("dim0", 0), node.integer("dim1", 0));
    case OpRule::kMatrixTranspose: return rank < 2 ? std::nullopt : swapped(self, rank - 2, rank - 1);
    case OpRule::kReverseAxes: {
      IntList axes(rank);
      for (int64_t axis = 0; axis < rank; ++axis) axes[axis] = rank - 1 - axis;
      return permuted(self, axes);
    }
    case OpRule::kSelect:
      return node.find("index") ? selected(self, node.integer("dim", 0), node.integer("index", 0)) : std::nullopt;
    case OpRule::kSlice:
      return sliced(self, node.integer("dim", 0), node.integer("start", 0), node.integer("end", INT64_MAX),
                    node.integer("step", 1));
    case OpRule::kNarrow: {
      const auto axis = normalise_axis(node.integer("dim", 0), rank);
      if (!node.find("length") || node.value("start") != kNoValue || !axis || self.shape.empty()) return std::nullopt;
      int64_t start = node.integer("start", 0);
      if (start < 0) start += self.shape[*axis];
      return sliced(self, *axis, start, start + node.integer("length", 0), 1);
    }
    case OpRule::kDiagonal:
      return diagonal(self, node.integer("offset", 0), node.integer("dim1", 0), node.integer("dim2", 1));
    case OpRule::kUnfold:
      return unfolded(self, node.integer("dimension", 0), node.integer("size", 1), node.integer("step", 1));
    case OpRule::kAsStrided:
      return TensorType{self.dtype, node.integers("size"), node.integers("stride"),
                        node.integer("storage_offset", self.offset), self.device};
    default: return std::nullopt;
  }
}

}  // namespace kw
