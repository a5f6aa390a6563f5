#include <gtest/gtest.h>

#include "emit/kernel_ir.hpp"
#include "support/error.hpp"

using namespace kw;
using namespace kw::kernel_ir;

namespace {

// out[row, column] = exp(x − max over columns of x) / Σ exp(…)
Kernel softmax(bool looped) {
  Kernel kernel;
  kernel.name = "softmax_kernel";
  kernel.buffers = {{"x", DType::f32, 8 * 100, BufferRole::kInput, true},
                    {"out", DType::f32, 8 * 100, BufferRole::kOutput, true}};
  kernel.axes = {{"row", 8, AxisKind::kParallel, 1, false, false},
                 {"column", 100, AxisKind::kReduce, looped ? 32 : 128, looped, true}};
  const Index here{0, {{0, 100, 1, 0}, {1, 1, 1, 0}}};
  auto add = [&](Expr expr) {
    kernel.exprs.push_back(std::move(expr));
    return static_cast<ExprId>(kernel.exprs.size() - 1);
  };
  Expr load;
  load.kind = ExprKind::kLoad;
  load.access = {0, here, {}, 0.0};
  const ExprId x = add(load);
  Expr largest;
  largest.kind = ExprKind::kReduce;
  largest.reduce = ReduceOp::kMax;
  largest.operands = {x};
  const ExprId row_max = add(largest);
  Expr difference;
  difference.kind = ExprKind::kOp;
  difference.op = ScalarOp::kSub;
  difference.operands = {x, row_max};
  const ExprId shifted = add(difference);
  Expr exponential;
  exponential.kind = ExprKind::kOp;
  exponential.op = ScalarOp::kExp;
  exponential.operands = {shifted};
  const ExprId numerator = add(exponential);
  Expr total;
  total.kind = ExprKind::kReduce;
  total.reduce = ReduceOp::kSum;
  total.operands = {numerator};
  const ExprId denominator = add(total);
  Expr quotient;
  quotient.kind = ExprKind::kOp;
  quotient.op = ScalarOp::kDiv;
  quotient.operands = {numerator, denominator};
  kernel.stores = {{{1, here, {}, 0.0}, add(quotient)}};
  return kernel;
}

std::string shape_of(const Kernel& kernel, const std::vector<Stmt>& body) {
  std::string out;
  for (const Stmt& stmt : body) {
    switch (stmt.kind) {
      case StmtKind::kLet: out += "let " + kernel.exprs[stmt.expr].name + "; "; break;
      case StmtKind::kStore: out += "store; "; break;
      case StmtKind::kInit: out += "init " + kernel.exprs[stmt.expr].name + "; "; break;
      case StmtKind::kAccumulate: out += "accumulate " + kernel.exprs[stmt.expr].name + "; "; break;
      case StmtKind::kFinish: out += "finish " + kernel.exprs[stmt.expr].name + "; "; break;
      case StmtKind::kScan: out += "scan " + kernel.exprs[stmt.expr].name + "; "; break;
      case StmtKind::kLoop: out += "loop { " + shape_of(kernel, stmt.body) + "} "; break;
    }
  }
  return out;
}

}  // namespace

TEST(Arrange, PersistentRowReadsOnce) {
  Kernel kernel = softmax(false);
  check_kernel(kernel);
  arrange(kernel);
  EXPECT_EQ(shape_of(kernel, kernel.body), "let x; finish largest; let exponential; finish total; store; ");
}

// Rows as long as registers allow: what is only added at the end would take the place of what is kept.
TEST(Arrange, TightRegistersPutOffLoadsThatNoReductionNeeds) {
  for (const int64_t block : {1024, 32768}) {
    Kernel kernel = softmax(false);
    kernel.num_warps = 32;
    kernel.axes[1].block = block;
    kernel.buffers.push_back({"residual", DType::bf16, 8 * 100, BufferRole::kInput, true});
    Expr load;
    load.kind = ExprKind::kLoad;
    load.dtype = DType::bf16;
    load.access = {2, {0, {{0, 100, 1, 0}, {1, 1, 1, 0}}}, {}, 0.0};
    Expr cast;
    cast.kind = ExprKind::kOp;
    cast.op = ScalarOp::kCast;
    Expr sum;
    sum.kind = ExprKind::kOp;
    sum.op = ScalarOp::kAdd;
    // In front of the reductions, as lowering may have it.
    kernel.exprs.insert(kernel.exprs.begin(), load);
    for (size_t id = 1; id < kernel.exprs.size(); ++id)
      for (ExprId& operand : kernel.exprs[id].operands) ++operand;
    cast.operands = {0};
    kernel.exprs.push_back(cast);
    sum.operands = {kernel.stores[0].value + 1, static_cast<ExprId>(kernel.exprs.size() - 1)};
    kernel.exprs.push_back(sum);
    kernel.stores[0].value = static_cast<ExprId>(kernel.exprs.size() - 1);
    check_kernel(kernel);
    arrange(kernel);
    EXPECT_EQ(shape_of(kernel, kernel.body),
              block == 1024 ? "let residual; let x; finish largest; let exponential; finish total; store; "
                            : "let x; finish largest; let exponential; finish total; let residual; store; ");
  }
}

TEST(Arrange, LoopedRowHasOneLoopForEachPhase) {
  Kernel kernel = softmax(true);
  arrange(kernel);
  EXPECT_EQ(shape_of(kernel, kernel.body),
            "init largest; loop { let x; accumulate largest; } finish largest; "
            "init total; loop { let x; accumulate total; } finish total; "
            "loop { let x; store; } ");
}

TEST(Arrange, WhatTheLoopDoesNotChangeStandsOutside) {
  Kernel kernel = softmax(true);
  Expr inverse;
  inverse.kind = ExprKind::kOp;
  inverse.op = ScalarOp::kReciprocal;
  inverse.operands = {4};
  kernel.exprs.push_back(inverse);
  Expr scaled;
  scaled.kind = ExprKind::kOp;
  scaled.op = ScalarOp::kMul;
  scaled.operands = {3, 6};
  kernel.exprs.push_back(scaled);
  kernel.stores[0].value = 7;
  arrange(kernel);
  const std::string text = shape_of(kernel, kernel.body);
  EXPECT_NE(text.find("finish total; let value; loop { let x; store; } "), std::string::npos) << text;
}

namespace {

// cumsum(exp(x)) + x of each row.
Kernel running_sum(bool looped) {
  Kernel kernel = softmax(looped);
  kernel.axes[1].kind = AxisKind::kScan;
  kernel.exprs.resize(1);
  const auto op = [&](ScalarOp code, std::vector<ExprId> operands) {
    Expr expr;
    expr.kind = ExprKind::kOp;
    expr.op = code;
    expr.operands = std::move(operands);
    kernel.exprs.push_back(expr);
  };
  op(ScalarOp::kExp, {0});
  Expr scan;
  scan.kind = ExprKind::kScan;
  scan.reduce = ReduceOp::kSum;
  scan.operands = {1};
  kernel.exprs.push_back(scan);
  op(ScalarOp::kAdd, {2, 0});
  kernel.stores[0].value = 3;
  return kernel;
}

}  // namespace

TEST(Arrange, AScanIsOneLoopWithACarry) {
  Kernel kernel = running_sum(true);
  check_kernel(kernel);
  arrange(kernel);
  EXPECT_EQ(shape_of(kernel, kernel.body), "init running_sum; loop { let x; scan running_sum; store; } ");
}

TEST(Arrange, AScanOfOneBlockHasNoCarry) {
  Kernel kernel = running_sum(false);
  check_kernel(kernel);
  arrange(kernel);
  EXPECT_EQ(shape_of(kernel, kernel.body), "let x; scan running_sum; store; ");
}

TEST(CheckKernel, RejectsAReduceAxisBesideAScanAxis) {
  Kernel kernel = running_sum(true);
  Axis axis = kernel.axes[1];
  axis.kind = AxisKind::kReduce;
  axis.name = "slice";
  kernel.axes.push_back(axis);
  EXPECT_THROW(check_kernel(kernel), Error);
}

TEST(CheckKernel, RejectsAScanWithoutAScanAxis) {
  Kernel kernel = running_sum(true);
  kernel.axes[1].kind = AxisKind::kReduce;
  EXPECT_THROW(check_kernel(kernel), Error);
}

TEST(CheckKernel, RejectsAnAccessOutsideItsBuffer) {
  Kernel kernel = softmax(true);
  kernel.buffers[1].elements = 799;
  EXPECT_THROW(check_kernel(kernel), Error);
}
