#include "passes/maths.hpp"

#include <numeric>

#include "support/error.hpp"

namespace kw {
namespace {

Term binary(const std::string& op, const Term& left, const Term& right) {
  Rewriter* rewriter = left.is_value() ? left.rewriter() : right.rewriter();
  KW_ASSERT(rewriter, "a formula of numbers alone");
  return {*rewriter, rewriter->emit("aten." + op, {{"self", left.argument()}, {"other", right.argument()}})};
}

Term compare(const std::string& op, const Term& left, const Term& right) { return binary(op + (right.is_value() ? ".Tensor" : ".Scalar"), left, right); }

}  // namespace

Term Term::apply(const std::string& op) const { return call(op + ".default", {}); }

Term Term::call(std::string op, std::vector<NamedArgument> rest) const {
  rest.insert(rest.begin(), {"self", argument_});
  return {*rewriter_, rewriter_->emit("aten." + std::move(op), std::move(rest))};
}

Term operator+(const Term& left, const Term& right) { return left.is_value() ? binary("add.Tensor", left, right) : binary("add.Tensor", right, left); }
Term operator-(const Term& left, const Term& right) { return binary("sub.Tensor", left, right); }
Term operator*(const Term& left, const Term& right) { return left.is_value() ? binary("mul.Tensor", left, right) : binary("mul.Tensor", right, left); }
Term operator/(const Term& left, const Term& right) { return binary("div.Tensor", left, right); }
Term operator-(const Term& term) { return term.apply("neg"); }

Term less(const Term& left, const Term& right) { return compare("lt", left, right); }
Term less_equal(const Term& left, const Term& right) { return compare("le", left, right); }
Term equal(const Term& left, const Term& right) { return compare("eq", left, right); }
Term not_equal(const Term& left, const Term& right) { return compare("ne", left, right); }

Term where(const Term& condition, const Term& then, const Term& otherwise) {
  const std::string overload = !then.is_value() ? "ScalarSelf" : !otherwise.is_value() ? "ScalarOther" : "self";
  Rewriter& rewriter = *condition.rewriter();
  return {rewriter, rewriter.emit("aten.where." + overload, {{"condition", condition.argument()}, {"self", then.argument()}, {"other", otherwise.argument()}})};
}

Term at_least(const Term& term, double bound) { return term.call("clamp.default", {{"min", bound}}); }

Term sum(const Term& term, IntList axes, bool keep) {
  std::vector<NamedArgument> rest = {{"dim", std::move(axes)}};
  if (keep) rest.push_back({"keepdim", true});
  return term.call("sum.dim_IntList", std::move(rest));
}

Term mean(const Term& term, IntList axes) { return term.call("mean.dim", {{"dim", std::move(axes)}}); }

Term norm(const Term& term, double order, IntList axes, bool keep) {
  std::vector<NamedArgument> rest = {{"ord", order}, {"dim", std::move(axes)}};
  if (keep) rest.push_back({"keepdim", true});
  return term.call("linalg_vector_norm.default", std::move(rest));
}

Term view(const Term& term, Shape size) { return term.call("view.default", {{"size", std::move(size)}}); }

IntList all_axes(const Term& term) {
  IntList axes(term.type().rank());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace kw
