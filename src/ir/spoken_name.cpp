#include "ir/spoken_name.hpp"

#include <set>
#include <unordered_map>

#include "ir/op_registry.hpp"

namespace kw {

namespace {

// Those whose name says more than people do. Underscores around a name go without a line here.
const std::unordered_map<std::string_view, std::string_view> kSpoken = {
    {"_native_batch_norm_legit", "batch_norm"},
    {"_native_batch_norm_legit_functional", "batch_norm"},
    {"_native_batch_norm_legit_no_training", "batch_norm"},
    {"native_batch_norm", "batch_norm"},
    {"native_layer_norm", "layer_norm"},
    {"native_group_norm", "group_norm"},
    {"_fused_rms_norm", "rms_norm"},
    {"linalg_vector_norm", "norm"},
    {"native_dropout", "dropout"},
    {"constant_pad_nd", "pad"},
    {"scaled_dot_product_attention", "attention"},
    {"_to_copy", "converted"},
    {"_unsafe_view", "view"},
    {"_unsafe_index", "index"},
    {"_prelu_kernel", "prelu"},
    {"kw.rnn_steps", "rnn_steps"},
    {"im2col", "unfold"},
    {"col2im", "fold"},
    {"max_pool2d_with_indices", "max_pool2d"},
    {"max_pool3d_with_indices", "max_pool3d"},
};

std::string unique_name(std::string name, std::set<std::string>& taken) {
  const std::string stem = name;
  for (int number = 1; !taken.insert(name).second; ++number) name = stem + "_" + std::to_string(number);
  return name;
}

}  // namespace

std::string spoken_name(std::string_view base) {
  if (const auto row = kSpoken.find(base); row != kSpoken.end()) return std::string(row->second);
  while (base.starts_with('_')) base.remove_prefix(1);
  while (base.ends_with('_')) base.remove_suffix(1);
  return std::string(base);
}

void speak_names(Graph& graph) {
  std::set<std::string> taken;
  for (const Value& value : graph.values) taken.insert(value.name);
  for (const Node& node : graph.nodes) {
    const std::string_view base = base_name(node.op);
    const std::string spoken = spoken_name(base);
    if (spoken == base || spoken.empty()) continue;
    for (const ValueId result : node.results) {
      if (result < 0) continue;
      std::string& name = graph.values[static_cast<size_t>(result)].name;
      if (!name.starts_with(base)) continue;
      std::string rest = name.substr(base.size());
      if (rest.ends_with("_out")) rest.resize(rest.size() - 4);  // of a schema's returns: running_mean_out
      name = unique_name(spoken + rest, taken);
    }
  }
}

}  // namespace kw
