#include "toy/printer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/kernel_text.hpp"
#include "emit/python_text.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::toy {

using namespace kernel_ir;

namespace {

bool can_print(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
    case ExprKind::kIndex:
    case ExprKind::kLoad: return true;
    case ExprKind::kReduce:
      return (expr.reduce == ReduceOp::kSum || expr.reduce == ReduceOp::kMax) && expr.access.guards.empty();
    case ExprKind::kOp:
      return expr.op == ScalarOp::kAdd || expr.op == ScalarOp::kSub || expr.op == ScalarOp::kMul ||
             expr.op == ScalarOp::kMaximum || expr.op == ScalarOp::kNeg;
    default: return false;
  }
}

class KernelText {
 public:
  explicit KernelText(const Kernel& kernel) : kernel_(kernel) {}

  std::string text() const {
    std::vector<std::string> names;
    for (const Buffer& buffer : kernel_.buffers) names.push_back(buffer.name);
    std::string out = "def " + kernel_.name + "(" + join(names, ", ") + "):\n";
    for (const Buffer& buffer : kernel_.buffers)
      out += fmt::format("    {0} = {0}.as_strided(({1},), (1,))\n", buffer.name, buffer.elements);
    std::string indent = "    ";
    for (const Axis& axis : kernel_.axes) {
      if (axis.kind != AxisKind::kParallel) continue;
      out += fmt::format(
          "{0}for {1}_chunk in range(0, {2}, {3}):\n{0}    for {1} in range({1}_chunk, "
          "min({1}_chunk + {3}, {2})):\n",
          indent, axis.name, axis.extent, axis.block);
      indent += "        ";
    }
    for (const Store& store : kernel_.stores)
      out += fmt::format("{}if {}:\n{}    {}[{}] = {}\n", indent, condition(store.access), indent,
                         kernel_.buffers[store.access.buffer].name, print(kernel_, store.access.index),
                         value(store.value));
    return out;
  }

 private:
  std::string condition(const Access& access) const {
    std::string text = "True";
    for (const Guard& guard : access.guards)
      text += fmt::format(" and {} <= {} < {}", guard.lower, print(kernel_, guard.index), guard.upper);
    return text;
  }

  std::string value(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    switch (expr.kind) {
      case ExprKind::kConstant:
        return is_floating(expr.dtype) ? python::number(expr.number) : std::to_string(expr.integer);
      case ExprKind::kIndex: return "(" + print(kernel_, expr.access.index) + ")";
      case ExprKind::kLoad:
        return fmt::format("({}[{}].item() if {} else {})", kernel_.buffers[expr.access.buffer].name,
                           print(kernel_, expr.access.index), condition(expr.access), expr.access.otherwise);
      case ExprKind::kReduce: return folded(expr);
      default: return operation(expr);
    }
  }

  std::string folded(const Expr& expr) const {
    std::string loops;
    for (const Axis& axis : kernel_.axes)
      if (axis.kind == AxisKind::kReduce) loops += fmt::format(" for {} in range({})", axis.name, axis.extent);
    return (expr.reduce == ReduceOp::kSum ? "sum(" : "max(") + value(expr.operands[0]) + loops + ")";
  }

  std::string operation(const Expr& expr) const {
    const std::string left = value(expr.operands[0]);
    if (expr.op == ScalarOp::kNeg) return "(-" + left + ")";
    const std::string right = value(expr.operands[1]);
    if (expr.op == ScalarOp::kMaximum) return "max(" + left + ", " + right + ")";
    const char* sign = expr.op == ScalarOp::kAdd ? " + " : expr.op == ScalarOp::kSub ? " - " : " * ";
    return "(" + left + sign + right + ")";
  }

  const Kernel& kernel_;
};

class Printer : public TargetPrinter {
 public:
  std::string device() const override { return "cpu"; }
  bool reads_before_it_writes(const Kernel&, int, int) const override { return false; }
  std::string imports(const Program&) const override { return "import torch\n"; }
  std::string kernels(const Program& program) const override {
    std::vector<std::string> texts;
    for (const Kernel& kernel : program.kernels) texts.push_back(KernelText(kernel).text());
    return join(texts, "\n\n");
  }
  std::string launch(const Program& program, const KernelStep& step) const override {
    return program.kernels[step.kernel].name + "(" + join(step.tensors, ", ") + ")\n";
  }
  std::string launch(const Program&, const TileStep&, const TileStep*) const override {
    fail_internal(__FILE__, __LINE__, "the toy has no tile programs");
  }
  std::string trailer(const Program&) const override { return ""; }
};

}  // namespace

bool can_print(const Kernel& kernel) {
  return std::ranges::all_of(kernel.exprs, [](const Expr& expr) { return can_print(expr); });
}

std::unique_ptr<TargetPrinter> make_printer() { return std::make_unique<Printer>(); }

}  // namespace kw::toy
