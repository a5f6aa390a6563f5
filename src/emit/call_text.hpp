// How ModelNew's forward takes a call apart.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace kw {

// Its parameter list, the expression for each tensor of the call, what of the rest stands in the way, and how the
// call is handed on to the original.
struct CallText {
  std::string parameters;                      // "x, mask=None, *args, **kwargs"
  std::string passed_on;                       // "x, mask, *args, **kwargs"
  std::map<std::string, std::string> tensors;  // user input's path, "args.0" → "x"
  std::vector<std::string> obstacles;          // "mask is not None"
  std::set<std::string> names;                 // of all parameters
};

CallText call_text(const Graph& graph);

}  // namespace kw
