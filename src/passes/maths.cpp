#include "passes/maths.hpp"

#include <numeric>

#include "support/error.hpp"

namespace kw {

struct Term::Operation {
  Rewriter& rewriter;
  std::string op;
  std::vector<Named> arguments;
  ValueId id = kNoValue;  // once emitted
};

Term::Term(Rewriter& rewriter, ValueId id) : operation_(std::make_shared<Operation>(Operation{rewriter, "", {}, id})) {}

Term Term::operation(std::string op, std::vector<Named> arguments) {
  Rewriter* rewriter = nullptr;
  for (const auto& argument : arguments)
    if (const auto* term = std::get_if<std::shared_ptr<Term>>(&argument.value); term && (*term)->is_value())
      rewriter = &(*term)->operation_->rewriter;
  KW_ASSERT(rewriter, "a formula of numbers alone");
  Term term;
  term.operation_ = std::make_shared<Operation>(
      Operation{*rewriter, "aten." + std::move(op), std::move(arguments), kNoValue});
  return term;
}

Argument Term::emitted() const { return is_value() ? Argument(ValueRef{id()}) : number_; }

ValueId Term::id() const {
  KW_ASSERT(is_value(), "a number is asked for its place in the graph");
  if (operation_->id != kNoValue) return operation_->id;
  std::vector<NamedArgument> arguments;
  for (const auto& [name, value] : operation_->arguments) {
    const auto* term = std::get_if<std::shared_ptr<Term>>(&value);
    arguments.push_back({name, term ? (*term)->emitted() : std::get<Argument>(value)});
  }
  return operation_->id = operation_->rewriter.emit(operation_->op, std::move(arguments));
}

const TensorType& Term::type() const { return operation_->rewriter.type(id()); }

Term Term::apply(const std::string& op) const { return call(op + ".default", {}); }

Term Term::call(std::string op, std::vector<Named> rest) const {
  rest.insert(rest.begin(), Named("self", *this));
  return operation(std::move(op), std::move(rest));
}

namespace {

Term binary(std::string op, const Term& left, const Term& right) {
  return Term::operation(std::move(op), {{"self", left}, {"other", right}});
}
Term compare(const std::string& op, const Term& left, const Term& right) {
  return binary(op + (right.is_value() ? ".Tensor" : ".Scalar"), left, right);
}

}  // namespace

Term operator+(const Term& left, const Term& right) {
  return left.is_value() ? binary("add.Tensor", left, right) : binary("add.Tensor", right, left);
}
Term operator-(const Term& left, const Term& right) { return binary("sub.Tensor", left, right); }
Term operator*(const Term& left, const Term& right) {
  return left.is_value() ? binary("mul.Tensor", left, right) : binary("mul.Tensor", right, left);
}
Term operator/(const Term& left, const Term& right) { return binary("div.Tensor", left, right); }
Term operator-(const Term& term) { return term.apply("neg"); }

Term less(const Term& left, const Term& right) { return compare("lt", left, right); }
Term less_equal(const Term& left, const Term& right) { return compare("le", left, right); }
Term equal(const Term& left, const Term& right) { return compare("eq", left, right); }
Term not_equal(const Term& left, const Term& right) { return compare("ne", left, right); }

Term where(const Term& condition, const Term& then, const Term& otherwise) {
  const std::string overload = !then.is_value() ? "ScalarSelf" : !otherwise.is_value() ? "ScalarOther" : "self";
  return Term::operation("where." + overload, {{"condition", condition}, {"self", then}, {"other", otherwise}});
}

Term at_least(const Term& term, double bound) { return term.call("clamp.default", {{"min", Argument(bound)}}); }

Term sum(const Term& term, IntList axes, bool keep) {
  std::vector<Term::Named> rest = {{"dim", Argument(std::move(axes))}};
  if (keep) rest.emplace_back("keepdim", Argument(true));
  return term.call("sum.dim_IntList", std::move(rest));
}

Term mean(const Term& term, IntList axes) { return term.call("mean.dim", {{"dim", Argument(std::move(axes))}}); }

Term norm(const Term& term, double order, IntList axes, bool keep) {
  std::vector<Term::Named> rest = {{"ord", Argument(order)}, {"dim", Argument(std::move(axes))}};
  if (keep) rest.emplace_back("keepdim", Argument(true));
  return term.call("linalg_vector_norm.default", std::move(rest));
}

Term view(const Term& term, Shape size) { return term.call("view.default", {{"size", Argument(std::move(size))}}); }

IntList all_axes(const Term& term) {
  IntList axes(term.type().rank());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace kw
