// Kernels' schedules as text, and what they refuse, by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

using kernel::Kernel;

std::string refusal(const std::string& kernel, const std::string& schedule) {
  try {
    const Kernel parsed = kernel::parse_kernel(kernel);
    to_tiles(parsed, parse_schedule(std::string_view(schedule), parsed));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << schedule << ": " << error.what();
    return error.what();
  }
  return "";
}

constexpr const char* kSums = R"(kernel sums {
  axis row = 12, column = 40
  in x: f32[12, 40]
  out y: f32[12]
  y[row] = sum(x[row, column]; column)
})";

constexpr const char* kWindows = R"(kernel windows {
  size rows = 0..8
  axis out = 12, dy = 3, dx = rows
  in x: f32[12, 3, rows]
  out y: f32[12]
  y[out] = sum(x[out, dy, dx]; dy, dx)
})";

TEST(Schedules, WhatIsUnknownMisspeltOrOutOfRangeIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"row":{"grid":1}})", "axis 'column' has no mapping"},
      {R"({"row":{"grid":1},"colum":{"loop":8}})", "there is no axis or parameter 'colum'"},
      {R"({"row":{"grid":3},"column":{"loop":8}})", "is 3, but must be a power of two"},
      {R"({"row":{"grid":0},"column":{"loop":8}})", "is 0, but must be a whole number from 1 to 1048576"},
      {R"({"row":{"grid":"4"},"column":{"loop":8}})", "is \"4\", but must be a whole number"},
      {R"({"row":{"grid":1.5},"column":{"loop":8}})", "is 1.5, but must be a whole number"},
      {R"({"row":{"grid":1,"tile":16},"column":{"loop":8}})", "axis 'row' has 2 mappings"},
      {R"({"row":{"grid":1,"stages":2},"column":{"loop":8}})", "axis 'row' is not a loop"},
      {R"({"row":{"grid":1,"stage":2},"column":{"loop":8}})", "axis 'row' has no parameter 'stage'"},
      {R"({"row":{"grid":1},"column":{"tile":32}})", "axis 'column' has a tile of 32, but 40 points"},
      {R"({"row":{"grid":1},"column":{"loop":8,"online":1}})", "must be true or false"},
      {R"({"row":{"grid":1},"column":{"loop":8},"warps":5})", "warps is 5, but must be a power of two"},
      {R"({"row":{"grid":1},"column":{"loop":8},"warps":64})", "from 1 to 32"},
      {R"({"row":{"grid":1},"column":{"loop":8},"nest":["row"]})", "nest has axis 'row' 1 times"},
      {R"({"row":{"loop":1,"simd":true},"column":{"loop":1,"threads":true}})",
       "threads share axis 'column' inside of axis 'row', which is taken side by side"},
      {R"({"row":{"loop":1,"threads":true},"column":{"loop":1,"simd":true},"nest":["column","row"]})",
       "threads share axis 'row' inside of axis 'column'"},
      {R"({"row":{"grid":1},"column":{"loop":8},"order":{"grouped":"row","along":"column"}})",
       "which is not in the grid"},
      {R"({"row":{"grid":1},"column":{"loop":8},"order":{"group":"row"}})", "order has no parameter 'group'"},
      {R"({"row":{"grid":1},"column":{"loop":8},"scheme":"fp16"})", "must be \"ieee\" or \"fp16x3\""},
      {R"({"row":{"grid":1},"column":{"loop":8},"bulk":1})", "bulk is 1, but must be true or false"},
      {R"({"row":{"grid":1},"column":{"loop":8},"skip_masked":1})", "skip_masked is 1, but must be true or false"},
      {R"({"row":{"grid":1},"column":{"loop":8},"skip_masked":true})", "a store is not masked"},
      {R"({"row":{"grid":1,"bounded":true},"column":{"loop":8}})", "and is not online or bounded"},
      {R"({"row":{"grid":1,"unrolled":true},"column":{"loop":8}})", "shared out by blocks, so it is not unrolled"},
      {R"({"row":{"grid":1},"column":{"loop":8,"unrolled":1}})", "must be true or false"},
      {R"({"row":{"grid":1},"column":{"loop":8,"unrolled":true,"stages":2}})", "is unrolled, so it has no stages"},
      {R"({"row":{"grid":1,"stops":true},"column":{"loop":8}})", "axis 'row' is no loop that data can stop"},
      {R"({"row":{"grid":1},"column":{"loop":8,"unrolled":true,"stops":true}})", "is no loop that data can stop"},
      {R"({"row":{"grid":1},"column":{"loop":8,"bounded":true}})", "no mask says where its folds have all they need"},
      {R"({"row":{"loop":2,"stages":2},"column":{"loop":8},"nest":[["row","column"]]})", "stages inside a merged loop"},
      {R"({"row":{"loop":2},"column":{"loop":8},"nest":[["row","column"]]})", "by a value that does not depend on it"},
      {R"({"row":{"loop":2},"column":{"loop":8},"nest":[["row","row"],"column"]})", "nest has axis 'row' 2 times"},
      {R"({"row":{"grid":4,"split":2},"column":{"loop":8}})", "axis 'row' cannot be split by 2"},
      {R"({"row":{"grid":4,"last":true,"split":4},"column":{"loop":8}})", "axis 'row' cannot be split by 4"},
      {R"({"row":{"grid":4,"last":true,"split":3},"column":{"loop":8}})", "is 3, but must be a power of two"},
      {R"({"row":{"grid":4,"last":1},"column":{"loop":8}})", "must be true or false"},
      {R"({"row":{"grid":4},"column":{"loop":8,"last":true}})", "axis 'column' cannot be the last"},
      {R"({"row":{"grid":1,"last":true},"column":{"loop":8}})", "axis 'row' cannot be the last"},
      {R"({"row":{"grid":1},"column":{"loop":8},"order":{"grouped":"row"}})",
       "order needs two axes, but grouped is 'row' and along is ''"},
      {R"({"row":{"grid":1},"column":{"loop":8},"order":{"along":"row"}})",
       "order needs two axes, but grouped is '' and along is 'row'"},
      {R"({"row":{"grid":1},"column":{"loop":8},"order":{"grouped":"row","along":"row"}})",
       "order needs two axes, but grouped is 'row' and along is 'row'"},
      {R"({"row":{"grid":1},"column":{"loop":8},"warps":4,"warps":8})", "'warps' is given twice"},
      {R"({"row":{"grid":1},"column":{"loop":8,"stages":2,"loop":16}})", "'loop' is given twice"},
      {R"({"row":{"grid":1},"row":{"grid":2},"column":{"loop":8}})", "'row' is given twice"},
      {R"([1])", "expected an object"},
      {R"({)", "this is not JSON"},
  };
  for (const auto& [schedule, words] : cases)
    EXPECT_NE(refusal(kSums, schedule).find(words), std::string::npos) << schedule << ": " << refusal(kSums, schedule);
  EXPECT_EQ(refusal(kSums, R"({"row":{"grid":1},"column":{"loop":8}})"), "");
}

constexpr const char* kSoftmaxLinear = R"(kernel weights {
  axis row = 12, column = 40, out = 16
  in x: f32[12, 40]
  in w: f32[16, 40]
  in place: i64[12]
  out y: f32[12, 16]
  out z: f32[40, 12]
  out running: f32[12, 40]
  inout sums: f32[12]
  largest = max(x[row, column]; column)
  y[row, out] = dot(exp(x[row, column] - largest), w[out, column]; column)
  z[column, row] = w[0, column]
  running[row, column] = scan prod(x[row, column]; column)
  sums[place[row]] += largest
})";

TEST(Schedules, WordsThatWouldChangeNothingAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"row":{"grid":1},"column":{"loop":8},"scheme":"fp16x3"})", "the kernel has no product of f32"},
      {R"({"row":{"grid":1},"column":{"loop":8,"online":true}})",
       "axis 'column' is online, but no fold along it needs a maximum along it"},
      {R"({"row":{"loop":1,"stops":true},"column":{"loop":8}})",
       "data stop the loop of axis 'row', but nothing is folded along it"},
      {R"({"row":{"grid":1},"column":{"loop":8,"network":true}})",
       "axis 'column' has a network, but no scan multiplies"},
      {R"({"row":{"grid":1},"column":{"loop":8,"in_order":true}})", "but nothing is scanned along it"},
      {R"({"row":{"loop":1},"column":{"loop":8},"in_order":true})", "data decide the place of no store"},
  };
  for (const auto& [schedule, words] : cases)
    EXPECT_NE(refusal(kSums, schedule).find(words), std::string::npos) << schedule << ": " << refusal(kSums, schedule);
  const Kernel kernel = kernel::parse_kernel(kSoftmaxLinear);
  for (const char* schedule : {
           R"({"row":{"grid":1},"column":{"loop":8,"online":true},"out":{"tile":16},"scheme":"fp16x3","warps":4})",
           R"({"row":{"grid":1},"column":{"loop":8,"network":true},"out":{"tile":16},"warps":4})",
           R"({"row":{"loop":1},"column":{"loop":8,"in_order":true},"out":{"tile":16},"in_order":true,"warps":4})",
           R"({"row":{"loop":1},"column":{"loop":8,"stops":true},"out":{"tile":16},"warps":4})",
       })
    EXPECT_EQ(to_json(parse_schedule(std::string_view(schedule), kernel), kernel).dump(), schedule);
}

TEST(Schedules, AreOneTextForOneSchedule) {
  const Kernel kernel = kernel::parse_kernel(kSums);
  const Kernel windows = kernel::parse_kernel(kWindows);
  const std::string merged = R"({"out":{"grid":4},"dy":{"loop":1},"dx":{"loop":2,"stages":3},"nest":[["dy","dx"]],)"
                             R"("bulk":true,"warps":4})";
  EXPECT_EQ(to_json(parse_schedule(std::string_view(merged), windows), windows).dump(), merged);
  const char* given = R"({"warps":8,"column":{"stages":2,"loop":8},"row":{"grid":4},"nest":["column"]})";
  const std::string text = to_json(parse_schedule(std::string_view(given), kernel), kernel).dump();
  EXPECT_EQ(text, R"({"row":{"grid":4},"column":{"loop":8,"stages":2},"nest":["column"],"warps":8})");
  EXPECT_EQ(parse_schedule(std::string_view(text), kernel), parse_schedule(std::string_view(given), kernel));
}

TEST(Schedules, WhatCannotBeKeptIsRefused) {
  EXPECT_NE(refusal(kSums, R"({"row":{"grid":1},"column":{"grid":8}})")
                .find("axis 'column' is folded, so blocks cannot share"),
            std::string::npos);
  const char* state = R"(kernel k {
  axis step = 3 ordered, unit = 8, source = 8
  in x: f32[3, 8]
  out y: f32[3, 8]
  state h: f32[unit] along step from 0.0
  next h = x[step, unit] + sum(h.previous[source]; source)
  y[step, unit] = h.previous[unit]
})";
  EXPECT_NE(refusal(state, R"({"step":{"loop":1},"unit":{"grid":4},"source":{"tile":8}})")
                .find("another block or iteration has it"),
            std::string::npos);
  EXPECT_NE(
      refusal(state, R"({"step":{"grid":1},"unit":{"tile":8},"source":{"tile":8}})").find("axis 'step' is ordered"),
      std::string::npos);
  EXPECT_EQ(refusal(state, R"({"step":{"loop":1},"unit":{"tile":8},"source":{"tile":8}})"), "");
  const char* nested = R"(kernel k {
  axis row = 12, column = 40
  in x: f32[12, 40]
  out y: f32[12, 40]
  y[row, column] = x[row, column] / sum(x[row, column]; column)
})";
  const std::string inside = refusal(nested, R"({"row":{"loop":4},"column":{"loop":8},"nest":["column","row"]})");
  EXPECT_NE(inside.find("folded inside its own loop"), std::string::npos) << inside;
  EXPECT_EQ(refusal(nested, R"({"row":{"loop":4},"column":{"loop":8}})"), "");
  const char* scan = R"(kernel k {
  axis row = 12, column = 40
  in x: f32[12, 40]
  out y: f32[12, 40]
  y[row, column] = scan sort_up(x[row, column]; column)
})";
  EXPECT_NE(
      refusal(scan, R"({"row":{"grid":1},"column":{"loop":8}})").find("a sort_up walks axis 'column', which is a loop"),
      std::string::npos);
  const char* extended = R"(kernel k {
  axis row = 12, column = 40
  in x: f64[12, 40]
  out y: f64[12]
  y[row] = extended_sum(x[row, column]; column)
})";
  EXPECT_EQ(refusal(extended, R"({"row":{"loop":1},"column":{"tile":64}})"), "");
  EXPECT_NE(refusal(extended, R"({"row":{"grid":1},"column":{"loop":8}})").find("an extended sum is folded along"),
            std::string::npos);
  EXPECT_NE(refusal(extended, R"({"row":{"grid":1},"column":{"tile":64,"unrolled":true}})").find("unrolled tile"),
            std::string::npos);
  EXPECT_NE(refusal(extended, R"({"row":{"grid":1},"column":{"grid":8,"cooperative":true}})")
                .find("extended_sum of f64 over axis"),
            std::string::npos);
  const char* wide = R"(kernel k {
  axis row = 4096, column = 4096
  in x: f32[4096, 4096]
  out y: f32[4096, 4096]
  y[row, column] = x[row, column] + 1.0
})";
  EXPECT_NE(refusal(wide, R"({"row":{"tile":4096},"column":{"tile":4096}})")
                .find("has 16777216 elements, and 1048576 are the most"),
            std::string::npos);
}

TEST(Schedules, ABoundIsNotForgottenInAMergedLoop) {
  const char* sum = R"(kernel k {
  axis row = 12, column = 40
  in x: f32[12, 40]
  out y: f32[1]
  y[0] = sum(x[row, column]; row, column)
})";
  const char* merged = R"({"row":{"loop":2},"column":{"loop":8,"bounded":true},"nest":[["row","column"]]})";
  EXPECT_NE(refusal(sum, merged).find("no mask says where"), std::string::npos) << refusal(sum, merged);
}

TEST(Schedules, MergedLoopsOfWhatMayBeEmptyAreRefused) {
  const char* merged = R"({"out":{"grid":4},"dy":{"loop":1},"dx":{"loop":2},"nest":[["dy","dx"]]})";
  EXPECT_NE(refusal(kWindows, merged).find("axis 'dx' is walked together with others, but may have no points"),
            std::string::npos)
      << refusal(kWindows, merged);
}

// Causal: a block of four queries has all it needs before key 4 · block + 4.
TEST(Schedules, BoundedLoopsEndWhereTheMaskDoes) {
  const char* causal = R"(kernel k {
  axis query = 12, key = 12
  in x: f32[12, 12]
  out y: f32[12]
  score = select(key <= query, x[query, key], -inf)
  largest = max(score; key)
  y[query] = sum(exp(score - largest); key)
})";
  const Kernel kernel = kernel::parse_kernel(causal);
  const auto text = [&](const char* schedule) {
    return tile::print_program(to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel)));
  };
  const std::string once = text(R"({"query":{"grid":4},"key":{"loop":2,"online":true,"bounded":true}})");
  EXPECT_NE(once.find("for key_start = 0 to query_block * 4 + 4 step 2"), std::string::npos) << once;
  const std::string twice = text(R"({"query":{"grid":4},"key":{"loop":2,"bounded":true}})");
  EXPECT_EQ(twice.find("0 to 12"), std::string::npos) << twice;
  std::string before = causal;
  before.replace(before.find("<="), 2, "<");
  EXPECT_NE(refusal(before, R"({"query":{"grid":1},"key":{"loop":2,"bounded":true}})").find("may have no point of it"),
            std::string::npos);
  EXPECT_EQ(refusal(before, R"({"query":{"grid":4},"key":{"loop":2,"bounded":true}})"), "");
  EXPECT_NE(refusal(causal, R"({"query":{"grid":8},"key":{"loop":2,"bounded":true}})").find("may lie beyond its end"),
            std::string::npos);
}

// What each element is stays the same; blocks whose elements are all dropped add up one step.
TEST(Schedules, BoundedProductsThatAreDroppedTakeOneStep) {
  const auto text = [](const char* kept) {
    return fmt::format(R"(kernel k {{
  axis m = 22, n = 19, k = 24
  in a: f32[22, 24]
  in w: f32[24, 19]
  in c: f32[19]
  out y: f32[22, 19]
  y[m, n] = {}
}})",
                       kept);
  };
  tile::Memory memory;
  for (int place = 0; place < 22 * 24; ++place) memory["a"].reals.push_back(place % 7 - 3);
  for (int place = 0; place < 24 * 19; ++place) memory["w"].reals.push_back(place % 5 - 2);
  for (int place = 0; place < 19; ++place) memory["c"].reals.push_back(place % 3 - 1);
  const auto program_of = [](const std::string& kernel, const std::string& bounded, int m, int n) {
    const Kernel parsed = kernel::parse_kernel(kernel);
    const std::string schedule = fmt::format(R"({{"m":{{"grid":{}}},"n":{{"grid":{}}},"k":{{"loop":8{}}}}})", m, n,
                                             bounded);
    return to_tiles(parsed, parse_schedule(std::string_view(schedule), parsed));
  };
  const char* bounded = R"(,"bounded":true)";
  for (const char* kept : {
           "select(n >= m, dot(a[m, k], w[k, n]; k), 0.0)", "select(m < n, 1.0, dot(a[m, k], w[k, n]; k) * 2.0)",
           "select(n <= m + 3, select(m - 5 < n, dot(a[m, k], w[k, n]; k), 0.0), c[n])",
           "select(not (m > n), exp(dot(a[m, k], w[k, n]; k)), 0.0)",
           "select(m > n + 30, dot(a[m, k], w[k, n]; k), 0.0)",  // nowhere
       }) {
    for (const auto& [m, n] : {std::pair(4, 4), std::pair(2, 8), std::pair(8, 1), std::pair(32, 32)}) {
      const tile::Program program = program_of(text(kept), bounded, m, n);
      const std::string printed = tile::print_program(program);
      if (m < 32) { EXPECT_EQ(printed.find("k_start = 0 to 24 step"), std::string::npos) << printed; }
      EXPECT_EQ(tile::interpret(program, memory).at("y").reals,
                tile::interpret(program_of(text(kept), "", m, n), memory).at("y").reals)
          << printed;
    }
  }
  for (const char* everywhere : {
           "dot(a[m, k], w[k, n]; k)",
           "select(c[n] > 0.0, dot(a[m, k], w[k, n]; k), 0.0)",                         // data decide
           "select(n >= m, dot(a[m, k], w[k, n]; k), 0.0) + dot(a[m, k], w[k, n]; k)",  // taken in beside it
           "select(dot(a[m, k], w[k, n]; k) > 0.0, select(n >= m, 1.0, 2.0), 0.0)",     // decides itself
           "select(n >= m or c[n] > 0.0, dot(a[m, k], w[k, n]; k), 0.0)",               // one of two
       }) {
    EXPECT_NE(refusal(text(everywhere), R"({"m":{"grid":4},"n":{"grid":4},"k":{"loop":8,"bounded":true}})")
                  .find("no mask says where"),
              std::string::npos)
        << everywhere;
  }
}

constexpr const char* kWanted = R"(kernel k {
  axis row = 6, column = 5
  in x: f32[6, 5]
  in wanted: f32[6]
  inout y: f32[6]
  total = sum(x[row, column]; column)
  y[row] where wanted[row] > 0.0 = total
})";

TEST(Schedules, BlocksThatWouldStoreNothingStopEarly) {
  const Kernel kernel = kernel::parse_kernel(kWanted);
  tile::Memory memory;
  for (int place = 0; place < 30; ++place) memory["x"].reals.push_back(place);
  memory["wanted"].reals = {0, 0, 1, 0, 0, 0};
  memory["y"].reals = {-1, -1, -1, -1, -1, -1};
  for (const char* schedule : {R"({"row":{"grid":2},"column":{"loop":2},"skip_masked":true})",
                               R"({"row":{"grid":2},"column":{"tile":8},"skip_masked":true})"}) {
    const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
    EXPECT_EQ(program.body.back().kind, tile::Kind::kIf) << tile::print_program(program);
    // What is summed is not even loaded by the other blocks.
    for (const tile::Instruction& one : program.body)
      EXPECT_TRUE(one.kind != tile::Kind::kLoad || program.buffers[one.access.buffer].name == "wanted");
    EXPECT_EQ(tile::interpret(program, memory).at("y").reals, (std::vector<double>{-1, -1, 60, -1, -1, -1}));
  }
}

int64_t blocks_of(const tile::Program& program) {
  int64_t blocks = 1;
  for (const tile::Symbol symbol : program.grid) blocks *= *kernel::as_constant(program.symbols[symbol].count);
  return blocks;
}

TEST(Schedules, FewBlocksWalkWhereDataLetThem) {
  const Kernel kernel = kernel::parse_kernel(R"(
kernel twice {
  axis row = 4, column = 22
  in x: f32[4, 22]
  in wanted: f32[4]
  inout y: f32[4, 22]
  y[row, column] where wanted[row] > 0.0 = x[row, column] + x[row, column]
})");
  tile::Memory memory;
  std::vector<double> expected(88, -1.0);
  for (int place = 0; place < 88; ++place) {
    memory["x"].reals.push_back(place);
    if (place / 22 == 2) expected[place] = 2.0 * place;
  }
  memory["wanted"].reals = {0, -1, 1, 0};
  memory["y"].reals.assign(88, -1.0);
  // Six blocks along the columns of two rows.
  for (const auto& [walkers, started] : {std::pair{8, 8}, {7, 8}, {4, 4}, {1, 2}, {12, 12}, {100, 12}}) {
    const std::string schedule = fmt::format(
        R"({{"row":{{"grid":2}},"column":{{"grid":4}},"skip_masked":true,"walkers":{}}})", walkers);
    const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
    EXPECT_EQ(blocks_of(program), started) << tile::print_program(program);
    EXPECT_EQ(tile::interpret(program, memory).at("y").reals, expected) << tile::print_program(program);
    EXPECT_EQ(tile::print_program(tile::parse_program(tile::print_program(program))), tile::print_program(program));
  }
  EXPECT_NE(refusal(kWanted, R"({"row":{"grid":1},"column":{"loop":2},"walkers":4})").find("skip_masked is not"),
            std::string::npos);
}

// What holds for whole rows or for single elements, and a share of each block that is stored: two masks, of which one
// is an or of both kinds.
TEST(Schedules, WalkersAskWhatAnyOfTheMasksNeeds) {
  const Kernel kernel = kernel::parse_kernel(R"(
kernel several {
  axis row = 4, column = 22, each = 22
  in x: f32[4, 22]
  in wanted: f32[4]
  in lone: f32[22]
  inout y: f32[4, 22]
  inout z: f32[4, 22]
  any = max(lone[each]; each)
  y[row, column] where (wanted[row] > 0.0 or any > 0.0 and lone[column] > 0.0) and column < 20 = x[row, column]
  z[row, column] where wanted[row] > 0.0 = x[row, column]
})");
  for (const bool some : {false, true}) {
    tile::Memory memory;
    std::vector<double> y(88, -1.0), z(88, -1.0);
    memory["wanted"].reals = {0, -1, some ? 1.0 : 0.0, 0};
    memory["lone"].reals.assign(22, 0.0);
    if (some) memory["lone"].reals[7] = 1;
    for (int place = 0; place < 88; ++place) {
      memory["x"].reals.push_back(place);
      const bool row = some && place / 22 == 2;
      if (place % 22 < 20 && (row || (some && place % 22 == 7))) y[place] = place;
      if (row) z[place] = place;
    }
    memory["y"].reals.assign(88, -1.0);
    memory["z"].reals.assign(88, -1.0);
    const tile::Program program = to_tiles(
        kernel, parse_schedule(std::string_view(R"({"row":{"grid":2},"column":{"grid":4},"each":{"tile":32},)"
                                                R"("skip_masked":true,"walkers":4})"),
                               kernel));
    EXPECT_EQ(blocks_of(program), 4) << tile::print_program(program);
    const auto found = tile::interpret(program, memory);
    EXPECT_EQ(found.at("y").reals, y) << tile::print_program(program);
    EXPECT_EQ(found.at("z").reals, z) << tile::print_program(program);
  }
}

constexpr const char* kProduct = R"(
kernel product {{
  axis m = 128, n = 16, k = 48
  in a: f16[128, 48]
  in w: f16[16, 48]
  out y: f32[{0}]
  y[{1}] = dot(a[m, k], w[n, k]; k)
}})";

TEST(Schedules, SayOfSingleOperandsHowTheyAreLoaded) {
  const Kernel kernel = kernel::parse_kernel(fmt::format(kProduct, "128, 16", "m, n"));
  const auto loads = [&](const std::string& words) {
    const std::string schedule = R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16},)" + words + "}";
    const KernelSchedule parsed = parse_schedule(std::string_view(schedule), kernel);
    EXPECT_EQ(parse_schedule(to_json(parsed, kernel), kernel), parsed);
    const std::string text = tile::print_program(to_tiles(kernel, parsed));
    const auto is_bulk = [&](const std::string& buffer) {
      const size_t begin = text.find("= load " + buffer + "[");
      return text.substr(begin, text.find('\n', begin) - begin).find(" bulk") != std::string::npos;
    };
    return std::pair(is_bulk("a"), is_bulk("w"));
  };
  EXPECT_EQ(loads(R"("bulk":true)"), std::pair(true, true));
  EXPECT_EQ(loads(R"("bulk":true,"operands":{"w":"pointers"})"), std::pair(true, false));
  EXPECT_EQ(loads(R"("operands":{"w":"bulk"})"), std::pair(false, true));
  EXPECT_EQ(loads(R"("operands":{"w":"pointers","a":"pointers"})"), std::pair(false, false));
  // What `bulk` says already is no word of its own.
  const KernelSchedule said = parse_schedule(
      std::string_view(R"({"m":{"grid":64},"n":{"grid":16},"k":{"loop":16},"operands":{"a":"bulk"},"bulk":true})"),
      kernel);
  EXPECT_TRUE(said.operands.empty());
  const std::string whole = fmt::format(kProduct, "128, 16", "m, n"), axes = R"("m":{"grid":64},"n":{"grid":16},)"
                                                                             R"("k":{"loop":16},"operands":)";
  const auto refused = [&](const std::string& words) { return refusal(whole, "{" + axes + words + "}"); };
  EXPECT_NE(refused(R"({"y":"bulk"})").find("operands names 'y', which is no input"), std::string::npos);
  EXPECT_NE(refused(R"({"a":"shared"})").find("operand 'a' is loaded by \"shared\", but must be by"),
            std::string::npos);
  EXPECT_NE(refused(R"(["a"])").find("must be an object"), std::string::npos);
}

// As of a product's second kernel: which rows and which columns have to meet data say of each, so that a walker cannot
// know anything of a row beforehand that holds for all of its columns.
constexpr const char* kEitherSide = R"(
kernel either {{
  axis batch = {0}, row = {1}, column = {2}
  in x: f32[{0}, {1}, {2}]
  in row_needs: i32[{0}, {1}]
  in row_large: i32[{0}, {1}]
  in column_needs: i32[{2}]
  in column_large: i32[{2}]
  inout y: f32[{0}, {1}, {2}]
  missed = row_needs[batch, row] >= column_large[column] or column_needs[column] >= row_large[batch, row]
  y[batch, row, column] where missed or row_large[batch, row] == 7 = x[batch, row, column] * 2.0
}})";

struct EitherSide {
  int64_t batches, rows, columns;

  // Rows and columns (counted through all batches) that need one another where they are marked.
  tile::Memory memory(const std::vector<int64_t>& rows_marked, const std::vector<int64_t>& columns_marked) const {
    tile::Memory memory;
    memory["row_needs"].wholes.assign(batches * rows, -1);
    memory["row_large"].wholes.assign(batches * rows, 5);
    memory["column_needs"].wholes.assign(columns, -1);
    memory["column_large"].wholes.assign(columns, 5);
    for (const int64_t row : rows_marked) memory["row_needs"].wholes[row] = 6;
    for (const int64_t column : columns_marked) memory["column_needs"].wholes[column] = 6;
    for (int64_t place = 0; place < batches * rows * columns; ++place)
      memory["x"].reals.push_back(static_cast<double>(place));
    memory["y"].reals.assign(batches * rows * columns, -1.0);
    return memory;
  }

  std::vector<double> expected(const std::vector<int64_t>& rows_marked,
                               const std::vector<int64_t>& columns_marked) const {
    std::vector<double> all(batches * rows * columns, -1.0);
    for (size_t place = 0; place < all.size(); ++place) {
      const auto at = static_cast<int64_t>(place);
      if (std::count(rows_marked.begin(), rows_marked.end(), at / columns) ||
          std::count(columns_marked.begin(), columns_marked.end(), at % columns))
        all[place] = 2.0 * static_cast<double>(place);
    }
    return all;
  }
};

TEST(Schedules, WalkersLookAtARunOfBlocksAtOnce) {
  struct Case {
    EitherSide shape;
    int64_t walkers, started;
  };
  // Blocks of 2 by 4. Runs are powers of two that divide the count of blocks, or end where the axis does not.
  const Case cases[] = {
      {{1, 8, 64}, 8, 8},     // 4 by 16 blocks: runs of 8
      {{1, 8, 64}, 64, 64},   // every block a program
      {{1, 8, 64}, 1, 4},     // all columns
      {{1, 8, 48}, 12, 12},   // 4 by 12: runs of 4
      {{1, 8, 48}, 1, 12},    // 4 by 12 again, which 8 does not divide
      {{1, 16, 52}, 26, 26},  // 8 by 13: runs of 4 rows
      {{1, 7, 50}, 8, 8},     // 4 by 13, of which the last rows and columns lie beyond the end
      {{1, 7, 50}, 1, 4},     // 16 columns' blocks, three of which are none
      {{3, 5, 9}, 9, 9},      // 3 by 3 by 3 blocks
      {{3, 5, 9}, 1, 9},      // 4 rows' blocks
      {{5, 2, 34}, 10, 10},   // 5 by 1 by 9
  };
  for (const Case& one : cases) {
    const EitherSide& shape = one.shape;
    const Kernel kernel = kernel::parse_kernel(fmt::format(kEitherSide, shape.batches, shape.rows, shape.columns));
    const std::string schedule = fmt::format(
        R"({{"batch":{{"grid":1}},"row":{{"grid":2}},"column":{{"grid":4}},"skip_masked":true,"walkers":{}}})",
        one.walkers);
    const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(schedule), kernel));
    const std::string text = tile::print_program(program);
    EXPECT_EQ(blocks_of(program), one.started) << text;
    EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
    const int64_t last_row = shape.batches * shape.rows - 1, last_column = shape.columns - 1;
    const std::pair<std::vector<int64_t>, std::vector<int64_t>> marks[] = {{{}, {}},
                                                                           {{0}, {}},
                                                                           {{last_row}, {}},
                                                                           {{}, {0}},
                                                                           {{}, {4}},
                                                                           {{}, {last_column}},
                                                                           {{last_row / 2}, {last_column / 2}},
                                                                           {{0, last_row}, {1, last_column}}};
    for (const auto& [rows, columns] : marks)
      EXPECT_EQ(tile::interpret(program, shape.memory(rows, columns)).at("y").reals, shape.expected(rows, columns))
          << text;
  }
}

// A run's programs read nothing but what its condition asks.
TEST(Schedules, WhatARunsConditionIsMadeOfHasOneDimension) {
  const Kernel kernel = kernel::parse_kernel(fmt::format(kEitherSide, 1, 64, 64));
  const auto arranged = [&](const char* more) {
    const std::string schedule = R"({"batch":{"grid":1},"row":{"grid":16},"column":{"grid":16},"skip_masked":true)";
    return to_tiles(kernel, parse_schedule(std::string_view(schedule + more), kernel));
  };
  const tile::Program program = arranged(R"(,"walkers":4})");
  ASSERT_EQ(program.body.back().kind, tile::Kind::kIf);
  ASSERT_EQ(program.body.back().body.size(), 1u) << tile::print_program(program);
  EXPECT_EQ(program.body.back().body[0].kind, tile::Kind::kFor);
  for (const tile::Instruction& one : program.body)
    for (const tile::Value result : one.results)
      EXPECT_LE(program.values[result].type.lanes.size(), 1u) << tile::print_program(program);
  EXPECT_EQ(tile::print_program(arranged("}")), tile::print_program(arranged(R"(,"walkers":16})")));
}

TEST(Schedules, ARunIsNotLookedAtWherePlacesAreNotItsAxis) {
  // A flag for each pair of columns: no index of the columns' own.
  const Kernel pairs = kernel::parse_kernel(R"(
kernel pairs {
  axis row = 4, column = 32
  in x: f32[4, 32]
  in row_flag: f32[4]
  in flag: f32[16]
  inout y: f32[4, 32]
  y[row, column] where row_flag[row] > 0.0 or flag[column / 2] > 0.0 = x[row, column]
})");
  const char* schedule = R"({"row":{"grid":1},"column":{"grid":4},"skip_masked":true,"walkers":1})";
  const tile::Program program = to_tiles(pairs, parse_schedule(std::string_view(schedule), pairs));
  EXPECT_EQ(blocks_of(program), 32) << tile::print_program(program);
}

TEST(Schedules, WhatBlocksCannotKnowBeforehandIsRefused) {
  std::string late = kWanted;
  late.replace(late.find("wanted[row] > 0.0"), 17, "total > 0.0");
  EXPECT_NE(refusal(late, R"({"row":{"grid":2},"column":{"loop":2},"skip_masked":true})").find("only after a loop"),
            std::string::npos);
  EXPECT_EQ(refusal(late, R"({"row":{"grid":2},"column":{"tile":8},"skip_masked":true})"), "");
  EXPECT_NE(refusal(kWanted, R"({"row":{"loop":2},"column":{"loop":2},"skip_masked":true})").find("within a loop"),
            std::string::npos);
}

}  // namespace
}  // namespace kw::lower
