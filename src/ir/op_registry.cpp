#include "ir/op_registry.hpp"

#include <unordered_map>

#include "ir/op_rows.hpp"

namespace kw {
namespace {

std::string_view without_namespace(std::string_view op) { return op.starts_with("aten.") ? op.substr(5) : op; }

const std::unordered_map<std::string_view, const OpInfo*>& rows_by_name() {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OpInfo*> rows;
    for (const OpInfo& row : op_rows()) rows.emplace(row.name, &row);
    for (const auto& [synonym, name] : op_synonyms()) rows.emplace(synonym, rows.at(name));
    return rows;
  }();
  return by_name;
}

}  // namespace

std::string_view base_name(std::string_view op) {
  op = without_namespace(op);
  const size_t overload = op.rfind('.');
  return overload == std::string_view::npos ? op : op.substr(0, overload);
}

std::string_view base_name(const Node& node) { return base_name(std::string_view(node.op)); }

const OpInfo& op_info(std::string_view op) {
  static constexpr OpInfo kUnknown{.flags = kImpure};
  const auto& rows = rows_by_name();
  if (const auto row = rows.find(without_namespace(op)); row != rows.end()) return *row->second;
  const auto row = rows.find(base_name(op));
  return row == rows.end() ? kUnknown : *row->second;
}

OpClass class_of(std::string_view op) { return op_info(op).op_class; }

OpRule rule_of(const Node& node) { return op_info(node.op).rule; }

int spatial_axes(const OpInfo& info) {
  const size_t digit = info.name.find_first_of("123");
  return digit == std::string_view::npos || info.name.substr(digit + 1, 1) != "d" ? 0 : info.name[digit] - '0';
}

std::string_view name_of(OpClass op_class) {
  constexpr std::string_view names[] = {"pointwise",   "reduction",   "normalisation", "view",      "data movement",
                                        "contraction", "convolution", "attention",     "recurrent", "pooling",
                                        "scan",        "random",      "factory",       "loss",      "other"};
  return names[static_cast<size_t>(op_class)];
}

bool is_pure(const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.flags & kRandomInTraining) {
    const bool trains = node.find("train") ? node.boolean("train", true) : node.boolean("training", false);
    // With nothing to drop some return their operand. The others draw numbers all the same.
    return !trains || ((info.flags & kMayAlias) && node.number("p", 0.5) == 0.0);
  }
  // Attention and recurrent layers drop out inside.
  if (info.op_class == OpClass::kAttention) return node.number("dropout_p", 0.0) == 0.0;
  if (info.op_class == OpClass::kRecurrent) return node.number("dropout", 0.0) == 0.0 || !node.boolean("train", false);
  return info.pure();
}

}  // namespace kw
