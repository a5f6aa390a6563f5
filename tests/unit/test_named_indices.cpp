// Named indices of tile programs: text, rules, what they mean.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "support/error.hpp"
#include "tile/definitions.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

constexpr std::string_view kRows = R"(program rows {
  grid row_block = 2
  lane row = 2
  launch warps 4
  buffer x: f32[4, 6] input
  buffer y: f32[4, 6] output

  index row_index: i32 = row_block * 2 + row
  index turned: i32 = 3 - row_index
  for column = 0 to 6 {
    index column_over_2: i64 = column / 2
    %x_tile: f32[row] = load x[turned, column_over_2 * 2 + column % 2]
    store y[row_index, column] <- %x_tile
  }
}
)";

std::string replaced(std::string_view what, std::string_view instead) {
  std::string text(kRows);
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), instead);
}

std::string fault_of(std::string_view what, std::string_view instead) {
  try {
    parse_program(replaced(what, instead));
  } catch (const Error& error) { return error.text().message; }
  return "";
}

TEST(NamedIndices, PrintWhatTheyParse) { EXPECT_EQ(print_program(parse_program(kRows)), kRows); }

TEST(NamedIndices, MeanWhatTheyName) {
  const Program program = parse_program(kRows);
  kernel::Numbers x;
  for (int i = 0; i < 24; ++i) x.reals.push_back(i);
  const std::vector<double> y = interpret(program, {{"x", x}}).at("y").reals;
  ASSERT_EQ(y.size(), 24u);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 6; ++column) EXPECT_EQ(y[row * 6 + column], (3 - row) * 6 + column);
}

TEST(NamedIndices, HaveTheLanesOfWhatTheyAreMadeOf) {
  const Program program = parse_program(kRows);
  const Access& access = program.body[2].body[1].access;
  EXPECT_EQ(lanes_of(program, access), std::vector<Symbol>{1}) << "row";
  EXPECT_EQ(print_program(written_out(program)).find("turned,"), std::string::npos);
}

TEST(NamedIndices, AreDefinedBeforeTheirUse) {
  EXPECT_NE(fault_of("  index row_index: i32 = row_block * 2 + row\n", "").find("nothing is called 'row_index'"),
            std::string::npos);
  Program program = parse_program(kRows);
  std::swap(program.body[0], program.body[1]);
  EXPECT_NE(find_fault(program).find("'index turned: i32 = 3 - row_index': 'row_index' is used where it is not"),
            std::string::npos)
      << find_fault(program);
}

TEST(NamedIndices, OfALoopEndWithItsBody) {
  const std::string after = "    store y[row_index, column] <- %x_tile\n  }\n";
  EXPECT_NE(fault_of(after, after + "  %last: i64 = index column_over_2\n").find("nothing is called 'column_over_2'"),
            std::string::npos);
  // The next loop may call its own so.
  EXPECT_EQ(fault_of(after, after + "  for column = 0 to 6 {\n    index column_over_2: i32 = column / 2\n  }\n"), "");
  Program program = parse_program(kRows);
  program.body[0].symbol = program.body[2].body[0].symbol;
  EXPECT_NE(find_fault(program).find("loop variable 'column' is used outside its loop"), std::string::npos);
}

TEST(NamedIndices, StandAtTheStartOfABody) {
  EXPECT_NE(fault_of("    store", "    index late: i32 = column\n    store").find("elsewhere than at the start"),
            std::string::npos);
  EXPECT_NE(fault_of("    store",
                     "    %yes: b1 = constant true\n    if %yes {\n      index here: i32 = column\n    }\n"
                     "    store")
                .find("elsewhere than at the start"),
            std::string::npos);
}

TEST(NamedIndices, AreNotMadeOfThemselves) {
  Program program = parse_program(kRows);
  program.symbols[program.body[0].symbol].value = kernel::symbol_index(program.body[1].symbol);
  EXPECT_NE(find_fault(program).find("is made of itself"), std::string::npos) << find_fault(program);
}

TEST(NamedIndices, FitTheirTypeAndRange) {
  EXPECT_NE(fault_of("i32 = 3 - row_index", "i32 = 3000000000 - row_index").find("'turned' is of type i32, but may"),
            std::string::npos);
  EXPECT_NE(fault_of("turned: i32", "turned: f32").find("indices are i32 or i64"), std::string::npos);
  // What the end is does not matter where a sum on the way is beyond it.
  EXPECT_NE(fault_of("i32 = 3 - row_index", "i32 = row_index * 1000000000 / 1000000007").find("but may leave it"),
            std::string::npos);
  Program program = parse_program(kRows);
  program.symbols[program.body[1].symbol].range.high = 2;
  EXPECT_NE(find_fault(program).find("the range of 'turned' does not hold all its values"), std::string::npos);
}

// The corners of ranges show where a buffer is left, as if every name were written out.
TEST(NamedIndices, DoNotHideWhatIsOutside) {
  EXPECT_NE(fault_of("3 - row_index", "2 - row_index").find("dimension 0 of buffer 'x' is left: -1 outside 4"),
            std::string::npos)
      << fault_of("3 - row_index", "2 - row_index");
}

// Nor which blocks write to one element.
TEST(NamedIndices, DoNotHideWhoWrites) {
  Program program = parse_program(kRows);
  Index& value = program.symbols[program.body[1].symbol].value;
  value = value + kernel::symbol_index(program.body[0].symbol) + kernel::symbol_index(1) - Index(3);  // row
  program.body[2].body[2].access.coordinates[0].index = kernel::symbol_index(program.body[1].symbol);
  program.body[2].body[1].access.coordinates[0].index = kernel::symbol_index(program.body[0].symbol);
  EXPECT_NE(find_fault(program).find("store values of their own"), std::string::npos) << find_fault(program);
}

// Of places, parts of places, numbers and loops.
TEST(NarrowPrograms, MarkWhatMayLeave32Bits) {
  const std::string text(R"(program far {
  grid row = 65536
  lane column = 64
  launch warps 4 narrow
  buffer x: f32[65536, 65536] input
  buffer places: f32[8589934592] input
  buffer y: f32[65536] output

  %at: i64 = index row * 65536 wide
  %a: f32[column] = load x[row i64, column] offset i64
  %c: f32[column] = load places[row * 65536 i64; row + column together] offset i64
  %d: f32[column] = load places[row * 65536 i64; column + %at] offset i64
  %b: f32 = fold sum %a over column
  for start = row * 65536 to row * 65536 + 64 step 16 wide {
    %e: f32 = load places[start i64] offset i64
  }
  store y[row] <- %b
}
)");
  EXPECT_EQ(print_program(parse_program(text)), text);
  for (const std::string mark : {" wide\n", "[row i64", "65536 i64; row + column", "65536 i64; column + %at", "16 wide",
                                 "[start i64", "column] offset i64", "together] offset i64"}) {
    std::string changed = text;
    const size_t at = changed.find(mark);
    ASSERT_NE(at, std::string::npos) << mark;
    const std::string word = mark.find("offset") != std::string::npos ? " offset i64"
                             : mark.find("i64") != std::string::npos  ? " i64"
                                                                      : " wide";
    changed.erase(changed.find(word, at), word.size());
    try {
      parse_program(changed);
      ADD_FAILURE() << "without '" << mark << "'";
    } catch (const Error& error) { EXPECT_NE(error.text().message.find("may leave"), std::string::npos) << mark; }
  }
}

TEST(NarrowPrograms, AddFirstWhatIsOneNumber) {
  const std::string text(R"(program sums {
  grid row = 4
  lane column = 64
  launch warps 4 narrow
  buffer x: f32[256] input
  buffer y: f32[256] output

  %a: f32[column] = load x[column; row * 64]
  store y[row * 64 + column] <- %a
}
)");
  try {
    parse_program(text);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.text().message.find("what is added first is one number"), std::string::npos);
  }
}

TEST(Ranks, AreTheSameForAllTiles) {
  const auto fault = [](const std::string& rank, const std::string& row, const std::string& column) {
    const std::string text = fmt::format(R"(program ranked {{
  lane row = 2{1}, column = 64{2}
  launch warps 4{0}
  buffer x: f32[128] input
  buffer y: f32[128] output

  %a: f32[row, column] = load x[row * 64 + column]
  store y[row * 64 + column] <- %a
}}
)",
                                         rank, row, column);
    try {
      EXPECT_EQ(print_program(parse_program(text)), text);
    } catch (const Error& error) { return error.text().message; }
    return std::string();
  };
  EXPECT_EQ(fault("", "", ""), "");
  EXPECT_EQ(fault(" rank 2", " dimension 0", " dimension 1"), "");
  EXPECT_EQ(fault(" rank 3", " dimension 2", " dimension 1"), "");
  EXPECT_EQ(fault(" rank 2", " dimension 0", " dimension 0"),
            "tile program: 'row' and 'column' are one dimension of '%a'");
  EXPECT_NE(fault(" rank 2", " dimension 0", "").find("'column' is dimension -1"), std::string::npos);
  EXPECT_NE(fault(" rank 1", " dimension 0", " dimension 1").find("'column' is dimension 1"), std::string::npos);
  EXPECT_NE(fault("", " dimension 0", " dimension 1").find("'row' is dimension 0"), std::string::npos);
}

}  // namespace
}  // namespace kw::tile
