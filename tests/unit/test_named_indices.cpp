// Named indices of tile programs: text, rules, what they mean.
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
  index turned: i32 = -1 * row_index + 3
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
  EXPECT_NE(find_fault(program).find("'index turned: i32 = -1 * row_index + 3': 'row_index' is used where it is not"),
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
  EXPECT_NE(
      fault_of("i32 = -1 * row_index + 3", "i32 = 3000000000 - row_index").find("'turned' is of type i32, but may"),
      std::string::npos);
  EXPECT_NE(fault_of("turned: i32", "turned: f32").find("indices are i32 or i64"), std::string::npos);
  // What the end is does not matter where a sum on the way is beyond it.
  EXPECT_NE(fault_of("i32 = -1 * row_index + 3", "i32 = row_index * 1000000000 / 1000000007").find("but may leave it"),
            std::string::npos);
  Program program = parse_program(kRows);
  program.symbols[program.body[1].symbol].range.high = 2;
  EXPECT_NE(find_fault(program).find("the range of 'turned' does not hold all its values"), std::string::npos);
}

// The corners of ranges show where a buffer is left, as if every name were written out.
TEST(NamedIndices, DoNotHideWhatIsOutside) {
  EXPECT_NE(fault_of("row_index + 3", "row_index + 2").find("dimension 0 of buffer 'x' is left: -1 outside 4"),
            std::string::npos)
      << fault_of("row_index + 3", "row_index + 2");
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

TEST(NarrowPrograms, MarkPlacesBeyond32Bits) {
  std::string text(R"(program far {
  grid row = 65536
  lane column = 64
  launch warps 4 narrow
  buffer x: f32[65536, 65536] input
  buffer y: f32[65536] output

  %a: f32[column] = load x[row, column] offset i64
  %b: f32 = fold sum %a over column
  store y[row] <- %b
}
)");
  EXPECT_EQ(print_program(parse_program(text)), text);
  text.erase(text.find(" offset i64"), 11);
  EXPECT_THROW(parse_program(text), Error);
}

}  // namespace
}  // namespace kw::tile
