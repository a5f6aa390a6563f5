// Sorts of rows: sort and topk, as scans that need their row whole. A topk stores the first places alone.
#pragma once

#include <optional>

#include "ir/graph.hpp"
#include "target/graph_forms.hpp"

namespace kw::plan {

struct SortSpec {
  ValueId operand = kNoValue;
  int64_t dim = 0;
  int64_t length = 0;  // of a row
  int64_t first = 0;   // places that are asked for; length: all
  bool descending = false;
  bool stable = false;  // equals were promised to keep their order; ours do anyway
};

// nullopt: no sort, or one that only the library can do.
std::optional<SortSpec> sort_spec(const Graph& graph, const Node& node);

// Do kernels take rows of this length?
bool takes_rows(const SortForms& forms, const SortSpec& spec);
// And can they say where each element stood?
bool tells_places(const SortForms& forms, const Graph& graph, const SortSpec& spec);

}  // namespace kw::plan
