#include <cmath>
#include <gtest/gtest.h>

#include "ir/infer.hpp"
#include "ir/numbers.hpp"
#include "ir/promote.hpp"
#include "ir/text.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"

using namespace kw;

namespace {

// The type that one line's first result must have, given these inputs.
std::string inferred(const std::string& line) {
  const std::string head = R"(graph Infer {
  input %x : f32[4, 6] user args.0
  input %h : f16[4, 6] user args.1
  input %i : i64[6] user args.2
  input %b : b1[4, 1] user args.3
  input %s : f64[] user args.4
  input %c : f32[2, 3, 8, 8] user args.5
  input %k : f32[5, 3, 3, 3] parameter "k"
  input %t : f32[6, 4] strides [1, 6] user args.6
  %r = )";
  const Graph graph = parse_graph(head + line + " : f32[]\n}\n");
  const Inference found = infer(graph, graph.nodes.back());
  if (!found.problem.empty()) return found.problem;
  if (found.results.empty() || !found.results[0].shape) return "unknown";
  const auto& [shape, dtype] = found.results[0];
  return (dtype ? std::string(name_of(*dtype)) : "?") +
         print(TensorType{DType::f32, *shape, contiguous_strides(*shape)}).substr(3);
}

}  // namespace

TEST(Infer, FollowsPromotionAndBroadcasting) {
  EXPECT_EQ(inferred("aten.add.Tensor(self=%x, other=%i)"), "f32[4, 6]");
  EXPECT_EQ(inferred("aten.add.Tensor(self=%h, other=%x)"), "f32[4, 6]");
  EXPECT_EQ(inferred("aten.add.Tensor(self=%h, other=%s)"), "f16[4, 6]");  // 0-d of the same category does not decide
  EXPECT_EQ(inferred("aten.add.Tensor(self=%i, other=%s)"), "f64[6]");     // of a higher one it does
  EXPECT_EQ(inferred("aten.mul.Tensor(self=%b, other=2)"), "i64[4, 1]");
  EXPECT_EQ(inferred("aten.mul.Tensor(self=%i, other=2.0)"), "?[6]");  // the default dtype decides
  EXPECT_EQ(inferred("aten.lt.Tensor(self=%b, other=%i)"), "b1[4, 6]");
  EXPECT_EQ(inferred("aten.where.self(condition=%b, self=%h, other=%i)"), "f16[4, 6]");
  EXPECT_EQ(inferred("aten.add.Tensor(self=%x, other=%k)"), "[4, 6] does not broadcast with [5, 3, 3, 3]");
}

TEST(Infer, KnowsReductionsAndProducts) {
  EXPECT_EQ(inferred("aten.sum.dim_IntList(self=%b, dim=[-1], keepdim=true)"), "i64[4, 1]");
  EXPECT_EQ(inferred("aten.mean.dim(self=%x, dim=None)"), "f32[]");
  EXPECT_EQ(inferred("aten.amax.default(self=%x, dim=[0])"), "f32[6]");
  EXPECT_EQ(inferred("aten.argmax.default(self=%x, dim=1)"), "i64[4]");
  EXPECT_EQ(inferred("aten.mm.default(self=%x, mat2=%t)"), "f32[4, 4]");
  EXPECT_EQ(inferred("aten.mm.default(self=%x, mat2=%x)"), "[4, 6] cannot be multiplied by [4, 6]");
  EXPECT_EQ(inferred("aten.conv2d.default(input=%c, weight=%k, stride=[2, 2], padding=[1, 1])"), "f32[2, 5, 4, 4]");
  EXPECT_EQ(inferred("aten.conv_transpose2d.input(input=%c, weight=%k)"),
            "[2, 3, 8, 8] has the wrong number of channels for [5, 3, 3, 3]");
  EXPECT_EQ(inferred("aten.cat.default(tensors=(%x, %x), dim=-1)"), "f32[4, 12]");
  EXPECT_EQ(inferred("mine.op.default(self=%x)"), "unknown");
}

TEST(Infer, ViewsFollowPyTorchsStrides) {
  const TensorType transposed{DType::f32, {6, 4}, {1, 6}, 0, "cpu"};
  EXPECT_EQ(view_strides(transposed, {24}), std::nullopt);
  EXPECT_EQ(view_strides(transposed, {2, 3, 4}), (Shape{3, 1, 6}));
  EXPECT_EQ(view_strides(transposed, {6, 1, 4}), (Shape{1, 24, 6}));
  EXPECT_EQ(inferred("aten.slice.Tensor(self=%x, dim=1, start=-4, step=3)"), "f32[4, 2]");
  EXPECT_EQ(inferred("aten.expand.default(self=%b, size=[2, -1, 5])"), "b1[2, 4, 5]");
  EXPECT_EQ(inferred("aten.diagonal.default(self=%x, offset=-2)"), "f32[2]");
}

TEST(Numbers, RoundAsTensorsDo) {
  EXPECT_EQ(number_in(DType::f16, Argument(65519.0)), Argument(65504.0));
  EXPECT_EQ(number_in(DType::f16, Argument(65520.0)), Argument(HUGE_VAL));
  EXPECT_EQ(number_in(DType::f16, Argument(1e-8)), Argument(0.0));
  EXPECT_EQ(number_in(DType::f16, Argument(0x1.8p-24)), Argument(0x1p-23));  // ties to even among subnormals
  EXPECT_EQ(number_in(DType::bf16, Argument(1.00390625)), Argument(1.0));
  EXPECT_EQ(number_in(DType::bf16, Argument(1.01171875)), Argument(1.015625));
  EXPECT_EQ(number_in(DType::i64, Argument(-2.7)), Argument(int64_t{-2}));
  EXPECT_EQ(number_in(DType::u8, Argument(int64_t{256})), std::nullopt);
  EXPECT_EQ(number_in(DType::b1, Argument(0.5)), Argument(true));
  EXPECT_FALSE(holds_exactly(DType::bf16, Argument(0.1)));
  EXPECT_TRUE(holds_exactly(DType::bf16, Argument(-2.5)));
}

TEST(Verifier, HoldsTypesToTheirOperators) {
  const Graph wrong_shape = parse_graph(
      "graph A {\n  input %x : f32[2, 3] user args.0\n  %y = aten.neg.default(self=%x) : f32[3, 2]  # m.py:3\n}\n");
  try {
    verify(wrong_shape, "pass layout");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.text().message,
              "the graph A is malformed after pass layout: %y = aten.neg.default (m.py:3): its result is f32[3, 2], "
              "its operands give f32[2, 3]");
  }
  EXPECT_THROW(
      verify(parse_graph(
                 "graph A {\n  input %x : i64[2] user args.0\n  %y = aten.eq.Scalar(self=%x, other=1) : i64[2]\n}\n"),
             "a test"),
      Error);
}
