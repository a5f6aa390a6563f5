// How tile programs become loops of a CPU: which instructions share them, and where tiles live.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "lower/lane_ends.hpp"
#include "lower/lane_order.hpp"
#include "lower/loop_plan.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

tile::Program program_of(const std::string& lanes, const std::string& lines) {
  return tile::parse_program("program p {\n  grid block = 2\n  lane " + lanes +
                             "\n  launch warps 4\n  buffer x: f32[2, 64, 64] input\n  buffer w: f32[64] input\n"
                             "  buffer y: f32[2, 64, 64] output\n  buffer z: f32[2, 64] output\n" +
                             lines + "}\n");
}

// "row(x_tile row(…)) for(…)": loops by their lane, instructions by their result or what they are.
std::string shape_of(const tile::Program& program, const std::vector<LoopStep>& steps) {
  std::string text;
  for (const LoopStep& step : steps) {
    text += text.empty() ? "" : " ";
    if (!step.instruction) {
      text += program.symbols[step.lane].name + (step.simd ? "!(" : "(") + shape_of(program, step.body) + ")";
    } else if (step.instruction->kind == tile::Kind::kStore) {
      text += "store";
    } else if (step.instruction->kind == tile::Kind::kFor) {
      text += "for(" + shape_of(program, step.body) + ")";
    } else {
      text += program.values[step.instruction->results[0]].name;
    }
  }
  return text;
}

// Of the program as it is, with its masks.
std::shared_ptr<const LoopPlan> plan_of(const tile::Program& program) {
  const auto lowered = lowered_by(cpu::lowering_steps().subspan(2), program);
  return {lowered, &*lowered->loops};
}

std::string shape_of(const tile::Program& program) { return shape_of(program, plan_of(program)->body); }

const TilePlace& place_of(const tile::Program& program, const LoopPlan& plan, const std::string& name) {
  for (size_t value = 0; value < program.values.size(); ++value)
    if (program.values[value].name == name) return plan.places[value];
  throw std::runtime_error("no value is called " + name);
}

std::string lanes_text(const tile::Program& program, const std::vector<tile::Symbol>& lanes) {
  std::string text;
  for (tile::Symbol lane : lanes) text += (text.empty() ? "" : " ") + program.symbols[lane].name;
  return text;
}

TEST(LoopPlan, ElementwiseInstructionsShareALoopAndNeedNoArrays) {
  const tile::Program program = program_of("row = 4, column = 16", R"(
  %a: f32[row, column] = load x[block, row, column]
  %b: f32[row, column] = exp %a
  %c: f32[row, column] = mul %b, %a
  store y[block, row, column] <- %c
)");
  EXPECT_EQ(shape_of(program), "row(column!(a b c store))");
  const auto plan = plan_of(program);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(place_of(program, *plan, name).home, Home::kVariable);
    EXPECT_TRUE(place_of(program, *plan, name).lanes.empty());
  }
}

// `between` stands between a store to y and one to z.
std::string order_of_stores(const std::string& between) {
  return shape_of(
      tile::parse_program("program p {\n  grid block = 2\n  lane column = 16\n  launch warps 4\n"
                          "  buffer x: f32[2, 16] input\n  buffer w: f32[16] input\n"
                          "  buffer y: f32[2, 16] output\n  buffer z: f32[2, 16] output\n"
                          "  %a: f32[column] = load x[block, column]\n"
                          "  store y[block, column] <- %a\n" +
                          between +
                          "  %c: f32[column] = mul %a, %b\n"
                          "  store z[block, column] <- %c\n}\n"));
}

TEST(LoopPlan, StoresComeBehindLoadsOfOtherBuffers) {
  EXPECT_EQ(order_of_stores("  %b: f32[column] = load w[column]\n"), "column!(a b store c store)");
  // What is stored and read again is no longer in the same loop.
  EXPECT_EQ(order_of_stores("  %b: f32[column] = load y[block, column]\n"), "column!(a store) column!(b c store)");
}

TEST(LoopPlan, StoresStayBeforeLoadsOfWhatTheyWrite) {
  EXPECT_EQ(shape_of(tile::parse_program("program p {\n  grid block = 2\n  launch warps 4\n"
                                         "  buffer x: f32[2, 16] input\n  buffer y: f32[2, 17] inout\n"
                                         "  for at = 0 to 16 step 1 {\n"
                                         "    %a: f32 = load x[block, at]\n"
                                         "    store y[block, at] <- %a\n"
                                         "    %b: f32 = load y[block, at + 1]\n"
                                         "    %c: f32 = mul %a, %b\n"
                                         "    store y[block, at + 1] <- %c\n  }\n}\n")),
            "for(a store b c store)");
}

TEST(LoopPlan, WhatNeedsAFoldComesBehindItsLoopAndWhatIsKeptIsOneRow) {
  const tile::Program program = program_of("row = 4, column = 16", R"(
  %a: f32[row, column] = load x[block, row, column]
  %total: f32[row] = fold sum %a over column
  %c: f32[row, column] = div %a, %total
  store y[block, row, column] <- %c
)");
  EXPECT_EQ(shape_of(program), "row(column!(a total) column!(c store))");
  const auto plan = plan_of(program);
  EXPECT_EQ(place_of(program, *plan, "a").home, Home::kStack);
  EXPECT_EQ(lanes_text(program, place_of(program, *plan, "a").lanes), "column");
  EXPECT_EQ(place_of(program, *plan, "total").home, Home::kVariable);
  EXPECT_EQ(plan->body[0].body[0].folds.size(), 1U);
}

TEST(LoopPlan, ALoadOfOtherLanesGoesBeforeTheLoopThatNeedsIt) {
  const tile::Program program = program_of("row = 4, column = 16", R"(
  %a: f32[row, column] = load x[block, row, column]
  %b: f32[row, column] = exp %a
  %w_tile: f32[column] = load w[column]
  %c: f32[row, column] = mul %b, %w_tile
  store y[block, row, column] <- %c
)");
  EXPECT_EQ(shape_of(program), "column!(w_tile) row(column!(a b c store))");
}

TEST(LoopPlan, ConstantsAndConditionsOnPlacesAreRepeatedInsteadOfKept) {
  const tile::Program program = program_of("row = 4, column = 16", R"(
  %at: i32[column] = index block * 16 + column
  %end: i32 = constant 60
  %inside: b1[column] = less %at, %end
  %a: f32[row, column] = load x[block, row, column] where %inside otherwise 0.0
  %total: f32[row] = fold sum %a over column
  %c: f32[row, column] = mul %a, %total
  store y[block, row, column] <- %c where %inside
)");
  EXPECT_EQ(shape_of(program), "row(column!(at inside a total) column!(c at inside store))");
  const auto plan = plan_of(program);
  EXPECT_EQ(place_of(program, *plan, "end").home, Home::kWritten);
  EXPECT_EQ(place_of(program, *plan, "inside").home, Home::kVariable);
}

TEST(LoopPlan, CarriedArraysAreChangedWhereTheyStand) {
  const tile::Program program = program_of("m = 16, n = 16, k = 16", R"(
  %zero: f32[m, n] = constant 0.0
  %two: f32 = constant 2.0
  for start = 0 to 64 step 16 carry %sum: f32[m, n] = %zero -> %product {
    %a: f32[m, k] = load x[block, m, start + k]
    %b: f32[n, k] = load x[block, n, start + k]
    %scaled: f32[m, n] = mul %sum, %two
    %next: f32[m, n] = dot %scaled, %a, %b
    yield %next
  }
  store y[block, m, n] <- %product
)");
  const auto plan = plan_of(program);
  const tile::Value sum = place_of(program, *plan, "sum").storage;
  for (const char* name : {"scaled", "next", "product"}) EXPECT_EQ(place_of(program, *plan, name).storage, sum) << name;
  EXPECT_EQ(lanes_text(program, place_of(program, *plan, "b").lanes), "k n");
  // Elements of the other operand are read one by one, where they lie.
  EXPECT_EQ(place_of(program, *plan, "a").home, Home::kMemory);
}

TEST(LoopPlan, WhatIsNeededAfterwardsKeepsItsArray) {
  const tile::Program program = program_of("m = 16, n = 16, k = 16", R"(
  %start_sum: f32[m, n] = load x[block, m, n]
  for start = 0 to 64 step 16 carry %sum: f32[m, n] = %start_sum -> %product {
    %a: f32[m, k] = load x[block, m, start + k]
    %b: f32[n, k] = load x[block, n, start + k]
    %next: f32[m, n] = dot %sum, %a, %b
    %both: f32[m, n] = add %next, %sum
    yield %both
  }
  %last: f32[m, n] = add %product, %start_sum
  store y[block, m, n] <- %last
)");
  const auto plan = plan_of(program);
  EXPECT_NE(place_of(program, *plan, "next").storage, place_of(program, *plan, "sum").storage);
  EXPECT_NE(place_of(program, *plan, "start_sum").storage, place_of(program, *plan, "sum").storage);
  EXPECT_EQ(place_of(program, *plan, "both").storage, place_of(program, *plan, "sum").storage);
}

TEST(LoopPlan, ValuesThatChangePlacesKeepTwoArrays) {
  const tile::Program program = program_of("column = 16", R"(
  %a: f32[column] = load w[column]
  %b: f32[column] = load w[column + 16]
  for i = 0 to 3 carry %left: f32[column] = %a, %right: f32[column] = %b -> %c, %d {
    yield %right, %left
  }
  store z[block, column] <- %c
  store z[block, column + 16] <- %d
)");
  const auto plan = plan_of(program);
  EXPECT_NE(place_of(program, *plan, "left").storage, place_of(program, *plan, "right").storage);
}

TEST(LoopPlan, AStoreIsNotMovedAcrossALoadOfItsBuffer) {
  const tile::Program program = program_of("column = 16", R"(
  buffer s: f32[64] inout
  %a: f32[column] = load s[column]
  store s[column + 1] <- %a
  %b: f32[column] = load s[column]
  store z[block, column] <- %b
)");
  EXPECT_EQ(shape_of(program), "column!(a) column!(store) column!(b store)");
}

TEST(LoopPlan, LargeArraysAreInTheThreadsScratch) {
  const tile::Program program = program_of("row = 64, column = 64", R"(
  %a: f32[row, column] = load x[block, row, column]
  %total: f32[column] = fold sum %a over row
  %c: f32[row, column] = mul %a, %total
  %most: f32 = fold max %c over row, column
  %d: f32[row, column] = div %c, %most
  store y[block, row, column] <- %d
)");
  const auto plan = plan_of(program);
  EXPECT_EQ(place_of(program, *plan, "total").home, Home::kStack);
  EXPECT_EQ(place_of(program, *plan, "c").storage, place_of(program, *plan, "a").storage);
  EXPECT_EQ(plan->scratch_bytes, 0);  // 64 · 64 floats are as many as the stack takes
  const tile::Program wider = program_of("row = 64, column = 128", R"(
  %a: f32[row, column] = load x[block, row, column / 2]
  %most: f32 = fold max %a over row, column
  %d: f32[row, column] = div %a, %most
  %low: f32[row] = fold min %d over column
  store z[block, row] <- %low
)");
  const auto wide = plan_of(wider);
  EXPECT_EQ(place_of(wider, *wide, "a").home, Home::kScratch);
  EXPECT_EQ(wide->scratch_bytes, 64 * 128 * 4 + 64);  // and a line to spare
}

TEST(LoopPlan, ColumnsOfProductsAreTheInnermostLanes) {
  const tile::Program program = program_of("query = 16, key = 16, feature = 64, value = 16", R"(
  %zero: f32[query, key] = constant 0.0
  %none: f32[query, value] = constant 0.0
  %q: f32[query, feature] = load x[0, query, feature]
  %k: f32[key, feature] = load x[1, key, feature]
  %score: f32[query, key] = dot %zero, %q, %k
  %v: f32[key, value] = load x[1, key, value]
  %out: f32[query, value] = dot %none, %score, %v
  store y[block, query, value] <- %out
)");
  std::vector<int> ranks = rank_lanes(program);
  std::vector<tile::Symbol> order;
  for (size_t symbol = 0; symbol < ranks.size(); ++symbol)
    if (ranks[symbol] >= 0) order.push_back(static_cast<tile::Symbol>(symbol));
  std::sort(order.begin(), order.end(), [&](tile::Symbol a, tile::Symbol b) { return ranks[a] < ranks[b]; });
  EXPECT_EQ(lanes_text(program, order), "query feature key value");
}

TEST(LoopPlan, LoopsThatEndWhereABlockStandsMakeBlocksUneven) {
  const auto is_uneven = [](const std::string& end) {
    const tile::Program program = program_of("column = 16", R"(
  %zero: f32[column] = constant 0.0
  for start = 0 to )" + end + R"( step 16 carry %sum: f32[column] = %zero -> %total {
    %a: f32[column] = load w[start + column]
    %next: f32[column] = add %sum, %a
    yield %next
  }
  store z[block, column] <- %total
)");
    return plan_of(program)->is_uneven;
  };
  EXPECT_TRUE(is_uneven("block * 16 + 16"));
  EXPECT_FALSE(is_uneven("64"));
}

// --- Lanes that end early ---

// "column: 60 - start", or nothing.
std::string ends_of(const std::string& lines) {
  tile::Program program = program_of("row = 4, column = 16", R"(
  %zero: f32 = constant 0.0
  %before: f32[row] = constant 0.0
  %bound: i32 = constant 60
  for start = 0 to 60 step 16 {
    %at: i32[column] = index start + column
    %inside: b1[column] = less %at, %bound
    %a: f32[row, column] = load x[block, row, start + column] where %inside otherwise 0.0
)" + lines + "  }\n");
  std::string text;
  for (const auto& [place, end] : end_lanes(program))
    text += program.symbols[place.first].name + ": " +
            kernel::print_index(end.end, {[&](tile::Symbol symbol) { return program.symbols[symbol].name; }});
  return text;
}

TEST(LaneEnds, MaskedStoresAndFoldsOfNothingEndALane) {
  EXPECT_EQ(ends_of("store y[block, row, start + column] <- %a where %inside\n"), "column: 60 - start");
  EXPECT_EQ(ends_of("%t: f32[row] = fold sum %a over column\nstore z[block, row] <- %t\n"), "column: 60 - start");
  EXPECT_EQ(ends_of("%e: f32[row, column] = exp %a\n%s: f32[row, column] = select %inside, %e, %zero\n"
                    "%t: f32[row] = fold sum %s over column\nstore z[block, row] <- %t\n"),
            "column: 60 - start");
  for (const char* scan : {"%s: f32[row, column] = scan prod %a along column\n",
                           "%s: f32[row, column] = scan sum %a along column reversed\n",
                           "%s: f32[row, column], %t: f32[row] = scan sum %a along column after %before\n"})
    EXPECT_EQ(ends_of(std::string(scan) + "store y[block, row, start + column] <- %s where %inside\n"),
              "column: 60 - start");
}

TEST(LaneEnds, StandForTheMasksThatKeepAccessesInsideTheirBuffers) {
  tile::Program program = program_of("row = 4, column = 16", R"(
  %bound: i32 = constant 64
  for start = 0 to 72 step 16 {
    %at: i32[column] = index start + column
    %inside: b1[column] = less %at, %bound
    %a: f32[row, column] = load x[block, row, start + column] where %inside otherwise 0.0
    store y[block, row, start + column] <- %a where %inside
  }
)");
  tile::LaneEnds ends = end_lanes(program);
  EXPECT_EQ(tile::find_fault(program, ends), "");
  EXPECT_NE(tile::find_fault(program).find("dimension 2 of buffer 'x' is left: 64 outside 64"), std::string::npos)
      << tile::find_fault(program);
  ends.begin()->second.end = ends.begin()->second.end + tile::Index(1);
  EXPECT_NE(tile::find_fault(program, ends).find("dimension 2 of buffer 'x' is left: 64 outside 64"), std::string::npos)
      << tile::find_fault(program, ends);
}

TEST(LaneEnds, WhatSeesPointsBehindTheEndKeepsThem) {
  const char* const cases[] = {
      "store y[block, row, column] <- %a\n",
      "%e: f32[row, column] = exp %a\n%t: f32[row] = fold sum %e over column\nstore z[block, row] <- %t\n",
      "%t: f32[row] = fold max %a over column\nstore z[block, row] <- %t\n",
      "%t: i32[row] = fold arg_max %a over column\n%f: f32[row] = cast %t\nstore z[block, row] <- %f\n",
      "%s: f32[row, column] = scan prod %a along column reversed\n"
      "store y[block, row, start + column] <- %s where %inside\n",
      "%s: f32[row, column], %t: f32[row] = scan prod %a along column after %before\nstore z[block, row] <- %t\n",
      "%b: f32[row, column] = load x[0, row, column]\n%d: f32[row] = constant 0.0\n%p: f32[row] = dot %d, %a, %b\n"
      "store z[block, row] <- %p\n",
  };
  for (const char* lines : cases) EXPECT_EQ(ends_of(lines), "") << lines;
}

TEST(LaneEnds, WhatGoesFromOneEndToAnotherKeepsAllPoints) {
  tile::Program program = program_of("column = 16", R"(
  %none: f32[column] = constant 0.0
  %bound: i32 = constant 60
  for start = 0 to 60 step 16 carry %sum: f32[column] = %none -> %total {
    %at: i32[column] = index start + column
    %inside: b1[column] = less %at, %bound
    %a: f32[column] = load w[start + column] where %inside otherwise 0.0
    %next: f32[column] = add %sum, %a
    yield %next
  }
  %all: f32 = fold sum %total over column
  store z[block, 0] <- %all
)");
  EXPECT_TRUE(end_lanes(program).empty());
}

}  // namespace
}  // namespace kw::lower
