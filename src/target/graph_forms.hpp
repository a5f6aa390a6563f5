// In what form a target wants a graph: what its kernels, and PyTorch's beside them, do well. Passes and planner ask for
// these facts, and never for a target's name or for where its tensors lie. A new target starts with the defaults.
#pragma once

#include <cstdint>
#include <limits>

namespace kw {

// The sorts of rows (sort, topk) that a target's kernels may take. All others are the library's.
struct SortForms {
  static constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

  int64_t longest = kAnyLength;         // of the rows that are sorted
  int64_t longest_of_few = kAnyLength;  // of those whose largest are wanted, where these are
  int64_t few = 0;                      // no more than this
  bool places_of_wide = true;           // elements of 64 bits bring the places along where they stood
  bool places_of_largest = true;        // a topk tells its elements' places
  bool picks_one_by_one = false;        // a topk tells equal elements apart by their places
};

struct GraphForms {
  SortForms sorts;
  bool wide_heads_as_products = false;        // attention whose heads no kernel takes is two products and a softmax
  bool attention_shares_heads = false;        // attention reads keys and values once that several heads share
  bool convolutions_make_statistics = false;  // convolutions can fold their result's channels before they store it
  bool windows_fold_rows_first = false;       // what folds long rows element by element is faster than single windows
  bool patches_as_products = false;           // products are faster than the library's convolutions of the same patches
  bool draws_masks = false;                   // kernels draw the numbers of PyTorch's CUDA generator
};

}  // namespace kw
