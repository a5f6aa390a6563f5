// How exactly the values of a tile program have to be computed.
#include <gtest/gtest.h>

#include <string>

#include "emit/triton/tile_roots.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "lower/schedule.hpp"

namespace kw::triton {
namespace {

tile::Program after_product(const std::string& after) {
  const auto kernel = kernel::parse_kernel(R"(
kernel product {
  axis row = 32, column = 32, depth = 64
  in x: f16[32, 64]
  in y: f16[64, 32]
  in r: f32[32]
  out z: f32[32, 32]
  total = dot(x[row, depth], y[depth, column]; depth)
)" + after + "\n}");
  return lower::to_tiles(
      kernel, lower::parse_schedule(std::string_view(R"({"row":{"grid":32},"column":{"tile":32},"depth":{"loop":16}})"),
                                    kernel));
}

TileRoots roots_after_product(const std::string& after) { return roots_of(after_product(after)); }

TEST(TileRoots, ProductsBehindAProductMayBeRoundedWithTheirSums) {
  EXPECT_TRUE(roots_after_product("  z[row, column] = total * 0.5 + r[row]").contracts);
  EXPECT_TRUE(roots_after_product("  z[row, column] = total").contracts);
}

TEST(TileRoots, OthersAreRoundedAsPyTorchs) {
  EXPECT_FALSE(roots_after_product("  z[row, column] = total + (r[row] * 0.3 + r[row])").contracts);
}

TEST(TileRoots, NothingIsContractedWhereALastPlaceDecides) {
  const TileRoots roots = roots_after_product("  z[row, column] = floor(total * 0.5 + r[row])");
  EXPECT_TRUE(roots.has_steps);
  EXPECT_FALSE(roots.contracts);
  EXPECT_TRUE(roots.asks_exact_quotient(0, 0, 0));
}

TEST(TileRoots, SignsAndSharesOfLanesHideNoProduct) {
  EXPECT_FALSE(roots_after_product("  z[row, column] = total + (r[row] - -(r[row] * 0.3))").contracts);
}

TEST(TileRoots, AQuotientByASumNeedNotBeExact) {
  const auto is_exact = [](const std::string& quotient) {
    const tile::Program program = after_product("  z[row, column] = total * 0.0 + " + quotient);
    const TileRoots roots = roots_of(program);
    bool exact = false;
    tile::for_each(program.body, [&](const tile::Instruction& one) {
      if (one.kind == tile::Kind::kOp && one.op == tile::ScalarOp::kDiv)
        exact = roots.asks_exact_quotient(one.results[0], one.operands[0], one.operands[1]);
    });
    return exact;
  };
  EXPECT_TRUE(is_exact("r[row] / r[row]"));
  EXPECT_FALSE(is_exact("r[row] / (total + 2.0)"));
  EXPECT_FALSE(is_exact("r[row] / (exp(r[row]) + 2.0)"));
  EXPECT_FALSE(is_exact("total / 6.0"));
}

}  // namespace
}  // namespace kw::triton
