// What is known of each operator: its class, whether it is pure, how much work a node of it does, what the planner can
// make of it. One table, in op_rows.cpp.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace kw {

enum class OpClass {
  kPointwise,      // one element out of the broadcast elements in; copies and dtype conversions too
  kReduction,      // folds axes: sum, mean, amax, argmax, var, norm, any, logsumexp …
  kNormalisation,  // softmax family, layer, group, batch, instance and rms norm
  kView,           // the result aliases the first operand
  kDataMovement,   // copies by index: cat, pad, gather, index, flip, roll, scatter …
  kContraction,    // mm, bmm, addmm, linear, matmul, einsum …
  kConvolution,
  kAttention,
  kRecurrent,
  kPooling,  // windows, and resampling
  kScan,     // cumsum, cumprod, cummax …
  kRandom,   // takes numbers from the generator: order matters, never shared, never removed
  kFactory,  // no tensor operand decides its content: full, arange, zeros_like …
  kLoss,
  kOther,
};

// What the planner can make of a node, where shapes, dtypes and arguments allow (plan/op_table.hpp).
enum class Lowering {
  kLibrary,         // always a library call
  kAlias,           // a view, or a copy where strides cannot say it
  kElements,        // computed element by element
  kFill,            // made of its arguments, without reading a tensor
  kFold,            // folds axes
  kFoldOrElements,  // the one or the other, as its arguments say
  kCumulative,      // walks an axis in order and keeps what it meets
  kSort,            // orders an axis
  kScatter,         // writes where indices say
};

struct OpInfo {
  std::string_view name;  // "add", or with its overload where overloads differ: "max.dim"
  OpClass op_class = OpClass::kOther;
  bool pure = true;              // may be shared, removed when unused and moved
  double flops_per_element = 1;  // of the result for pointwise operators, of the operand for the others without a
                                 // formula
  Lowering lowering = Lowering::kLibrary;
  int arithmetic_weight = 4;  // of one element relative to an addition; 4 for what is not computed element by element
  bool takes_float8 = false;  // 8-bit floats have no arithmetic in PyTorch: they are cast and moved
};

// "aten.add.Tensor" → the row of "add.Tensor" or of "add". An unknown operator is kOther and impure.
const OpInfo& op_info(std::string_view op);
OpClass class_of(std::string_view op);
std::string_view name_of(OpClass op_class);  // "pointwise"

// "aten.add.Tensor" → "add". The namespace is dropped when it is aten, kept otherwise ("torchvision.nms").
std::string_view base_name(std::string_view op);
std::string_view base_name(const Node& node);

// May be merged with an equal node, removed when unused, and moved. Dropout outside training takes none and is pure.
bool is_pure(const Node& node);

double flops(const Graph& graph, const Node& node);        // multiply and add count as two
double bytes_moved(const Graph& graph, const Node& node);  // operands read once plus results written once; 0 for views

}  // namespace kw
