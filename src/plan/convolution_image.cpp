#include "plan/convolution_image.hpp"

#include <algorithm>

namespace kw::plan {

using kernel::ExprId;
using kernel::Symbol;

namespace {

// Does some quotient or remainder depend on the symbol?
bool divides(const kernel::Index& index, Symbol symbol) {
  for (const kernel::IndexTerm& term : index.terms)
    for (const kernel::IndexFactor& factor : term.factors)
      if (factor.kind != kernel::IndexFactor::Kind::kSymbol && kernel::uses(*factor.dividend, symbol)) return true;
  return false;
}

std::vector<kernel::SymbolRange> with_places(const kernel::Kernel& kernel, const Shape& shape) {
  std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(kernel);
  for (int64_t extent : shape) ranges.push_back({0, extent - 1, 1});
  return ranges;
}

// [buffer] Is every element that the kernel reads or writes of it where the image's own would be?
std::vector<bool> lie_like_image(const GroupKernel& kernel, const Access& image, int64_t elements) {
  std::vector<bool> like(kernel.buffers.size());
  for (size_t buffer = 0; buffer < like.size(); ++buffer)
    like[buffer] = elements_of(kernel.buffers[buffer]) == elements;
  const auto see = [&](const Access& access) {
    if (!(index_of(access) == index_of(image)) || lookup_of(access) != kernel::kNoExpr) like[access.buffer] = false;
  };
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr)) see(expr.access);
  for (const Store& store : kernel.stores) see(store.access);
  return like;
}

// [buffer] Is some element of it read where a computed place says?
std::vector<bool> looked_up_in(const GroupKernel& kernel) {
  std::vector<bool> looked_up(kernel.buffers.size());
  for (const Expr& expr : kernel.exprs)
    if (looks_up(expr)) looked_up[expr.access.buffer] = true;
  return looked_up;
}

}  // namespace

EmbeddedImage::EmbeddedImage(KernelDraft& draft, const ImageProducer& producer, ValueId image, ImagePlaces places)
    : draft_(draft),
      group_(*producer.group),
      places_(std::move(places)),
      store_(producer.image_store(image)),
      image_(image),
      is_stored_(producer.is_stored),
      first_number_(static_cast<Symbol>(draft.build.kernel().symbols.size())),
      ranges_(with_places(draft.build.kernel(), places_.shape)),
      lies_like_image_(lie_like_image(group_.kernel, store_.access, product(places_.shape))),
      is_looked_up_(looked_up_in(group_.kernel)),
      buffers_(group_.buffers.size(), -1),
      embedding_(draft.build, group_.kernel, axes(), {},
                 [this](int buffer, const kernel::Index& index) { return place(buffer, index); }, {},
                 {ranges_, [this](const kernel::Index& index) { return over_symbols(index); }}) {}

// Of the image's element at position p in memory an axis has the value p / distance % extent.
std::vector<kernel::Index> EmbeddedImage::axes() const {
  kernel::Index position = 0;
  for (size_t dim = 0; dim < places_.shape.size(); ++dim)
    if (places_.shape[dim] > 1)
      position = position + kernel::symbol_index(number(dim)) * kernel::Index(places_.strides[dim]);
  std::vector<kernel::Index> axes(group_.kernel.symbols.size());
  for (const kernel::Digit& digit : kernel::digits_of(index_of(store_.access)))
    axes[digit.axis] = kernel::modulo(kernel::floor_divide(position, digit.coefficient, ranges_),
                                      extent_of(group_.kernel, digit.axis), ranges_);
  return axes;
}

// What is divided must not be negative: a place before the image's first is called by one that exists.
kernel::Index EmbeddedImage::over_symbols(const kernel::Index& index) const {
  return kernel::substitute(
      index,
      [&](Symbol symbol) {
        if (symbol < first_number_) return kernel::symbol_index(symbol);
        const size_t dim = symbol - first_number_;
        const kernel::Index& place = places_.at[dim];
        const int64_t low = kernel::range_of(place, ranges_).low, extent = places_.shape[dim];
        if (low >= 0 || !divides(index, symbol)) return place;
        return kernel::modulo(place + kernel::Index(ceil_divide(-low, extent) * extent), extent, ranges_);
      },
      ranges_);
}

kernel::Access EmbeddedImage::place(int buffer, const kernel::Index& index) {
  const bool like_image = lies_like_image_[buffer];
  if (buffers_[buffer] < 0) {
    const kernel::Buffer& one = group_.kernel.buffers[buffer];
    buffers_[buffer] = draft_.buffer(one.name, one.dtype, like_image ? places_.shape : Shape{elements_of(one)},
                                     like_image ? places_.strides : Shape{}, one.role, group_.buffers[buffer]);
  }
  kernel::Access access;
  access.buffer = buffers_[buffer];
  if (like_image)
    for (const kernel::Index& one : places_.at) access.coordinates.push_back({one, kernel::kNoExpr});
  else access.coordinates.push_back({over_symbols(index), kernel::kNoExpr});
  for (size_t dim = 0; dim < places_.shape.size(); ++dim) {
    const ExprId inside = places_.inside[dim];
    // What a computed place depends on does not show in the index.
    const bool matters = like_image || is_looked_up_[buffer] || kernel::uses(index, number(dim));
    if (inside == kernel::kNoExpr || !matters) continue;
    access.mask = draft_.build.both(access.mask, inside);
  }
  return access;
}

ExprId EmbeddedImage::value() { return embedding_.expr(store_.value); }

void EmbeddedImage::store_results(ExprId mask) {
  for (const Store& store : group_.kernel.stores) {
    if (group_.buffers[store.access.buffer] == image_ && !is_stored_) continue;
    kernel::Access access = embedding_.access(store.access);
    access.mask = mask;
    draft_.build.store(std::move(access), embedding_.expr(store.value));
  }
}

}  // namespace kw::plan
