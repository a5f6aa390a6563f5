#include "emit/kernel_text.hpp"

#include <fmt/format.h>

#include <map>

#include "emit/kernel_names.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::kernel_ir {
namespace {

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + '"';
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {
    std::map<std::string, int> uses;
    for (const Expr& expr : kernel.exprs) ++uses[expr.name];
    for (size_t id = 0; id < kernel.exprs.size(); ++id) {
      const std::string& name = kernel.exprs[id].name;
      const bool unique = !name.empty() && uses[name] == 1 && !is_number(name);
      labels_.push_back("%" + (unique ? name : std::to_string(id)));
    }
  }

  std::string run() {
    out_ = "kernel " + kernel_.name + " {\n";
    if (!kernel_.doc.empty()) line(1, "doc " + quote(kernel_.doc));
    const std::string registers = kernel_.max_registers == 0 ? "" : fmt::format(" registers {}", kernel_.max_registers);
    line(1, fmt::format("launch warps {} stages {}{}", kernel_.num_warps, kernel_.num_stages, registers));
    if (kernel_.loops != LoopChoices{}) {
      std::string choices = "loops";
      for (const auto& [choice, name] : kLoopChoiceNames)
        if (kernel_.loops.*choice != 0) choices += fmt::format(" {} {}", name, kernel_.loops.*choice);
      line(1, choices);
    }
    for (const Buffer& buffer : kernel_.buffers)
      line(1, fmt::format("buffer {} : {}[{}] {}{}", buffer.name, name_of(buffer.dtype), buffer.elements,
                          find_name(kBufferRoleNames, buffer.role), buffer.aligned ? "" : " unaligned"));
    for (const Axis& axis : kernel_.axes)
      line(1,
           fmt::format("axis {} = {} {} block {}{}{}{}{}", axis.name, axis.extent, find_name(kAxisKindNames, axis.kind),
                       axis.block, axis.looped ? " looped" : "", axis.reversed ? " reversed" : "",
                       axis.vector ? " vector" : "", axis.unrolled ? " unrolled" : ""));
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      const bool labelled = labels_[id] == "%" + expr.name;
      line(1, fmt::format("{} = {} : {}{}", labels_[id], value(expr), name_of(expr.dtype),
                          labelled || expr.name.empty() ? "" : " named " + expr.name));
    }
    for (const Store& store : kernel_.stores)
      line(1, fmt::format("store {} to {}{}", label(store.value), access(store.access), store.last ? " last" : ""));
    if (!kernel_.body.empty()) {
      line(1, "body {");
      body(kernel_.body, 2);
      line(1, "}");
    }
    return out_ + "}\n";
  }

  std::string index(const Index& index) const {
    std::string out;
    for (const IndexTerm& term : index.terms) {
      const bool negative = term.coefficient < 0 && !out.empty();
      const int64_t coefficient = negative ? -term.coefficient : term.coefficient;
      std::string axis = kernel_.axes.at(term.axis).name;
      if (term.divisor != 1 || term.modulus != 0) {
        if (term.divisor != 1) axis += fmt::format(" // {}", term.divisor);
        if (term.modulus != 0) axis += fmt::format(" % {}", term.modulus);
        axis = "(" + axis + ")";
      }
      if (!out.empty()) out += negative ? " - " : " + ";
      out += coefficient == 1 ? axis : fmt::format("{}*{}", coefficient, axis);
    }
    if (out.empty()) return std::to_string(index.constant);
    if (index.constant > 0) out += fmt::format(" + {}", index.constant);
    if (index.constant < 0) out += fmt::format(" - {}", -index.constant);
    return out;
  }

 private:
  void line(int depth, const std::string& text) { out_ += std::string(2 * depth, ' ') + text + "\n"; }

  const std::string& label(ExprId id) const { return labels_.at(id); }

  std::string access(const Access& access) const {
    std::string out = fmt::format("{}[{}]", kernel_.buffers.at(access.buffer).name, index(access.index)) +
                      guards(access);
    if (format_double(access.otherwise) != "0.0") out += " else " + format_double(access.otherwise);
    return out;
  }

  std::string guards(const Access& access) const {
    std::string out;
    for (size_t i = 0; i < access.guards.size(); ++i) {
      const Guard& guard = access.guards[i];
      out += fmt::format("{}{} <= {} < {}", i == 0 ? " if " : " and ", guard.lower, index(guard.index), guard.upper);
    }
    return out;
  }

  std::string constant(const Expr& expr) const {
    if (expr.dtype == DType::b1) return expr.integer != 0 || expr.number != 0 ? "true" : "false";
    return is_integral(expr.dtype) ? std::to_string(expr.integer) : format_double(expr.number);
  }

  std::string operands(const Expr& expr) const {
    std::vector<std::string> parts;
    for (ExprId operand : expr.operands) parts.push_back(label(operand));
    return "(" + join(parts, ", ") + ")";
  }

  std::string value(const Expr& expr) const {
    switch (expr.kind) {
      case ExprKind::kConstant: return "constant " + constant(expr);
      case ExprKind::kIndex: return "index " + index(expr.access.index);
      case ExprKind::kLoad: return "load " + access(expr.access);
      case ExprKind::kGather: {
        const std::string where = expr.operands.size() > 1 ? " where " + label(expr.operands[1]) : "";
        return fmt::format("gather {} at {}{}", access(expr.access), label(expr.operands[0]), where);
      }
      case ExprKind::kOp: return std::string(name_of(expr.op)) + operands(expr);
      case ExprKind::kScatter:
        return fmt::format("scatter {}{}", expr.overwrites ? "put" : name_of(expr.reduce), operands(expr));
      case ExprKind::kReduce:
      case ExprKind::kScan: {
        const std::string component = expr.component == 0 ? "" : fmt::format(".{}", expr.component);
        const std::string first = is_sort(expr) && expr.integer != 0 ? fmt::format(" first {}", expr.integer) : "";
        return fmt::format("{} {}{}{}{}{}", expr.kind == ExprKind::kScan ? "scan" : "reduce", name_of(expr.reduce),
                           component, operands(expr), first, guards(expr.access));
      }
    }
    return "";
  }

  void body(const std::vector<Stmt>& statements, int depth) {
    for (const Stmt& statement : statements) {
      const std::string name(find_name(kStmtKindNames, statement.kind));
      if (statement.kind == StmtKind::kLoop) {
        line(depth, "loop {");
        body(statement.body, depth + 1);
        line(depth, "}");
      } else if (statement.kind == StmtKind::kStore) {
        line(depth, fmt::format("store {}", statement.store));
      } else {
        line(depth, name + " " + label(statement.expr));
      }
    }
  }

  const Kernel& kernel_;
  std::vector<std::string> labels_;
  std::string out_;
};

}  // namespace

std::string print(const Kernel& kernel) { return Printer(kernel).run(); }
std::string print(const Kernel& kernel, const Index& index) { return Printer(kernel).index(index); }

}  // namespace kw::kernel_ir
