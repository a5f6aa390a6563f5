#include "group_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "plan/group_builder.hpp"
#include "support/error.hpp"

namespace kw {
namespace {

using namespace plan;

using kernel::BufferRole;

constexpr std::pair<std::string_view, BufferRole> kBufferRoles[] = {{"input", BufferRole::kInput},
                                                                    {"output", BufferRole::kOutput}};

// What a store does at a place that data decide.
struct Scatter {
  ExprId place = kNoExpr, value = kNoExpr;
  std::optional<ReduceOp> fold;  // none: it overwrites
};

// What a text says about an axis besides.
struct AxisWords {
  int64_t block = 1;
  bool looped = false, vector = false, unrolled = false;
};

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  GroupText run() {
    expect("kernel");
    kernel_.name = name();
    expect("{");
    while (!accept("}")) item();
    skip_space();
    if (at_ < text_.size()) fail("expected the end of the text");
    GroupText made;
    made.schedule = schedule();
    made.hints = hints();
    for (size_t buffer = 0; buffer < kernel_.buffers.size(); ++buffer)
      made.group.buffers.push_back(static_cast<ValueId>(buffer));
    made.group.kernel = std::move(kernel_);
    return made;
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
    else fail(fmt::format("unknown item '{}'", keyword));
  }

  void launch() {
    expect("warps");
    warps_ = static_cast<int>(integer());
    expect("stages");
    stages_ = static_cast<int>(integer());
    if (accept("registers")) max_registers_ = static_cast<int>(integer());
  }

  void loops() {
    for (bool found = true; found;) {
      found = false;
      for (const auto& [choice, name] : cpu::kLoopChoiceNames)
        if (accept(name)) {
          choices_.*choice = integer();
          found = true;
        }
    }
  }

  void buffer() {
    const std::string name = this->name();
    expect(":");
    const DType dtype = this->dtype();
    expect("[");
    const int64_t elements = integer();
    expect("]");
    const std::string word = this->name();
    const auto role = find_value(kBufferRoles, word);
    if (!role) fail(fmt::format("unknown buffer role '{}'", word));
    kernel::Buffer buffer = row_of_elements(name, dtype, elements, *role);
    if (accept("unaligned")) buffer.alignment = size_of(dtype);
    if (!buffers_.emplace(buffer.name, kernel_.buffers.size()).second) fail("two buffers named " + buffer.name);
    kernel_.buffers.push_back(std::move(buffer));
  }

  void axis() {
    const std::string name = this->name();
    expect("=");
    const kernel::SymbolInfo axis = axis_of(name, integer());
    const std::string kind = this->name();
    if (kind != "parallel" && kind != "reduce" && kind != "scan") fail(fmt::format("unknown kind of axis '{}'", kind));
    if (kind == "parallel" && kernel_.parallel < axis_count(kernel_)) fail("parallel axes come first");
    kernel_.parallel += kind == "parallel";
    expect("block");
    AxisWords words;
    words.block = integer();
    words.looped = accept("looped");
    is_reversed_ = accept("reversed");
    words.vector = accept("vector");
    words.unrolled = accept("unrolled");
    words_.push_back(words);
    if (!axes_.emplace(name, kernel_.symbols.size()).second) fail("two axes named " + name);
    kernel_.symbols.push_back(axis);
  }

  void store() {
    const std::string label = this->label();
    expect("to");
    Store store;
    store.access = access();
    if (const auto scatter = scatters_.find(label); scatter != scatters_.end()) {
      store.access.coordinates[0].value = scatter->second.place;
      store.value = scatter->second.value;
      store.combines = scatter->second.fold.has_value();
      store.reduce = scatter->second.fold.value_or(ReduceOp::kSum);
    } else {
      store.value = find(labels_, label, "expression");
    }
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
      expr.index = index();
    } else if (what == "load") {
      expr.kind = ExprKind::kLoad;
      expr.access = access();
    } else if (what == "gather") {
      expr.kind = ExprKind::kLoad;
      expr.access = access();
      expect("at");
      expr.access.coordinates[0].value = reference();
      if (accept("where")) expr.access.mask = masks_.both(expr.access.mask, reference());
    } else if (what == "scatter") {
      const std::string op = name();
      Scatter scatter;
      scatter.fold = kernel::find_reduce_op(op);
      if (!scatter.fold && op != "put") fail(fmt::format("unknown way to scatter '{}'", op));
      const std::vector<ExprId> of = operands();
      scatter.place = of.at(0);
      scatter.value = of.at(1);
      scatters_[label] = scatter;
      expect(":");
      dtype();
      return;
    } else if (what == "reduce" || what == "scan") {
      expr.kind = what == "scan" ? ExprKind::kScan : ExprKind::kReduce;
      const std::string op = name();
      if (auto found = kernel::find_reduce_op(op)) expr.reduce = *found;
      else fail(fmt::format("unknown reduction '{}'", op));
      if (accept(".")) expr.component = static_cast<int>(integer());
      expr.operands = operands();
      if (is_sort(expr) && accept("first")) expr.integer = integer();
      if (expr.kind == ExprKind::kScan) expr.reversed = is_reversed_;
      for (int axis = kernel_.parallel; axis < axis_count(kernel_); ++axis) expr.axes.push_back(axis);
      expr.access.mask = masks_.mask_of(guards());
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

  // --- Indices ---
  Access access() {
    const int buffer = find(buffers_, name(), "buffer");
    expect("[");
    Access access = element_at(buffer, index());
    expect("]");
    access.mask = masks_.mask_of(guards());
    if (accept("else")) access.otherwise = to_number(word());
    return access;
  }

  std::vector<Guard> guards() {
    std::vector<Guard> guards;
    if (!accept("if")) return guards;
    do {
      Guard guard;
      guard.lower = integer();
      expect("<=");
      guard.index = index();
      expect("<");
      guard.upper = integer();
      guards.push_back(std::move(guard));
    } while (accept("and"));
    return guards;
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
    const bool has_parts = accept("(");
    Index part = kernel::symbol_index(find(axes_, name(), "axis"));
    if (has_parts) {
      const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(kernel_);
      if (accept("//")) part = kernel::floor_divide(part, integer(), ranges);
      if (accept("%")) part = kernel::modulo(part, integer(), ranges);
      expect(")");
    }
    index = index + part * coefficient;
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

  std::string label() {
    expect("%");
    return name();
  }
  ExprId reference() { return find(labels_, label(), "expression"); }

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

  template <typename Value, size_t count>
  static std::optional<Value> find_value(const std::pair<std::string_view, Value> (&table)[count],
                                         std::string_view name) {
    for (const auto& [text, value] : table)
      if (text == name) return value;
    return std::nullopt;
  }

  // --- What a scheduler chooses ---
  lower::KernelSchedule schedule() const {
    lower::KernelSchedule schedule = plan::in_single_points(kernel_, warps_);
    bool folds = false, slides = false;
    for (int axis = 0; axis < axis_count(kernel_); ++axis) {
      const AxisWords& words = words_[axis];
      lower::AxisSchedule& how = schedule.axes[axis];
      folds = folds || is_serial(kernel_, axis);
      slides = slides || words.unrolled;
      how = words.looped ? plan::in_loop(words.block) : plan::in_blocks(kernel_, axis, words.block);
      if (words.looped) how.stages = stages_;
      if (words.unrolled) how = {.mapping = lower::Mapping::kLoop, .width = words.block, .unrolled = true};
    }
    schedule.cache_hints = folds && !slides;
    schedule.max_registers = max_registers_;
    return schedule;
  }

  cpu::LoopHints hints() const {
    cpu::LoopHints hints{.choices = choices_};
    for (size_t axis = 0; axis < words_.size(); ++axis) {
      if (words_[axis].vector) hints.contiguous_axis = static_cast<int>(axis);
      hints.folds_inside = hints.folds_inside || words_[axis].unrolled;
    }
    return hints;
  }

  std::string_view text_;
  size_t at_ = 0;
  GroupKernel kernel_;
  GroupBuilder masks_{kernel_};
  bool is_reversed_ = false;  // the scanned axis
  std::map<std::string, Scatter> scatters_;
  std::vector<AxisWords> words_;  // [axis]
  int warps_ = 4, stages_ = 2, max_registers_ = 0;
  cpu::LoopChoices choices_;
  std::map<std::string, size_t> buffers_, axes_, labels_;
};

}  // namespace

GroupText parse_group(std::string_view text) { return Parser(text).run(); }

}  // namespace kw
