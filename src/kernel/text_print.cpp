#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kernel/text.hpp"
#include "support/text.hpp"

namespace kw::kernel {
namespace {

// How tightly an operator binds; what is looser than its place stands in parentheses.
enum Binding { kLoosest = 0, kOr, kAnd, kNot, kCompare, kAdd, kMultiply, kUnary, kPrimary };

struct Infix {
  ScalarOp op;
  std::string_view mark;
  Binding binding;
};
constexpr Infix kInfix[] = {
    {ScalarOp::kLogicalOr, "or", kOr},
    {ScalarOp::kLogicalXor, "xor", kOr},
    {ScalarOp::kLogicalAnd, "and", kAnd},
    {ScalarOp::kEqual, "==", kCompare},
    {ScalarOp::kNotEqual, "!=", kCompare},
    {ScalarOp::kLessEqual, "<=", kCompare},
    {ScalarOp::kGreaterEqual, ">=", kCompare},
    {ScalarOp::kLess, "<", kCompare},
    {ScalarOp::kGreater, ">", kCompare},
    {ScalarOp::kAdd, "+", kAdd},
    {ScalarOp::kSub, "-", kAdd},
    {ScalarOp::kMul, "*", kMultiply},
    {ScalarOp::kDiv, "/", kMultiply},
    {ScalarOp::kFloorDiv, "/", kMultiply},
    {ScalarOp::kRemainder, "%", kMultiply},
};

struct Text {
  std::string text;
  Binding binding = kPrimary;
};

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel), names_(kernel.exprs.size()) {
    words_.name = [&](Symbol symbol) { return kernel_.symbols[symbol].name; };
  }

  std::string run() {
    name_what_is_shared();
    line(fmt::format("kernel {} {{", kernel_.name));
    if (!kernel_.doc.empty()) line(fmt::format("  doc \"{}\"", kernel_.doc));
    print_symbols();
    for (const Buffer& buffer : kernel_.buffers) print_buffer(buffer);
    for (size_t state = 0; state < kernel_.states.size(); ++state)
      if (!has_names(kernel_.states[state].initial)) declare(static_cast<int>(state));
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      declare_states_before(static_cast<ExprId>(id));
      if (!names_[id].empty()) line(fmt::format("  {} = {}", names_[id], body(static_cast<ExprId>(id)).text));
    }
    for (size_t state = 0; state < kernel_.states.size(); ++state) {
      declare(static_cast<int>(state));
      line(fmt::format("  next {} = {}", kernel_.states[state].name, use(kernel_.states[state].next, kLoosest)));
    }
    for (const Store& store : kernel_.stores) print_store(store);
    line("}");
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += text + "\n"; }

  // An unnamed result that is used twice would be written twice, and what it is made of four times.
  void name_what_is_shared() {
    std::vector<int> uses(kernel_.exprs.size());
    std::set<std::string> taken;
    for (const SymbolInfo& symbol : kernel_.symbols) taken.insert(symbol.name);
    for (const Buffer& buffer : kernel_.buffers) taken.insert(buffer.name);
    for (const State& state : kernel_.states) taken.insert(state.name);
    for (const Expr& expr : kernel_.exprs) {
      taken.insert(expr.name);
      for (ExprId input : inputs_of(expr)) ++uses[input];
    }
    for (const Store& store : kernel_.stores) {
      ++uses[store.value];
      for (ExprId input : inputs_of(store.access)) ++uses[input];
    }
    int number = 0;
    for (size_t id = 0; id < names_.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      names_[id] = expr.name;
      const bool short_one = expr.kind == ExprKind::kConstant || expr.kind == ExprKind::kIndex ||
                             expr.kind == ExprKind::kState || (expr.kind == ExprKind::kLoad && inputs_of(expr).empty());
      if (!names_[id].empty() || short_one || uses[id] < 2) continue;
      do names_[id] = fmt::format("value_{}", ++number);
      while (!taken.insert(names_[id]).second);
    }
  }

  std::string index(const Index& index) const { return print_index(index, words_); }

  std::string shape(const std::vector<Index>& sizes) const {
    std::string text;
    for (const Index& size : sizes) text += (text.empty() ? "" : ", ") + index(size);
    return "[" + text + "]";
  }

  void print_symbols() {
    std::string axes;
    for (const SymbolInfo& symbol : kernel_.symbols) {
      if (symbol.kind == SymbolKind::kAxis) {
        axes += fmt::format("{}{} = {}{}", axes.empty() ? "  axis " : ", ", symbol.name, index(symbol.extent),
                            symbol.ordered ? " ordered" : "");
        continue;
      }
      if (!axes.empty()) line(std::exchange(axes, ""));
      line(fmt::format("  size {} = {}..{}{}", symbol.name, symbol.range.low, symbol.range.high,
                       symbol.range.divisor == 1 ? "" : fmt::format(" by {}", symbol.range.divisor)));
    }
    if (!axes.empty()) line(axes);
  }

  void print_buffer(const Buffer& buffer) {
    constexpr std::string_view kRoles[] = {"in", "out", "inout"};
    line(fmt::format("  {} {}: {}{}{}{}", kRoles[static_cast<size_t>(buffer.role)], buffer.name,
                     kw::name_of(buffer.dtype), shape(buffer.shape),
                     buffer.strides.empty() ? "" : " strides " + shape(buffer.strides),
                     buffer.alignment == Buffer().alignment ? "" : fmt::format(" align {}", buffer.alignment)));
  }

  bool has_names(ExprId id) const {
    const std::vector<ExprId> inputs = inputs_of(kernel_.exprs[id]);
    return !names_[id].empty() || kernel_.exprs[id].kind == ExprKind::kState ||
           std::any_of(inputs.begin(), inputs.end(), [&](ExprId input) { return has_names(input); });
  }

  // A state is declared at the start if its initial value can be written there, else before it is first read.
  void declare_states_before(ExprId id) {
    if (kernel_.exprs[id].kind == ExprKind::kState) declare(kernel_.exprs[id].state);
  }

  void declare(int which) {
    if (!declared_.insert(which).second) return;
    const State& state = kernel_.states[which];
    std::vector<Index> axes;
    for (Symbol axis : state.axes) axes.push_back(symbol_index(axis));
    line(fmt::format("  state {}: {}{} along {} from {}", state.name, kw::name_of(state.dtype), shape(axes),
                     kernel_.symbols[state.along].name, use(state.initial, kLoosest)));
  }

  void print_store(const Store& store) {
    std::string mark = "=";
    if (store.combines)
      mark = store.reduce == ReduceOp::kSum    ? "+="
             : store.reduce == ReduceOp::kProd ? "*="
                                               : std::string(name_of(store.reduce)) + "=";
    const std::string mask = store.access.mask == kNoExpr ? ""
                                                          : fmt::format("where {} ", use(store.access.mask, kLoosest));
    std::string over;
    for (Symbol axis : store.over) over += (over.empty() ? "over " : ", ") + kernel_.symbols[axis].name;
    if (!over.empty()) over += " ";
    line(fmt::format("  {} {}{}{} {}", access(kernel_.buffers[store.access.buffer].name, store.access), mask, over,
                     mark, use(store.value, kLoosest)));
  }

  std::string access(const std::string& name, const Access& access) const {
    std::string text;
    for (const Coordinate& coordinate : access.coordinates) {
      if (!text.empty()) text += ", ";
      if (coordinate.value == kNoExpr) text += index(coordinate.index);
      else if (coordinate.index == Index(0)) text += use(coordinate.value, kLoosest);
      else text += fmt::format("{} + {}", use(coordinate.value, kAdd), "{" + index(coordinate.index) + "}");
    }
    return name + "[" + text + "]";
  }

  // The expression where something binds as tightly as `place` on both sides.
  std::string use(ExprId id, Binding place) const {
    if (!names_[id].empty()) return names_[id];
    const Text text = body(id);
    return text.binding < place ? "(" + text.text + ")" : text.text;
  }

  Text body(ExprId id) const {
    const Expr& expr = kernel_.exprs[id];
    switch (expr.kind) {
      case ExprKind::kConstant: return constant(expr);
      case ExprKind::kIndex: {
        const std::string suffix = expr.dtype == DType::i32 ? "" : fmt::format(":{}", kw::name_of(expr.dtype));
        return {(as_symbol(expr.index) ? index(expr.index) : "{" + index(expr.index) + "}") + suffix};
      }
      case ExprKind::kLoad: {
        const std::string text = access(kernel_.buffers[expr.access.buffer].name, expr.access);
        if (expr.access.mask == kNoExpr) return {text};
        return {fmt::format("({} where {} otherwise {})", text, use(expr.access.mask, kLoosest),
                            format_double(expr.access.otherwise))};
      }
      case ExprKind::kOp: return operation(expr);
      case ExprKind::kReduce: return {fold(expr)};
      case ExprKind::kScan:
        return {"scan " + fold(expr) + (expr.reversed ? " reversed" : "") +
                (expr.integer > 0 ? fmt::format(" first {}", expr.integer) : "")};
      case ExprKind::kDot:
        return {fmt::format("dot({}; {}){}", operands(expr), axes(expr),
                            expr.precision == Precision::kTf32     ? " precision tf32"
                            : expr.precision == Precision::kTf32x3 ? " precision tf32x3"
                            : expr.precision == Precision::kBf16x6 ? " precision bf16x6"
                                                                   : "")};
      case ExprKind::kState: return {access(kernel_.states[expr.state].name + ".previous", expr.access)};
    }
    return {};
  }

  static Text constant(const Expr& expr) {
    const bool real = is_floating(expr.dtype);
    const DType bare = real ? DType::f32 : DType::i32;
    std::string text = real ? format_double(expr.number) : std::to_string(expr.integer);
    if (expr.dtype != bare) text += fmt::format(":{}", kw::name_of(expr.dtype));
    return {text, text[0] == '-' ? kUnary : kPrimary};
  }

  std::string operands(const Expr& expr) const {
    std::string text;
    for (ExprId operand : expr.operands) text += (text.empty() ? "" : ", ") + use(operand, kLoosest);
    return text;
  }

  std::string axes(const Expr& expr) const {
    std::string text;
    for (Symbol axis : expr.axes) text += (text.empty() ? "" : ", ") + kernel_.symbols[axis].name;
    return text;
  }

  std::string fold(const Expr& expr) const {
    const int components = expr.kind == ExprKind::kScan ? components_of_scan(expr.reduce, expr.operands.size())
                                                        : components_of(expr.reduce);
    const std::string component = components > 1 ? fmt::format(".{}", expr.component) : "";
    return fmt::format("{}({}; {}){}", name_of(expr.reduce), operands(expr), axes(expr), component);
  }

  // Is it index arithmetic that may leave i32? Without a type it would be parsed as index algebra, which never wraps.
  bool wraps(const Expr& expr) const {
    const bool arithmetic = expr.op == ScalarOp::kAdd || expr.op == ScalarOp::kSub || expr.op == ScalarOp::kMul;
    return arithmetic && expr.dtype == DType::i32 &&
           std::all_of(expr.operands.begin(), expr.operands.end(), [&](ExprId id) {
             const ExprKind kind = kernel_.exprs[id].kind;
             return names_[id].empty() && (kind == ExprKind::kConstant || kind == ExprKind::kIndex);
           });
  }

  Text operation(const Expr& expr) const {
    if (expr.op == ScalarOp::kCast) return {fmt::format("{}({})", kw::name_of(expr.dtype), operands(expr))};
    if (expr.op == ScalarOp::kNeg) return {"-" + use(expr.operands[0], kPrimary), kUnary};
    if (expr.op == ScalarOp::kLogicalNot) return {"not " + use(expr.operands[0], kNot), kNot};
    const bool real = is_floating(kernel_.exprs[expr.operands[0]].dtype);
    for (const Infix& infix : kInfix) {
      if (infix.op != expr.op) continue;
      // `/` is the true division of floating numbers, and of whole ones the one that rounds down.
      if ((expr.op == ScalarOp::kDiv && !real) || (expr.op == ScalarOp::kFloorDiv && real)) continue;
      // Comparisons do not chain; the others are read from the left.
      const auto left = static_cast<Binding>(infix.binding + (infix.binding == kCompare ? 1 : 0));
      return {fmt::format("{}{} {} {}", use(expr.operands[0], left), wraps(expr) ? ":i32" : "", infix.mark,
                          use(expr.operands[1], static_cast<Binding>(infix.binding + 1))),
              infix.binding};
    }
    return {fmt::format("{}({})", name_of(expr.op), operands(expr))};
  }

  const Kernel& kernel_;
  std::vector<std::string> names_;  // [expr]
  std::set<int> declared_;          // states
  IndexWords words_;
  std::string out_;
};

}  // namespace

std::string print_kernel(const Kernel& kernel) { return Printer(kernel).run(); }

}  // namespace kw::kernel
