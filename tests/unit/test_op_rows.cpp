// The rows of operators hold together.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "ir/op_rows.hpp"
#include "ir/spoken_name.hpp"
#include "kernel/operations.hpp"
#include "plan/estimate.hpp"
#include "plan/op_table.hpp"

namespace kw {
namespace {

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

// An element is made by a formula, or it is an operand's, or is interpolated from a few.
TEST(OpRows, WhatIsMadeElementByElementHasAFormulaOrMovesElements) {
  for (const OpInfo& row : op_rows())
    EXPECT_EQ(row.form.empty(), !makes_elements(row) || moves_elements(row.rule)) << row.name;
}

TEST(OpRows, WhatThePlannerLowersHasARule) {
  for (const OpInfo& row : op_rows())
    EXPECT_TRUE(row.rule != OpRule::kNoRule || row.lowering == Lowering::kLibrary) << row.name;
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

std::string_view yielded_by(std::string_view op) { return op_info(op).yields; }

TEST(OpRows, ValuesAndKernelsAreCalledWhatPeopleSay) {
  EXPECT_EQ(spoken_name("native_dropout"), "dropout");
  EXPECT_EQ(spoken_name("_native_batch_norm_legit_functional"), "batch_norm");
  EXPECT_EQ(spoken_name("_softmax"), "softmax");
  EXPECT_EQ(spoken_name("kw.rnn_steps"), "rnn_steps");
  EXPECT_EQ(spoken_name("add"), "add");
  EXPECT_EQ(yielded_by("aten.gelu.default"), "activated");
  EXPECT_EQ(yielded_by("aten._softmax.default"), "share");
  EXPECT_EQ(yielded_by("aten.native_layer_norm.default"), "normalised");
  EXPECT_EQ(yielded_by("aten.add.Tensor"), "");
  for (const OpInfo& row : op_rows()) EXPECT_FALSE(row.spoken.starts_with('_')) << row.name;
}

TEST(OpRows, EightBitFloatsAreCastAndMoved) {
  for (const char* op : {"aten._to_copy.default", "aten.view.default", "aten.cat.default", "aten.flip.default"})
    EXPECT_TRUE(op_info(op).takes_float8()) << op;
  for (const char* op : {"aten.add.Tensor", "aten.relu.default", "aten.sum.default", "aten.permute.default"})
    EXPECT_FALSE(op_info(op).takes_float8()) << op;
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
