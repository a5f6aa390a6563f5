// Which combinations of parameters the search looks at, by a made-up cost.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "search/likeliest.hpp"

namespace kw::search {
namespace {

GroupEntry entry_of(std::vector<plan::ParameterRange> space) {
  GroupEntry entry;
  for (const plan::ParameterRange& range : space) entry.defaults[range.name] = range.values.front();
  entry.space = std::move(space);
  return entry;
}

TEST(Likeliest, HoldsAllOfASmallSpaceInOrder) {
  const GroupEntry entry = entry_of({{"a", {1, 2, 4}}, {"b", {1, 3}}});
  const auto found = likeliest(entry, {{"a", 2}, {"b", 1}, {"kept", 7}}, [](const plan::Parameters& one) {
    if (one.at("a") == 4 && one.at("b") == 3) return std::numeric_limits<double>::infinity();
    return static_cast<double>(one.at("a") * 10 - one.at("b"));
  });
  ASSERT_EQ(found.size(), 5u);  // what cannot be lowered is no candidate
  EXPECT_EQ(found.front().parameters, (plan::Parameters{{"a", 1}, {"b", 3}, {"kept", 7}}));
  for (size_t i = 1; i < found.size(); ++i) EXPECT_LE(found[i - 1].cost, found[i].cost);
}

// 6^8 of them. Two parameters only pay together, and half of the space cannot be lowered.
TEST(Likeliest, FindsTheBestOfALargeSpaceWithoutPricingIt) {
  std::vector<plan::ParameterRange> space;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) space.push_back({name, {1, 2, 4, 8, 16, 32}});
  const GroupEntry entry = entry_of(space);
  size_t priced = 0;
  const auto found = likeliest(entry, entry.defaults, [&](const plan::Parameters& one) {
    ++priced;
    if (one.at("g") * one.at("h") > 128) return std::numeric_limits<double>::infinity();
    double cost = one.at("a") >= 16 && one.at("b") >= 16 ? 1 : 3;
    for (const char* name : {"c", "d", "e", "f"}) cost += std::abs(std::log2(static_cast<double>(one.at(name))) - 3);
    return cost + 1.0 / static_cast<double>(one.at("g") * one.at("h"));
  });
  EXPECT_LE(priced, kMostPriced + 8 * 6);
  ASSERT_FALSE(found.empty());
  EXPECT_DOUBLE_EQ(found.front().cost, 1 + 1.0 / 128);
}

}  // namespace
}  // namespace kw::search
