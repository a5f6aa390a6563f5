#include "tile/storage.hpp"

#include <cmath>
#include <limits>

namespace kw::tile {
namespace {

bool same_number(DType dtype, const kernel::Number& left, const kernel::Number& right) {
  if (!kernel::is_real(dtype)) return left.whole == right.whole;
  return left.real == right.real || (std::isnan(left.real) && std::isnan(right.real));
}

}  // namespace

kernel::Number unwritten(DType dtype) {
  if (kernel::is_real(dtype)) return {std::numeric_limits<double>::quiet_NaN(), 0};
  return kernel::identity(ReduceOp::kMax, dtype);
}

Storage::Storage(const Buffer& buffer, const std::vector<int64_t>& symbols) : buffer_(&buffer) {
  for (const Index& extent : buffer.shape) shape_.push_back(kernel::evaluate(extent, symbols));
  for (const Index& stride : strides_of(buffer)) strides_.push_back(kernel::evaluate(stride, symbols));
  elements_ = 1;
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] <= 0) {
      elements_ = 0;
      break;
    }
    elements_ += (shape_[i] - 1) * strides_[i];
  }
}

void Storage::fill_unwritten() {
  const kernel::Number nothing = unwritten(dtype());
  if (kernel::is_real(dtype())) numbers_.reals.assign(elements_, nothing.real);
  else numbers_.wholes.assign(elements_, nothing.whole);
  traces_.assign(elements_, {});
}

kernel::Number Storage::get(int64_t element) const {
  if (kernel::is_real(dtype())) return {numbers_.reals[element], 0};
  return {0.0, numbers_.wholes[element]};
}

void Storage::set(int64_t element, const kernel::Number& value) {
  if (kernel::is_real(dtype())) numbers_.reals[element] = value.real;
  else numbers_.wholes[element] = value.whole;
}

bool Storage::is_seen(int32_t written_after, int writer, int reader) const {
  if (written_after == barriers_) return false;
  const bool meets = row_of_.empty() || (writer >= 0 && row_of_[writer] == row_of_[reader]);
  return meets || written_after < before_all_;
}

std::string_view Storage::read(int64_t element, int block, kernel::Number& value) {
  value = get(element);
  if (buffer_->role == BufferRole::kInput) return "";
  if (traces_.empty()) traces_.resize(elements_);
  Trace& trace = traces_[element];
  if (trace.copies > 0) return "is read before a wait for the copy that writes it";
  const bool fresh = trace.written_after == barriers_ && trace.writer != -1;
  if (is_own() && fresh) return "is read before a barrier, after it was written";
  if (trace.writer != -1 && trace.writer != block && !is_seen(trace.written_after, trace.writer, block))
    return "is read before a barrier, after another block wrote it";
  trace.read_after = barriers_;
  return "";
}

std::string_view Storage::write(int64_t element, int block, int64_t moment, const kernel::Number& value) {
  if (traces_.empty()) traces_.resize(elements_);
  Trace& trace = traces_[element];
  if (trace.copies > 0) return "is written while an asynchronous copy to it is under way";
  if (is_own() && trace.read_after == barriers_) return "is written before a barrier, after it was read";
  const bool fresh = trace.written_after == barriers_ && trace.writer != -1;
  if (fresh && trace.writer == kCombined) return "is written, but other stores combine with it";
  const bool differs = fresh && !same_number(dtype(), get(element), value);
  if (differs && trace.writer != block) return "gets different values from two blocks";
  if (differs && trace.moment == moment) return "gets different values from one store";
  set(element, value);
  trace.writer = block;
  trace.written_after = barriers_;
  trace.moment = moment;
  return "";
}

std::string_view Storage::combine(int64_t element, int block, ReduceOp reduce, const kernel::Number& value,
                                  bool rounds) {
  if (traces_.empty()) traces_.resize(elements_);
  Trace& trace = traces_[element];
  if (trace.copies > 0) return "is written while an asynchronous copy to it is under way";
  const bool fresh = trace.written_after == barriers_ && trace.writer != -1;
  if (fresh && trace.writer != kCombined && trace.writer != block)
    return "is combined with what another block stores there";
  kernel::Number sum = kernel::fold(reduce, dtype(), get(element), value);
  if (kernel::is_real(dtype()) && rounds) sum.real = kernel::round_to(dtype(), sum.real);
  if (!kernel::is_real(dtype())) sum.whole = kernel::wrap_to(dtype(), sum.whole);
  set(element, sum);
  // After its own store the block alone may combine, so that the store is still the last writer.
  if (!fresh) trace.writer = kCombined;
  trace.written_after = barriers_;
  return "";
}

std::string_view Storage::take_turn(int64_t element, int64_t iteration, int64_t first) {
  if (traces_.empty()) traces_.resize(elements_);
  int64_t& last = traces_[element].iteration;
  const bool meets = iteration != 0 && last >= first && last != iteration;
  last = iteration;
  return meets ? "is stored to in order by two iterations that threads share" : "";
}

std::string_view Storage::begin_copy(int64_t element) {
  if (traces_.empty()) traces_.resize(elements_);
  Trace& trace = traces_[element];
  if (trace.read_after == barriers_) return "is written before a barrier, after it was read";
  if (trace.copies > 0) return "is written while an asynchronous copy to it is under way";
  set(element, unwritten(dtype()));
  trace.copies = 1;
  return "";
}

void Storage::end_copy(int64_t element, const kernel::Number& value) {
  set(element, value);
  traces_[element].copies = 0;
}

}  // namespace kw::tile
