#include <gtest/gtest.h>

#include <cmath>

#include "emit/kernel_names.hpp"
#include "emit/kernel_text.hpp"
#include "support/error.hpp"

using namespace kw;
using namespace kw::kernel_ir;

namespace {

constexpr const char* kSoftmax = R"(kernel softmax_kernel {
  doc "Softmax over each \"row\"."
  launch warps 8 stages 3
  loops along 1 columns 64
  buffer x : f16[16000] input
  buffer out : f32[16000] output unaligned
  axis row = 16 parallel block 1
  axis column = 1000 reduce block 256 looped vector
  %x = load x[1000*row + column] if 0 <= row - 1 < 8 and -2 <= 3*(column // 8 % 4) < 9 else -inf : f16
  %1 = cast(%x) : f32
  %row_max = reduce max(%1) : f32
  %3 = sub(%1, %row_max) : f32
  %value = exp(%3) : f32
  %row_sum = reduce max_sum_exp.1(%value) : f32
  %6 = constant 1e-06 : f32
  %7 = div(%value, %row_sum) : f32
  %8 = index 7 : i64
  %9 = constant -3 : i64
  %10 = constant true : b1
  store %7 to out[1000*row - column + 999]
  body {
    init %row_max
    loop {
      let %x
      accumulate %row_max
    }
    finish %row_max
    store 0
  }
}
)";

std::string wrong(const std::string& line) {
  return "kernel k {\n  buffer x : f32[4] input\n  axis row = 4 parallel block 1\n  " + line + "\n}";
}

}  // namespace

TEST(KernelText, PrintsWhatItParsed) { EXPECT_EQ(print(parse_kernel(kSoftmax)), kSoftmax); }

TEST(KernelText, ParsesEveryPart) {
  const Kernel kernel = parse_kernel(kSoftmax);
  EXPECT_EQ(kernel.doc, "Softmax over each \"row\".");
  EXPECT_EQ(kernel.num_warps, 8);
  EXPECT_EQ(kernel.num_stages, 3);
  EXPECT_FALSE(kernel.buffers[1].aligned);
  EXPECT_TRUE(kernel.axes[1].looped && kernel.axes[1].vector && kernel.axes[1].kind == AxisKind::kReduce);
  const Access& access = kernel.exprs[0].access;
  EXPECT_EQ(access.otherwise, -INFINITY);
  ASSERT_EQ(access.guards.size(), 2u);
  EXPECT_EQ(access.guards[0].index.constant, -1);
  EXPECT_EQ(access.guards[1].lower, -2);
  EXPECT_EQ(access.guards[1].index.terms[0], (IndexTerm{1, 3, 8, 4}));
  EXPECT_EQ(kernel.exprs[5].component, 1);
  EXPECT_EQ(kernel.exprs[9].integer, -3);
  EXPECT_EQ(kernel.stores[0].access.index.terms[1].coefficient, -1);
  EXPECT_EQ(kernel.body[1].body[0].kind, StmtKind::kLet);
}

TEST(KernelText, NamesThatAreNotUniqueSurvive) {
  Kernel kernel = parse_kernel(
      "kernel k { buffer x : f32[4] input axis row = 4 parallel block 1 %a = load x[row] : f32 %1 = exp(%a) : f32 "
      "named a }");
  ASSERT_EQ(kernel.exprs.size(), 2u);
  EXPECT_EQ(kernel.exprs[0].name, "a");
  EXPECT_EQ(kernel.exprs[1].name, "a");
  EXPECT_EQ(print(parse_kernel(print(kernel))), print(kernel));
}

TEST(KernelText, ScansSurvive) {
  const std::string text = R"(kernel k {
  launch warps 4 stages 1
  buffer x : f32[40] input
  buffer out : i32[40] output
  axis row = 4 parallel block 1
  axis column = 10 scan block 8 looped reversed
  %x = load x[10*row - column + 9] : f32
  %position = index column : i32
  %2 = scan max.1(%x, %position) : i32
  store %2 to out[10*row - column + 9]
  body {
    init %2
    loop {
      let %x
      scan %2
      store 0
    }
  }
}
)";
  const Kernel kernel = parse_kernel(text);
  EXPECT_EQ(kernel.axes[1].kind, AxisKind::kScan);
  EXPECT_TRUE(kernel.axes[1].reversed);
  EXPECT_EQ(kernel.exprs[2].kind, ExprKind::kScan);
  EXPECT_EQ(kernel.exprs[2].component, 1);
  EXPECT_EQ(print(kernel), text);
}

TEST(KernelText, SaysWhichLineIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"%a = load y[row] : f32", "line 4: no buffer named 'y'"},
      {"%a = load x[column] : f32", "line 4: no axis named 'column'"},
      {"%a = load x[row] : f33", "line 4: unknown dtype 'f33'"},
      {"%a = frobnicate() : f32", "line 4: unknown operation 'frobnicate'"},
      {"%a = exp(%b) : f32", "line 4: no expression named 'b'"},
      {"%a = constant 1e : f32", "line 4: '1e' is not a number"},
      {"axis row = 2 parallel block 1", "line 4: two axes named row"},
      {"body { store 0 }", "line 4: no such store"},
      {"doc \"no end", "line 5: the string has no end"},
  };
  for (const auto& [line, message] : cases) {
    try {
      parse_kernel(wrong(line));
      FAIL() << line;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
    }
  }
}
