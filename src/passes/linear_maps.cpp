#include "passes/linear_maps.hpp"

#include "ir/op_registry.hpp"

namespace kw {

std::optional<LinearMap> linear_map_of(const Graph& graph, const Node& node) {
  if (!node.op.starts_with("aten.") || node.results.size() != 1 || node.results[0] == kNoValue) return std::nullopt;
  const std::string_view name = base_name(node.op);
  LinearMap map;
  if (name == "linear") {
    map = {node.value("input"), node.value("weight"), node.value("bias")};
  } else if (name == "mm" || name == "matmul") {
    map = {node.value("self"), node.value(name == "mm" ? "mat2" : "other")};
    map.outputs = 1;
  } else if (name == "addmm") {
    map = {node.value("mat1"),        node.value("mat2"),       node.value("self"),
           node.number("alpha", 1.0), node.number("beta", 1.0), 1};
  } else {
    return std::nullopt;
  }
  if (map.left == kNoValue || map.right == kNoValue || map.beta == 0.0) return std::nullopt;
  const TensorType &left = graph.type(map.left), &right = graph.type(map.right);
  const bool wide = left.dtype == DType::f32 || left.dtype == DType::f64;
  return right.rank() == 2 && left.rank() >= 2 && wide && left.dtype == right.dtype ? std::optional(map) : std::nullopt;
}

}  // namespace kw
