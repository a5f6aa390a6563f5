// The table of operators agrees with itself and with the tables of lowerings.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "ir/op_rows.hpp"
#include "kernel/operations.hpp"
#include "plan/estimate.hpp"
#include "plan/op_table.hpp"
#include "plan/scalar_ops.hpp"

namespace kw {
namespace {

// An element of these is an element of an operand, or is interpolated from a few: plan/pull.hpp has which.
const std::set<std::string_view> kByAccess = {"cat",
                                              "concat",
                                              "stack",
                                              "pad",
                                              "constant_pad_nd",
                                              "reflection_pad1d",
                                              "reflection_pad2d",
                                              "reflection_pad3d",
                                              "replication_pad1d",
                                              "replication_pad2d",
                                              "replication_pad3d",
                                              "_pad_circular",
                                              "gather",
                                              "index",
                                              "index_select",
                                              "_unsafe_index",
                                              "embedding",
                                              "flip",
                                              "roll",
                                              "repeat",
                                              "diag_embed",
                                              "select_scatter",
                                              "slice_scatter",
                                              "im2col",
                                              "upsample_nearest1d",
                                              "upsample_nearest2d",
                                              "upsample_nearest3d",
                                              "_upsample_nearest_exact1d",
                                              "_upsample_nearest_exact2d",
                                              "_upsample_nearest_exact3d",
                                              "upsample_linear1d",
                                              "upsample_bilinear2d",
                                              "upsample_trilinear3d",
                                              "upsample_bicubic2d"};

bool makes_elements(const OpInfo& row) {
  return row.lowering == Lowering::kElements || row.lowering == Lowering::kFoldOrElements;
}

int weight_of_node(std::string_view op) {
  Node node;
  node.op = op;
  return plan::arithmetic_weight(node);
}

TEST(OpRows, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const OpInfo& row : op_rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(OpRows, WhatIsMadeElementByElementHasALowering) {
  std::set<std::string_view> by_access;
  for (const OpInfo& row : op_rows()) {
    if (!makes_elements(row)) continue;
    const std::string_view name = base_name(row.name);
    if (kByAccess.contains(name)) by_access.insert(name);
    EXPECT_NE(plan::find_scalar_lowering(name) != nullptr, kByAccess.contains(name)) << row.name;
  }
  EXPECT_EQ(by_access, kByAccess);
}

TEST(OpRows, EveryScalarLoweringHasARow) {
  for (const std::string_view name : plan::names_of_scalar_lowerings()) {
    const auto has_row = [&](const OpInfo& row) {
      return base_name(row.name) == name && (makes_elements(row) || row.lowering == Lowering::kAlias);
    };
    EXPECT_TRUE(std::any_of(op_rows().begin(), op_rows().end(), has_row)) << name;
  }
}

TEST(OpRows, OverloadsOfMaxAreLoweredApart) {
  EXPECT_EQ(op_info("aten.max.other").lowering, Lowering::kElements);
  EXPECT_EQ(op_info("aten.max.dim").lowering, Lowering::kFold);
  EXPECT_EQ(op_info("aten.min.default").lowering, Lowering::kFold);
}

TEST(OpRows, NothingIsLoweredOfAnUnknownOperator) {
  EXPECT_EQ(op_info("mine.add.Tensor").lowering, Lowering::kLibrary);
  EXPECT_EQ(op_info("aten.mm.default").lowering, Lowering::kLibrary);
}

TEST(OpRows, EightBitFloatsAreCastAndMoved) {
  for (const char* op : {"aten._to_copy.default", "aten.view.default", "aten.cat.default", "aten.flip.default"})
    EXPECT_TRUE(op_info(op).takes_float8) << op;
  for (const char* op : {"aten.add.Tensor", "aten.relu.default", "aten.sum.default", "aten.permute.default"})
    EXPECT_FALSE(op_info(op).takes_float8) << op;
}

// Fusion weighs work against memory by these: schedules change with them.
TEST(OpRows, AnElementsWeightIsInAdditions) {
  EXPECT_EQ(weight_of_node("aten.clone.default"), 0);
  EXPECT_EQ(weight_of_node("aten.add.Tensor"), 1);
  EXPECT_EQ(weight_of_node("aten.div.Tensor"), 2);
  EXPECT_EQ(weight_of_node("aten.exp.default"), 4);
  EXPECT_EQ(weight_of_node("aten.gelu.default"), 10);
  EXPECT_EQ(weight_of_node("aten.sin.default"), 20);
  EXPECT_EQ(weight_of_node("aten.upsample_bicubic2d.vec"), 48);
  EXPECT_EQ(weight_of_node("aten.binary_cross_entropy.default"), 12);
  EXPECT_EQ(weight_of_node("aten.sum.dim_IntList"), 4);
  EXPECT_EQ(weight_of_node("aten.max.other"), 4);
  EXPECT_EQ(weight_of_node("aten.mm.default"), 4);
}

TEST(ScalarRows, CostsAreInInstructionsAndAdditions) {
  using kernel::ScalarOp;
  const struct {
    ScalarOp op;
    int vector_instructions, additions;
  } expected[] = {
      {ScalarOp::kAdd, 1, 1},       {ScalarOp::kDiv, 4, 4},   {ScalarOp::kExp, 20, 10}, {ScalarOp::kTanh, 20, 24},
      {ScalarOp::kErfc, 100, 24},   {ScalarOp::kSin, 40, 24}, {ScalarOp::kTan, 100, 1}, {ScalarOp::kFmod, 100, 20},
      {ScalarOp::kLogAddExp, 1, 1}, {ScalarOp::kPow, 40, 24}, {ScalarOp::kEqual, 1, 1}, {ScalarOp::kCast, 1, 1},
  };
  for (const auto& row : expected) {
    EXPECT_EQ(kernel::vector_instructions_of(row.op), row.vector_instructions) << kernel::name_of(row.op);
    EXPECT_EQ(kernel::additions_of(row.op), row.additions) << kernel::name_of(row.op);
    EXPECT_EQ(weight_of(row.op), row.additions) << kernel::name_of(row.op);
  }
}

}  // namespace
}  // namespace kw
