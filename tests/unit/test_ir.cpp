#include <gtest/gtest.h>

#include "ir/graph.hpp"

using namespace kw;

TEST(TensorType, ContiguityIgnoresAxesOfSizeOne) {
  TensorType type{DType::f32, {4, 1, 3}, {3, 77, 1}};
  EXPECT_TRUE(type.is_contiguous());
  type.strides = {1, 12, 4};
  EXPECT_FALSE(type.is_contiguous());
  EXPECT_TRUE(type.is_dense());
  type.strides = {0, 12, 1};   // expanded
  EXPECT_FALSE(type.is_dense());
}

TEST(TensorType, EmptyAxisCountsAsOneInStrides) {
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (Shape{3, 3, 1}));
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < 14; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("f31"), std::nullopt);
  EXPECT_EQ(accumulator_of(DType::bf16), DType::f32);
  EXPECT_EQ(accumulator_of(DType::b1), DType::i64);
  EXPECT_EQ(accumulator_of(DType::f64), DType::f64);
}

TEST(Node, ReadsArgumentsWithTheirDefaults) {
  Node node{"aten.sum.dim_IntList", {{"self", ValueRef{3}}, {"dim", int64_t{1}}, {"keepdim", true}}, {4}, ""};
  EXPECT_EQ(node.value("self"), 3);
  EXPECT_EQ(node.value("other"), kNoValue);
  EXPECT_EQ(node.integers("dim"), IntList{1});
  EXPECT_TRUE(node.boolean("keepdim", false));
  EXPECT_EQ(node.number("alpha", 1.5), 1.5);
}
