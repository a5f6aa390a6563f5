// Sorts of rows: sort and topk, as scans that need their row whole. A topk stores the first places alone.
#pragma once

#include <optional>

#include "ir/graph.hpp"

namespace kw::plan {

struct SortSpec {
  ValueId operand = kNoValue;
  int64_t dim = 0;
  int64_t length = 0;  // of a row
  int64_t first = 0;   // places that are asked for; length: all
  bool descending = false;
  bool stable = false;  // equals were promised to keep their order; ours do anyway
  bool on_gpu = false;
};

// nullopt: the library's, as rows that a GPU's program cannot hold.
std::optional<SortSpec> sort_spec(const Graph& graph, const Node& node);

// On a GPU elements of 64 bits leave no room beside them for their places. On a CPU a topk's places are the library's:
// ours was no faster, and PyTorch's own choice among equals is kept.
bool can_tell_places(const Graph& graph, const SortSpec& spec);

}  // namespace kw::plan
