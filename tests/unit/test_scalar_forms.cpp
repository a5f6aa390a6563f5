// Formulas of the operators' rows, with a node's operands in place.
#include <gtest/gtest.h>

#include <string>

#include "ir/text.hpp"
#include "kernel/text.hpp"
#include "plan/scalar_forms.hpp"

namespace kw::plan {
namespace {

// One element of the call's result, over x, y (f32), i, j (i64), b and d (b1).
std::string element(const std::string& call, const std::string& type) {
  Graph graph = parse_graph(
      "graph Formula {\n  input %x : f32[4] user args.0\n  input %y : f32[4] user args.1\n"
      "  input %i : i64[4] user args.2\n  input %j : i64[4] user args.3\n"
      "  input %b : b1[4] user args.4\n  input %d : b1[4] user args.5\n  %r = aten." +
      call + " : " + type + "[4]\n}\n");
  GroupKernel kernel;
  GroupBuilder build(kernel);
  std::map<ValueId, ExprId> operands;
  for (const GraphInput& input : graph.inputs) {
    const int buffer = build.buffer(graph.values[input.value].name, graph.type(input.value).dtype, {4},
                                    kernel::BufferRole::kInput);
    operands[input.value] = build.load(element_at(buffer, 0), {});
  }
  const DType dtype = graph.type(graph.nodes[0].results[0]).dtype;
  const int out = build.buffer("out", dtype, {4}, kernel::BufferRole::kOutput);
  build.store(element_at(out, 0), element_by_form({build, graph, graph.nodes[0], operands, {}, dtype}));
  const std::string text = print_kernel(kernel), mark = "out[0] = ";
  const size_t begin = text.find(mark) + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(ScalarForms, ArgumentsThatAreMissingHaveADefault) {
  EXPECT_EQ(element("add.Tensor(self=%x, other=%y)", "f32"), "x[0] + y[0]");
  EXPECT_EQ(element("add.Tensor(self=%x, other=%y, alpha=2)", "f32"), "x[0] + y[0] * 2.0");
  EXPECT_EQ(element("hardtanh.default(self=%x, max_val=0.5)", "f32"), "minimum(maximum(x[0], -1.0), 0.5)");
}

TEST(ScalarForms, OperandsComeInTheResultsTypeOrInTheirCommonOne) {
  EXPECT_EQ(element("add.Tensor(self=%x, other=%i)", "f32"), "x[0] + f32(i[0])");
  EXPECT_EQ(element("lt.Tensor(self=%i, other=%x)", "b1"), "f32(i[0]) < x[0]");
  EXPECT_EQ(element("lt.Scalar(self=%i, other=2.5)", "b1"), "f32(i[0]) < 2.5");
  EXPECT_EQ(element("logical_and.default(self=%b, other=%i)", "b1"), "b[0] and i[0] != 0:i64");
  EXPECT_EQ(element("where.self(condition=%b, self=%x, other=%i)", "f32"), "select(b[0], x[0], f32(i[0]))");
}

TEST(ScalarForms, TruthValuesAndIntegersHaveTheirOwnArithmetic) {
  EXPECT_EQ(element("add.Tensor(self=%b, other=%d)", "b1"), "b[0] or d[0]");
  EXPECT_EQ(element("bitwise_not.default(self=%b)", "b1"), "not b[0]");
  EXPECT_EQ(element("bitwise_not.default(self=%i)", "i64"), "bit_not(i[0])");
  EXPECT_EQ(element("floor.default(self=%i)", "i64"), "i[0]");
  EXPECT_EQ(element("nan_to_num.default(self=%i)", "i64"), "i[0]");
  EXPECT_EQ(element("div.Tensor_mode(self=%i, other=%j, rounding_mode=\"trunc\")", "i64"), "trunc_div(i[0], j[0])");
  EXPECT_EQ(element("mul.Tensor(self=%i, other=9007199254740993)", "i64"), "i[0] * 9007199254740993:i64");
}

TEST(ScalarForms, WhatNumbersDecideIsDecidedAtOnce) {
  EXPECT_EQ(element("clamp.default(self=%x, max=1.0)", "f32"), "minimum(x[0], 1.0)");
  EXPECT_EQ(element("smooth_l1_loss.default(self=%x, target=%y, beta=0.0)", "f32"), "abs(x[0] - y[0])");
  EXPECT_EQ(element("kl_div.default(self=%x, target=%y, log_target=true)", "f32"), "exp(y[0]) * (y[0] - x[0])");
  EXPECT_EQ(element("celu.default(self=%x, alpha=4.0)", "f32"), "select(x[0] > 0.0, x[0], expm1(x[0] * 0.25) * 4.0)");
}

TEST(ScalarForms, PowersOfNumbersAreProductsAndRoots) {
  EXPECT_EQ(element("pow.Tensor_Scalar(self=%x, exponent=2)", "f32"), "x[0] * x[0]");
  EXPECT_EQ(element("pow.Tensor_Scalar(self=%x, exponent=-0.5)", "f32"), "rsqrt(x[0])");
  EXPECT_EQ(element("pow.Tensor_Scalar(self=%x, exponent=2.5)", "f32"), "pow(x[0], 2.5)");
  EXPECT_EQ(element("pow.Scalar(self=2, exponent=%x)", "f32"), "exp2(x[0])");
}

TEST(ScalarForms, AnOperatorsFormulaIsAFunctionInAnothers) {
  const std::string quotient = element("floor_divide.default(self=%x, other=%y)", "f32");
  EXPECT_EQ(element("div.Tensor_mode(self=%x, other=%y, rounding_mode=\"floor\")", "f32"), quotient);
  EXPECT_EQ(element("kl_div.default(self=%x, target=%y)", "f32"),
            "select(is_nan(y[0]), y[0], select(y[0] == 0.0, 0.0, y[0] * log(y[0]))) - y[0] * x[0]");
}

}  // namespace
}  // namespace kw::plan
