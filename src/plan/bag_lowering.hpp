// Expressions of embedding_bag.
#pragma once

#include "plan/bags.hpp"
#include "plan/group_builder.hpp"

namespace kw::plan {

// What a load of the table yields outside the bag, so that folding it changes nothing.
double value_outside(const Bags& bags);

struct BagContext {
  GroupBuilder& build;
  const Bags& bags;
  const BagElement& element;
  ExprId value;   // the row's element, value_outside() beyond the bag
  ExprId weight;  // of the row, kNoExpr: none
};

// The bag's result; of an empty bag 0.
ExprId lower_bag(const BagContext& context);

}  // namespace kw::plan
