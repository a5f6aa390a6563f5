// The names of operations in the text form, one table for printing and parsing.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

inline constexpr std::pair<BufferRole, std::string_view> kBufferRoleNames[] = {
    {BufferRole::kInput, "input"},
    {BufferRole::kOutput, "output"},
    {BufferRole::kScratch, "scratch"},
};

inline constexpr std::pair<StmtKind, std::string_view> kStmtKindNames[] = {
    {StmtKind::kLet, "let"},   {StmtKind::kStore, "store"},           {StmtKind::kLoop, "loop"},
    {StmtKind::kInit, "init"}, {StmtKind::kAccumulate, "accumulate"}, {StmtKind::kFinish, "finish"},
    {StmtKind::kScan, "scan"},
};

inline constexpr std::pair<AxisKind, std::string_view> kAxisKindNames[] = {
    {AxisKind::kParallel, "parallel"},
    {AxisKind::kReduce, "reduce"},
    {AxisKind::kScan, "scan"},
};

// Of LoopChoices, in the text form and in schedules.
inline constexpr std::pair<int64_t LoopChoices::*, std::string_view> kLoopChoiceNames[] = {
    {&LoopChoices::along, "along"}, {&LoopChoices::columns, "columns"}, {&LoopChoices::tile, "tile"},
    {&LoopChoices::rows, "rows"},   {&LoopChoices::piece, "piece"},     {&LoopChoices::share, "share"},
};

template <typename Enum, size_t count>
std::string_view find_name(const std::pair<Enum, std::string_view> (&table)[count], Enum value) {
  for (const auto& [key, name] : table)
    if (key == value) return name;
  return "?";
}

template <typename Enum, size_t count>
std::optional<Enum> find_value(const std::pair<Enum, std::string_view> (&table)[count], std::string_view name) {
  for (const auto& [key, text] : table)
    if (text == name) return key;
  return std::nullopt;
}

}  // namespace kw::kernel_ir
