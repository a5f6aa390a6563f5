#include "plan/scalar_forms.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ir/op_rows.hpp"
#include "ir/promote.hpp"
#include "support/error.hpp"
#include "support/text_reader.hpp"

namespace kw::plan {

namespace {

enum class TermKind { kNumber, kArgument, kOp, kSelect, kGiven, kIs, kFloating, kDouble, kLargest, kRow, kColumn };

struct Term {
  TermKind kind = TermKind::kNumber;
  double number = 0.0;
  std::string name = {}, word = {};  // of an argument, and what it is compared with
  ScalarOp op = ScalarOp::kAdd;
  std::vector<int> operands = {};  // of an argument: what it is where it is not given
};

struct Form {
  std::vector<Term> terms;  // each after its operands
  int result = 0;
};

class FormParser {
 public:
  explicit FormParser(std::string_view text) : reader_(text, "formula") {}

  Form run() {
    form_.result = parts();
    return std::move(form_);
  }

 private:
  struct Infix {
    std::string_view mark;
    ScalarOp op;
    int level;
  };
  static constexpr int kNot = 2, kTightest = 6;
  static constexpr Infix kInfixes[] = {
      {"or", ScalarOp::kLogicalOr, 0}, {"xor", ScalarOp::kLogicalXor, 0},  {"and", ScalarOp::kLogicalAnd, 1},
      {"==", ScalarOp::kEqual, 3},     {"!=", ScalarOp::kNotEqual, 3},     {"<=", ScalarOp::kLessEqual, 3},
      {"<", ScalarOp::kLess, 3},       {">=", ScalarOp::kGreaterEqual, 3}, {">", ScalarOp::kGreater, 3},
      {"+", ScalarOp::kAdd, 4},        {"-", ScalarOp::kSub, 4},           {"*", ScalarOp::kMul, 5},
      {"/", ScalarOp::kDiv, 5}};

  int add(Term term) {
    form_.terms.push_back(std::move(term));
    return static_cast<int>(form_.terms.size()) - 1;
  }
  int operation(ScalarOp op, std::vector<int> operands) {
    return add({.kind = op == ScalarOp::kSelect ? TermKind::kSelect : TermKind::kOp,
                .op = op,
                .operands = std::move(operands)});
  }

  int parts() {
    while (true) {
      const TextReader before = reader_;
      if (reader_.next_is_name()) {
        std::string name = reader_.name();
        if (!reader_.next_is("==") && reader_.accept("=")) {
          const int part = binary(0);
          locals_[std::move(name)] = part;
          reader_.expect(";");
          continue;
        }
        reader_ = before;
      }
      const int result = binary(0);
      if (!reader_.at_end()) reader_.fail("expected an operator or the end");
      return result;
    }
  }

  int binary(int level) {
    if (level == kNot) return reader_.accept("not") ? operation(ScalarOp::kLogicalNot, {binary(kNot)}) : binary(3);
    if (level == kTightest) return unary();
    int left = binary(level + 1);
    while (true) {
      const auto* found = std::find_if(std::begin(kInfixes), std::end(kInfixes), [&](const Infix& infix) {
        return infix.level == level && reader_.accept(infix.mark);
      });
      if (found == std::end(kInfixes)) return left;
      const int right = binary(level + 1);
      left = operation(found->op, {left, right});
    }
  }

  int unary() { return reader_.accept("-") ? operation(ScalarOp::kNeg, {unary()}) : primary(); }

  int primary() {
    if (reader_.accept("(")) {
      const int inside = binary(0);
      reader_.expect(")");
      return inside;
    }
    if (!reader_.next_is_name() || reader_.next_is("inf")) return add({.number = reader_.number()});
    std::string name = reader_.name();
    if (reader_.accept("(")) return call(name);
    if (const auto local = locals_.find(name); local != locals_.end()) return local->second;
    static const std::unordered_map<std::string_view, TermKind> kWords = {{"floating", TermKind::kFloating},
                                                                          {"double", TermKind::kDouble},
                                                                          {"largest", TermKind::kLargest},
                                                                          {"row", TermKind::kRow},
                                                                          {"column", TermKind::kColumn}};
    if (const auto word = kWords.find(name); word != kWords.end()) return add({.kind = word->second});
    std::vector<int> otherwise;
    if (reader_.accept("|")) otherwise = {unary()};
    return add({.kind = TermKind::kArgument, .name = std::move(name), .operands = std::move(otherwise)});
  }

  int call(const std::string& name) {
    Term term;
    if (name == "given" || name == "is") {
      term.kind = name == "given" ? TermKind::kGiven : TermKind::kIs;
      term.name = reader_.name();
      if (reader_.accept(",")) term.word = reader_.name();
      reader_.expect(")");
      return add(std::move(term));
    }
    std::vector<int> operands;
    do operands.push_back(binary(0));
    while (reader_.accept(","));
    reader_.expect(")");
    const auto op = kernel::find_scalar_op(name);
    const int arity = op ? kernel::arity_of(*op) : 2;
    if (operands.size() != static_cast<size_t>(arity)) reader_.fail(name + " has another number of operands");
    return op ? operation(*op, std::move(operands)) : another_form(name, operands);
  }

  int another_form(const std::string& name, const std::vector<int>& operands) {
    const std::string_view text = op_info("aten." + name).form;
    if (text.empty()) reader_.fail("no operator with a formula is called " + name);
    const TextReader reader = std::exchange(reader_, TextReader(text, "formula"));
    const auto locals = std::exchange(locals_, {{"self", operands[0]}, {"other", operands[1]}});
    const int result = parts();
    reader_ = reader;
    locals_ = locals;
    return result;
  }

  TextReader reader_;
  Form form_;
  std::unordered_map<std::string, int> locals_;
};

const Form& form_of(const OpInfo& row) {
  static const auto forms = [] {
    std::unordered_map<const OpInfo*, Form> parsed;
    for (const OpInfo& each : op_rows())
      if (!each.form.empty()) parsed.emplace(&each, FormParser(each.form).run());
    return parsed;
  }();
  return forms.at(&row);
}

double largest_of(DType dtype) {
  if (dtype == DType::f16) return 65504.0;
  if (dtype == DType::bf16) return 3.3895313892515355e38;
  return dtype == DType::f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}

// A number that is known now, or an expression.
struct Value {
  ExprId id = kNoExpr;
  double number = 0.0;
  std::optional<int64_t> whole = {};  // the number, where f64 may not hold it

  bool is_number() const { return id == kNoExpr; }
};

std::optional<double> of_numbers(ScalarOp op, double a, double b) {
  switch (op) {
    case ScalarOp::kAdd: return a + b;
    case ScalarOp::kSub: return a - b;
    case ScalarOp::kMul: return a * b;
    case ScalarOp::kDiv: return a / b;
    case ScalarOp::kNeg: return -a;
    case ScalarOp::kEqual: return a == b;
    default: return std::nullopt;
  }
}

// What an operation is of truth values, and of integers; otherwise itself.
ScalarOp of_truth(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
    case ScalarOp::kBitOr: return ScalarOp::kLogicalOr;
    case ScalarOp::kMul:
    case ScalarOp::kBitAnd: return ScalarOp::kLogicalAnd;
    case ScalarOp::kBitXor: return ScalarOp::kLogicalXor;
    case ScalarOp::kBitNot: return ScalarOp::kLogicalNot;
    default: return op;
  }
}

bool keeps_whole_numbers(ScalarOp op) {
  return op == ScalarOp::kFloor || op == ScalarOp::kCeil || op == ScalarOp::kTrunc || op == ScalarOp::kRound;
}

class Evaluation {
 public:
  Evaluation(const ScalarContext& context, const Form& form, OpRule rule)
      : c_(context), k_(context.build), terms_(form.terms), values_(form.terms.size()), type_(context.result) {
    if (rule == OpRule::kLogical) type_ = DType::b1;
    if (rule == OpRule::kCompare)
      type_ = compute_dtype(result_type(c_.graph, c_.node, {"self", "other"}).value_or(DType::f32));
  }

  ExprId result(int term) { return typed(value(term), type_); }

 private:
  const Value& value(int term) {
    if (!values_[term]) values_[term] = evaluated(terms_[term]);
    return *values_[term];
  }

  ExprId typed(const Value& value, DType dtype) {
    if (!value.is_number()) return value.id;
    return value.whole ? k_.constant(dtype, *value.whole) : k_.constant(dtype, value.number);
  }

  // The operands in the type of the first that has one.
  std::vector<ExprId> alike(const std::vector<Value>& values) {
    const auto first = std::find_if(values.begin(), values.end(), [](const Value& one) { return !one.is_number(); });
    const DType dtype = first == values.end() ? type_ : k_.dtype(first->id);
    std::vector<ExprId> ids;
    for (const Value& one : values) ids.push_back(typed(one, dtype));
    return ids;
  }

  bool has(const std::string& name) const {
    const Argument* argument = c_.node.find(name);
    return argument && !std::holds_alternative<None>(*argument);
  }

  Value evaluated(const Term& term) {
    const auto number = [](double one) { return Value{.number = one}; };
    switch (term.kind) {
      case TermKind::kNumber: return number(term.number);
      case TermKind::kArgument: return argument(term);
      case TermKind::kGiven: return number(has(term.name));
      case TermKind::kIs: return number(c_.node.text(term.name) == term.word);
      case TermKind::kFloating: return number(is_floating(type_));
      case TermKind::kDouble: return number(type_ == DType::f64);
      case TermKind::kLargest: return number(largest_of(c_.graph.type(c_.node.results[0]).dtype));
      case TermKind::kRow: return {k_.index(c_.coords[c_.coords.size() - 2], DType::i64)};
      case TermKind::kColumn: return {k_.index(c_.coords.back(), DType::i64)};
      case TermKind::kSelect: return selected(term);
      case TermKind::kOp: return operation(term);
    }
    return {};
  }

  Value argument(const Term& term) {
    if (const ValueId tensor = c_.node.value(term.name); tensor != kNoValue)
      return {k_.cast(type_, c_.operands.at(tensor))};
    if (has(term.name)) {
      const auto* whole = std::get_if<int64_t>(c_.node.find(term.name));
      return {.number = c_.node.number(term.name, 0.0), .whole = whole ? std::optional(*whole) : std::nullopt};
    }
    KW_ASSERT(!term.operands.empty(), c_.node.op + " lacks its argument " + term.name);
    return value(term.operands[0]);
  }

  Value selected(const Term& term) {
    const Term& asked = terms_[term.operands[0]];
    const ValueId mask = asked.kind == TermKind::kArgument ? c_.node.value(asked.name) : kNoValue;
    const Value condition = mask == kNoValue ? value(term.operands[0])
                                             : Value{k_.cast(DType::b1, c_.operands.at(mask))};
    if (condition.is_number()) return value(term.operands[condition.number != 0.0 ? 1 : 2]);
    const Value yes = value(term.operands[1]);
    const std::vector<ExprId> sides = alike({yes, value(term.operands[2])});
    return {k_.select(condition.id, sides[0], sides[1])};
  }

  Value operation(const Term& term) {
    std::vector<Value> values;
    bool known = true;
    for (const int operand : term.operands) {
      values.push_back(value(operand));
      known = known && values.back().is_number();
    }
    if (const auto number = known ? of_numbers(term.op, values[0].number, values.back().number) : std::nullopt)
      return {.number = *number};
    return {term.op == ScalarOp::kPow ? power(typed(values[0], type_), values[1]) : apply(term.op, alike(values))};
  }

  ExprId apply(ScalarOp op, const std::vector<ExprId>& operands) {
    const DType dtype = k_.dtype(operands[0]);
    if (dtype == DType::b1) {
      if (op == ScalarOp::kAbs || (op == ScalarOp::kMul && k_.is_constant(operands[1], 1.0))) return operands[0];
      op = of_truth(op);
    }
    if (!is_floating(dtype)) {
      if (keeps_whole_numbers(op)) return operands[0];
      if (op == ScalarOp::kIsNan || op == ScalarOp::kIsInf) return k_.constant(DType::b1, 0);
    }
    return k_.op(op, operands);
  }

  ExprId whole_power(ExprId base, int exponent) {
    if (exponent == 0) return k_.constant(type_, 1.0);
    const ExprId half = whole_power(base, exponent / 2);
    const ExprId even = exponent / 2 == 0 ? base : k_.mul(half, half);
    return exponent % 2 == 0 || exponent == 1 ? even : k_.mul(even, base);
  }

  ExprId power(ExprId base, const Value& exponent) {
    if (const double number = exponent.number; exponent.is_number()) {
      if (number == std::floor(number) && number >= 0 && number <= 8)
        return whole_power(base, static_cast<int>(number));
      if (number == 0.5) return k_.op(ScalarOp::kSqrt, {base});
      if (number == -0.5) return k_.op(ScalarOp::kRsqrt, {base});
      if (number == -1.0 || number == -2.0)
        return k_.div(k_.constant(type_, 1.0), whole_power(base, static_cast<int>(-number)));
    }
    const ExprId power = typed(exponent, type_);
    return k_.is_constant(base, 2.0) ? k_.op(ScalarOp::kExp2, {power}) : k_.op(ScalarOp::kPow, {base, power});
  }

  const ScalarContext& c_;
  GroupBuilder& k_;
  const std::vector<Term>& terms_;
  std::vector<std::optional<Value>> values_;  // of the terms that were asked for
  DType type_;                                // of operands and numbers
};

}  // namespace

bool has_form(const Node& node) { return !op_info(node.op).form.empty(); }

ExprId element_by_form(const ScalarContext& context) {
  const OpInfo& row = op_info(context.node.op);
  const Form& form = form_of(row);
  return Evaluation(context, form, row.rule).result(form.result);
}

}  // namespace kw::plan
