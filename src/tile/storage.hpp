// A buffer's elements while the interpreter runs, and who touched them last: what finds missing barriers and waits, and
// blocks that write the same element.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernel/scalar_values.hpp"
#include "tile/program.hpp"

namespace kw::tile {

// The elements of the dtype that nobody has written yet: NaN, or the smallest whole number.
kernel::Number unwritten(DType dtype);

class Storage {
 public:
  // With sizes in `symbols`.
  Storage(const Buffer& buffer, const std::vector<int64_t>& symbols);

  const Buffer& buffer() const { return *buffer_; }
  DType dtype() const { return buffer_->dtype; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  // From the first to the last element by its strides; 0 where an extent is.
  int64_t elements() const { return elements_; }

  kernel::Numbers& numbers() { return numbers_; }
  void fill_unwritten();

  // Each returns what is wrong with the access, or nothing. `moment` counts stores and loads: points of one store that
  // write different values to one element are at fault, too.
  std::string_view read(int64_t element, int block, kernel::Number& value);
  std::string_view write(int64_t element, int block, int64_t moment, const kernel::Number& value);
  std::string_view combine(int64_t element, int block, ReduceOp reduce, const kernel::Number& value, bool rounds);
  // The element is stored to in order, in an iteration of a loop that threads share; iterations are numbered, those of
  // this loop from `first` on. 0: outside of such loops.
  std::string_view take_turn(int64_t element, int64_t iteration, int64_t first);
  // An asynchronous copy to the element begins, and ends.
  std::string_view begin_copy(int64_t element);
  void end_copy(int64_t element, const kernel::Number& value);

  // What was written before is seen by all the block (shared memory) or by all blocks.
  // Of the blocks of a row: by those that share one.
  void pass_barrier(bool of_rows = false) {
    ++barriers_;
    if (!of_rows) before_all_ = barriers_;
  }
  void set_rows(std::span<const int> row_of) { row_of_ = row_of; }

 private:
  kernel::Number get(int64_t element) const;
  void set(int64_t element, const kernel::Number& value);
  // Has a barrier of both blocks passed since?
  bool is_seen(int32_t written_after, int writer, int reader) const;
  bool is_own() const { return buffer_->space == Space::kShared; }

  struct Trace {
    int32_t writer = -1;         // the block that wrote it last; kCombined: several may have
    int32_t written_after = -1;  // barriers before that
    int32_t read_after = -1;
    int32_t copies = 0;  // under way
    int64_t moment = -1;
    int64_t iteration = 0;  // that stored last to it in order
  };
  static constexpr int32_t kCombined = -2;

  const Buffer* buffer_;
  std::vector<int64_t> shape_, strides_;
  int64_t elements_ = 0;
  kernel::Numbers numbers_;
  std::vector<Trace> traces_;              // [element]
  int32_t barriers_ = 0, before_all_ = 0;  // barriers, and those up to the last one of all blocks
  std::span<const int> row_of_;            // [block]; empty: all blocks meet
};

}  // namespace kw::tile
