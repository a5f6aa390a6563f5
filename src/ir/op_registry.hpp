// What is known of each operator: its class, whether it is pure, how much work a node of it does. One table, in
// op_registry.cpp.
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
  kRandom,   // draws from the generator: order matters, never shared, never removed
  kFactory,  // no tensor operand decides its content: full, arange, zeros_like …
  kLoss,
  kOther,
};

struct OpInfo {
  std::string_view name;  // "add", or with its overload where overloads differ: "max.dim"
  OpClass op_class = OpClass::kOther;
  bool pure = true;              // may be shared, removed when unused and moved
  double flops_per_element = 1;  // of the result for pointwise operators, of the operand for the others without a
                                 // formula
};

// "aten.add.Tensor" → the row of "add.Tensor" or of "add". An unknown operator is kOther and impure.
const OpInfo& op_info(std::string_view op);
OpClass class_of(std::string_view op);
std::string_view name_of(OpClass op_class);  // "pointwise"

// "aten.add.Tensor" → "add". The namespace is dropped when it is aten, kept otherwise ("torchvision.nms").
std::string_view base_name(std::string_view op);

// May be merged with an equal node, removed when unused, and moved. Dropout outside training draws nothing and is pure.
bool is_pure(const Node& node);

double flops(const Graph& graph, const Node& node);        // multiply and add count as two
double bytes_moved(const Graph& graph, const Node& node);  // operands read once plus results written once; 0 for views

}  // namespace kw
