// The graph's text form: complete, for people, golden tests and round trips. Grammar by example:
//   graph TransformerMlp training on cuda {
//     input %x : f32[16, 64] user args.0 access "x" grad
//     input %scale : f32[2] strides [2] offset 4 on cpu constant "scale" data "[1.0, 2.0]"
//     %value, _ = aten.op.overload(self=%x, list=(%x, None), dims=[0, 1], dtype=f16, device=device:cpu, mode="mean") :
//     f32[16, 64]  # model.py:17 return %value, buffer "bn.running_mean" %x, input "args.0" %x result {"output":0} call
//     […] source {…} group %value
//   }
// `training` is `eval` for the other mode; `on` is left out for the CPU and for values on the graph's own device (that
// of its first value). Strides and offset are left out where they are those of a fresh row-major tensor. A node without
// results stands in a group as @<index>.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace kw {

std::string print(const Graph& graph);
std::string print(const Graph& graph, const Node& node);  // one line, without indentation
std::string print(const TensorType& type);                // "f32[16, 64] strides [1, 16]"

// print()'s inverse: values are numbered in the order in which they appear. Throws kUser, where = "line 7".
Graph parse_graph(std::string_view text);

}  // namespace kw
