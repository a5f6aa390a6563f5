// Elements of a convolution's image that nothing has made before: what makes them (ImageProducer), embedded in a
// kernel that counts the image's memory in places of its own.
#pragma once

#include <vector>

#include "plan/embedding.hpp"
#include "plan/product_kernels.hpp"

namespace kw::plan {

// One element for each point of a kernel: its place along some dimensions over which the image lies in memory.
struct ImagePlaces {
  Shape shape, strides;                // of the dimensions; none overlap
  std::vector<kernel::Index> at;       // along each of them, outside of the shape too
  std::vector<kernel::ExprId> inside;  // [dimension] whether the place is within it; kNoExpr where it always is
};

class EmbeddedImage {
 public:
  EmbeddedImage(KernelDraft& draft, const ImageProducer& producer, ValueId image, ImagePlaces places);
  EmbeddedImage(const EmbeddedImage&) = delete;
  EmbeddedImage& operator=(const EmbeddedImage&) = delete;

  // The element; outside of the image, anything.
  kernel::ExprId value();
  // Stores what others read of the producer's results. `mask` holds inside of the image only.
  void store_results(kernel::ExprId mask);

 private:
  kernel::Access place(int buffer, const kernel::Index& index);
  kernel::Index over_symbols(const kernel::Index& index) const;
  std::vector<kernel::Index> axes() const;
  // The number that is the place along a dimension, in indices of the embedded kernel.
  kernel::Symbol number(size_t dimension) const { return first_number_ + static_cast<kernel::Symbol>(dimension); }

  KernelDraft& draft_;
  const LoweredGroup& group_;
  const ImagePlaces places_;
  const Store& store_;  // of the image
  const ValueId image_;
  const bool is_stored_;
  const kernel::Symbol first_number_;
  std::vector<kernel::SymbolRange> ranges_;           // of the kernel's symbols, then of the places inside
  std::vector<bool> lies_like_image_, is_looked_up_;  // [buffer]
  std::vector<int> buffers_;                          // [buffer] the kernel's; −1: not yet
  Embedding embedding_;
};

}  // namespace kw::plan
