#include "emit/triton/index_parts.hpp"

#include <fmt/format.h>

namespace kw::triton {

using kernel::Index;
using kernel::IndexFactor;

void for_each_part(const Index& index, const std::function<void(const Index&)>& visit) {
  for (const kernel::IndexTerm& term : index.terms)
    for (const IndexFactor& factor : term.factors) {
      if (factor.kind == IndexFactor::Kind::kSymbol) continue;
      for_each_part(*factor.dividend, visit);
      for_each_part(*factor.divisor, visit);
      Index part;
      part.terms = {{1, {factor}}};
      visit(part);
    }
}

namespace {

// Loops that are walked as one are called after all of them and end in "step".
std::string short_name(const std::string& name) {
  constexpr size_t kLongest = 24;
  return name.size() <= kLongest ? name : name.substr(name.rfind('_') + 1);
}

}  // namespace

std::string name_of_part(const Index& part, const std::function<std::string(kernel::Symbol)>& name) {
  if (const auto symbol = kernel::as_symbol(part)) return short_name(name(*symbol));
  const kernel::IndexTerm& last = part.terms.back();
  const IndexFactor& factor = last.factors.back();
  Index alone;
  alone.terms = {{1, {factor}}};
  if (!(alone == part)) return name_of_part(alone, name) + "_place";
  const bool divides = factor.kind == IndexFactor::Kind::kQuotient;
  const auto divisor = kernel::as_constant(*factor.divisor);
  const std::string of = divisor ? fmt::format("{}_{}", divides ? "over" : "mod", *divisor)
                                 : (divides ? "quotient" : "remainder");
  return name_of_part(*factor.dividend, name) + "_" + of;
}

}  // namespace kw::triton
