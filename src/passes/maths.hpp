// Writing formulas into a graph: Term overloads the operators, so that an expansion reads as the formula that it is.
#pragma once

#include <memory>

#include "passes/rewriter.hpp"

namespace kw {

// A value of the graph, a number, or an operation on terms. Operations are emitted when their value is asked for,
// operands from left to right: C++ leaves the order in which it evaluates a formula's parts to the compiler, and the
// graph must not depend on it.
class Term {
 public:
  Term(Rewriter& rewriter, ValueId id);
  Term(double number) : number_(number) {}   // NOLINT: numbers are terms
  Term(int64_t number) : number_(number) {}  // NOLINT

  bool is_value() const { return operation_ != nullptr; }
  ValueId id() const;
  const TensorType& type() const;

  struct Named {
    std::string name;
    std::variant<Argument, std::shared_ptr<Term>> value;
    Named(std::string name, Argument argument) : name(std::move(name)), value(std::move(argument)) {}
    Named(std::string name, const Term& term) : name(std::move(name)), value(std::make_shared<Term>(term)) {}
  };
  // "exp" → aten.exp.default(self)
  Term apply(const std::string& op) const;
  Term call(std::string op, std::vector<Named> rest) const;             // with `self` in front
  static Term operation(std::string op, std::vector<Named> arguments);  // one of the arguments is a value

 private:
  struct Operation;
  Term() = default;
  Argument emitted() const;

  std::shared_ptr<Operation> operation_;
  Argument number_;
};

Term operator+(const Term& left, const Term& right);
Term operator-(const Term& left, const Term& right);
Term operator*(const Term& left, const Term& right);
Term operator/(const Term& left, const Term& right);
Term operator-(const Term& term);

Term less(const Term& left, const Term& right);
Term less_equal(const Term& left, const Term& right);
Term equal(const Term& left, const Term& right);
Term not_equal(const Term& left, const Term& right);
Term where(const Term& condition, const Term& then, const Term& otherwise);  // one of the two is a value
Term at_least(const Term& term, double bound);                               // clamp(min=bound)

Term sum(const Term& term, IntList axes, bool keep = false);
Term mean(const Term& term, IntList axes);
Term norm(const Term& term, double order, IntList axes, bool keep = false);
Term view(const Term& term, Shape size);
IntList all_axes(const Term& term);

}  // namespace kw
