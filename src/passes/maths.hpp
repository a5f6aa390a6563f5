// Writing formulas into a graph: Term overloads the operators, so that an expansion reads as the formula that it is.
#pragma once

#include "passes/rewriter.hpp"

namespace kw {

// A value of the graph or a number. Each operation emits one ATen node; at least one operand is a value.
class Term {
 public:
  Term(Rewriter& rewriter, ValueId id) : rewriter_(&rewriter), argument_(ValueRef{id}) {}
  Term(double number) : argument_(number) {}                                   // NOLINT: numbers are terms
  Term(int64_t number) : argument_(number) {}                                  // NOLINT

  bool is_value() const { return rewriter_ != nullptr; }
  ValueId id() const { return std::get<ValueRef>(argument_).id; }
  const TensorType& type() const { return rewriter_->type(id()); }
  const Argument& argument() const { return argument_; }
  Rewriter* rewriter() const { return rewriter_; }

  // "exp" → aten.exp.default(self)
  Term apply(const std::string& op) const;
  Term call(std::string op, std::vector<NamedArgument> rest) const;            // with `self` in front

 private:
  Rewriter* rewriter_ = nullptr;
  Argument argument_;
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
Term where(const Term& condition, const Term& then, const Term& otherwise);   // one of the two is a value
Term at_least(const Term& term, double bound);                                 // clamp(min=bound)

Term sum(const Term& term, IntList axes, bool keep = false);
Term mean(const Term& term, IntList axes);
Term norm(const Term& term, double order, IntList axes, bool keep = false);
Term view(const Term& term, Shape size);
IntList all_axes(const Term& term);

}  // namespace kw
