// parse_kernel: recursive descent over the text form that kernel_text.cpp prints.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "emit/kernel_names.hpp"
#include "emit/kernel_text.hpp"
#include "support/error.hpp"

namespace kw::kernel_ir {
namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Kernel run() {
    expect("kernel");
    kernel_.name = name();
    expect("{");
    while (!accept("}")) item();
    skip_space();
    if (at_ < text_.size()) fail("expected the end of the text");
    return std::move(kernel_);
  }

 private:
  // --- Items ---
  void item() {
    if (peek() == '%') return expression();
    const std::string keyword = name();
    if (keyword == "doc") kernel_.doc = quoted();
    else if (keyword == "launch") launch();
    else if (keyword == "loops") loops();
    else if (keyword == "buffer") buffer();
    else if (keyword == "axis") axis();
    else if (keyword == "store") store();
    else if (keyword == "body") kernel_.body = body();
    else fail(fmt::format("unknown item '{}'", keyword));
  }

  void launch() {
    expect("warps");
    kernel_.num_warps = static_cast<int>(integer());
    expect("stages");
    kernel_.num_stages = static_cast<int>(integer());
    if (accept("registers")) kernel_.max_registers = static_cast<int>(integer());
  }

  void loops() {
    for (bool found = true; found;) {
      found = false;
      for (const auto& [choice, name] : kLoopChoiceNames)
        if (accept(name)) {
          kernel_.loops.*choice = integer();
          found = true;
        }
    }
  }

  void buffer() {
    Buffer buffer;
    buffer.name = name();
    expect(":");
    buffer.dtype = dtype();
    expect("[");
    buffer.elements = integer();
    expect("]");
    const std::string role = name();
    if (auto found = find_value(kBufferRoleNames, role)) buffer.role = *found;
    else fail(fmt::format("unknown buffer role '{}'", role));
    buffer.aligned = !accept("unaligned");
    if (!buffers_.emplace(buffer.name, kernel_.buffers.size()).second) fail("two buffers named " + buffer.name);
    kernel_.buffers.push_back(std::move(buffer));
  }

  void axis() {
    Axis axis;
    axis.name = name();
    expect("=");
    axis.extent = integer();
    const std::string kind = name();
    if (auto found = find_value(kAxisKindNames, kind)) axis.kind = *found;
    else fail(fmt::format("unknown kind of axis '{}'", kind));
    expect("block");
    axis.block = integer();
    axis.looped = accept("looped");
    axis.reversed = accept("reversed");
    axis.vector = accept("vector");
    axis.unrolled = accept("unrolled");
    if (!axes_.emplace(axis.name, kernel_.axes.size()).second) fail("two axes named " + axis.name);
    kernel_.axes.push_back(std::move(axis));
  }

  void store() {
    Store store;
    store.value = reference();
    expect("to");
    store.access = access();
    store.last = accept("last");
    kernel_.stores.push_back(std::move(store));
  }

  void expression() {
    expect("%");
    const std::string label = name();
    expect("=");
    Expr expr;
    const std::string what = name();
    std::string literal;
    if (what == "constant") {
      literal = word();
    } else if (what == "index") {
      expr.kind = ExprKind::kIndex;
      expr.access.index = index();
    } else if (what == "load") {
      expr.kind = ExprKind::kLoad;
      expr.access = access();
    } else if (what == "gather") {
      expr.kind = ExprKind::kGather;
      expr.access = access();
      expect("at");
      expr.operands.push_back(reference());
      if (accept("where")) expr.operands.push_back(reference());
    } else if (what == "scatter") {
      expr.kind = ExprKind::kScatter;
      const std::string op = name();
      expr.overwrites = op == "put";
      if (const auto found = kernel::find_reduce_op(op)) expr.reduce = *found;
      else if (!expr.overwrites) fail(fmt::format("unknown way to scatter '{}'", op));
      expr.operands = operands();
    } else if (what == "reduce" || what == "scan") {
      expr.kind = what == "scan" ? ExprKind::kScan : ExprKind::kReduce;
      const std::string op = name();
      if (auto found = kernel::find_reduce_op(op)) expr.reduce = *found;
      else fail(fmt::format("unknown reduction '{}'", op));
      if (accept(".")) expr.component = static_cast<int>(integer());
      expr.operands = operands();
      if (is_sort(expr) && accept("first")) expr.integer = integer();
      guards(expr.access);
    } else {
      expr.kind = ExprKind::kOp;
      if (auto found = kernel::find_scalar_op(what)) expr.op = *found;
      else fail(fmt::format("unknown operation '{}'", what));
      expr.operands = operands();
    }
    expect(":");
    expr.dtype = dtype();
    if (expr.kind == ExprKind::kConstant) constant(literal, expr);
    if (accept("named")) expr.name = name();
    else if (!std::isdigit(static_cast<unsigned char>(label[0]))) expr.name = label;
    if (!labels_.emplace(label, kernel_.exprs.size()).second) fail("two expressions labelled %" + label);
    kernel_.exprs.push_back(std::move(expr));
  }

  void constant(const std::string& literal, Expr& expr) {
    if (expr.dtype == DType::b1) {
      if (literal != "true" && literal != "false") fail("a boolean is true or false");
      expr.integer = literal == "true";
    } else if (is_integral(expr.dtype)) {
      const auto [end, error] = std::from_chars(literal.data(), literal.data() + literal.size(), expr.integer);
      if (error != std::errc() || end != literal.data() + literal.size())
        fail(fmt::format("'{}' is not an integer", literal));
    } else {
      expr.number = to_number(literal);
    }
  }

  std::vector<ExprId> operands() {
    std::vector<ExprId> out;
    expect("(");
    if (accept(")")) return out;
    do out.push_back(reference());
    while (accept(","));
    expect(")");
    return out;
  }

  std::vector<Stmt> body() {
    std::vector<Stmt> out;
    expect("{");
    while (!accept("}")) {
      Stmt statement;
      const std::string kind = name();
      if (auto found = find_value(kStmtKindNames, kind)) statement.kind = *found;
      else fail(fmt::format("unknown statement '{}'", kind));
      if (statement.kind == StmtKind::kLoop) {
        statement.body = body();
      } else if (statement.kind == StmtKind::kStore) {
        statement.store = static_cast<int>(integer());
        if (statement.store < 0 || statement.store >= static_cast<int>(kernel_.stores.size())) fail("no such store");
      } else {
        statement.expr = reference();
      }
      out.push_back(std::move(statement));
    }
    return out;
  }

  // --- Indices ---
  Access access() {
    Access access;
    access.buffer = find(buffers_, name(), "buffer");
    expect("[");
    access.index = index();
    expect("]");
    guards(access);
    if (accept("else")) access.otherwise = to_number(word());
    return access;
  }

  void guards(Access& access) {
    if (!accept("if")) return;
    do {
      Guard guard;
      guard.lower = integer();
      expect("<=");
      guard.index = index();
      expect("<");
      guard.upper = integer();
      access.guards.push_back(std::move(guard));
    } while (accept("and"));
  }

  Index index() {
    Index out;
    term(out, accept("-") ? -1 : 1);
    while (true) {
      if (accept("+")) term(out, accept("-") ? -1 : 1);
      else if (accept("-")) term(out, -1);
      else return out;
    }
  }

  void term(Index& index, int sign) {
    int64_t coefficient = sign;
    if (std::isdigit(static_cast<unsigned char>(peek()))) {
      coefficient = sign * integer();
      if (!accept("*")) {
        index.constant += coefficient;
        return;
      }
    }
    IndexTerm term;
    term.coefficient = coefficient;
    if (accept("(")) {
      term.axis = find(axes_, name(), "axis");
      if (accept("//")) term.divisor = integer();
      if (accept("%")) term.modulus = integer();
      expect(")");
    } else {
      term.axis = find(axes_, name(), "axis");
    }
    index.terms.push_back(term);
  }

  // --- Tokens ---
  [[noreturn]] void fail(const std::string& message) {
    size_t last = std::min(at_, text_.size());
    while (last > 0 && std::isspace(static_cast<unsigned char>(text_[last - 1]))) --last;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + last, '\n');
    throw Error(ErrorKind::kUser, fmt::format("kernel text, line {}: {}", line, message));
  }

  int find(const std::map<std::string, size_t>& names, const std::string& name, std::string_view what) {
    auto found = names.find(name);
    if (found == names.end()) fail(fmt::format("no {} named '{}'", what, name));
    return static_cast<int>(found->second);
  }

  ExprId reference() {
    expect("%");
    return find(labels_, name(), "expression");
  }

  void skip_space() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      else if (text_[at_] == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else return;
    }
  }

  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    const size_t end = at_ + token.size();
    if (is_name_character(token.back()) && end < text_.size() && is_name_character(text_[end])) return false;
    at_ = end;
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("expected '{}'", token));
  }

  std::string name() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    if (at_ == start) fail("expected a name");
    return std::string(text_.substr(start, at_ - start));
  }

  std::string word() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  int64_t integer() {
    skip_space();
    int64_t out = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc()) fail("expected an integer");
    at_ = end - text_.data();
    return out;
  }

  double to_number(const std::string& literal) {
    if (literal == "inf") return std::numeric_limits<double>::infinity();
    if (literal == "-inf") return -std::numeric_limits<double>::infinity();
    if (literal == "nan") return std::numeric_limits<double>::quiet_NaN();
    double out = 0;
    const auto [end, error] = std::from_chars(literal.data(), literal.data() + literal.size(), out);
    if (error != std::errc() || end != literal.data() + literal.size())
      fail(fmt::format("'{}' is not a number", literal));
    return out;
  }

  DType dtype() {
    const std::string text = name();
    const auto found = parse_dtype(text);
    if (!found) fail(fmt::format("unknown dtype '{}'", text));
    return *found;
  }

  std::string quoted() {
    expect("\"");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'n') c = '\n';
      }
      out += c;
    }
    if (at_ >= text_.size()) fail("the string has no end");
    ++at_;
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
  Kernel kernel_;
  std::map<std::string, size_t> buffers_, axes_, labels_;
};

}  // namespace

Kernel parse_kernel(std::string_view text) { return Parser(text).run(); }

}  // namespace kw::kernel_ir
