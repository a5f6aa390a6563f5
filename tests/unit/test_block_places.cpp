// Places of blocks that only know their number: the order in which they begin, and what the verifier says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "tile/block_places.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

// Every block writes one element, of a plane where there are several.
std::string blocks_text(int64_t planes, const std::string& rows, const std::string& columns, int64_t count) {
  const std::string plane = planes > 1 ? fmt::format("plane = {}, ", planes) : "";
  return fmt::format(R"(program blocks {{
  size rows = 1..9, columns = 1..9
  grid {0}row = {1}, column = {2}
  launch warps 4
  order grouped {3} (row, column)
  buffer y: f32[{4}, 9, 9] output

  %one: f32 = constant 1.0
  store y[{5}, row, column] <- %one
}}
)",
                     plane, rows, columns, count, planes, planes > 1 ? "plane" : "0");
}

Program placed(const std::string& text) {
  Program program = parse_program(text);
  place_blocks(program, "program");
  verify(program);
  return program;
}

using Place = std::vector<int64_t>;  // a position along each dimension of the grid

// The order that a program declares, as nested loops.
std::vector<Place> expected_order(int64_t planes, int64_t rows, int64_t columns, int64_t count) {
  std::vector<Place> order;
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t first = 0; first < rows; first += count)
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t row = first; row < std::min(first + count, rows); ++row)
          order.push_back(planes > 1 ? Place{plane, row, column} : Place{row, column});
  return order;
}

std::vector<Place> order_of(const Program& program, int64_t blocks,
                            const std::vector<std::pair<Symbol, int64_t>>& sizes) {
  std::vector<Place> order;
  std::vector<int64_t> values(program.symbols.size());
  for (const auto& [symbol, size] : sizes) values[symbol] = size;
  for (int64_t block = 0; block < blocks; ++block) {
    values[number_of_block(program)] = block;
    for (const Symbol symbol : program.places) values[symbol] = kernel::evaluate(program.symbols[symbol].value, values);
    Place place;
    for (const Symbol symbol : program.grid) place.push_back(values[symbol]);
    order.push_back(std::move(place));
  }
  return order;
}

// Also where the last group has fewer rows.
TEST(BlockPlaces, FollowTheGroupedOrder) {
  for (int64_t planes = 1; planes <= 3; planes += 2)
    for (int64_t rows = 1; rows <= 9; ++rows)
      for (int64_t columns = 1; columns <= 9; ++columns)
        for (int64_t count = 1; count <= 10; ++count) {
          const Program program = placed(blocks_text(planes, std::to_string(rows), std::to_string(columns), count));
          ASSERT_EQ(order_of(program, planes * rows * columns, {}), expected_order(planes, rows, columns, count))
              << print_program(program);
        }
}

// In the interpreter a block finds its place as a kernel's does: every element is written by one.
TEST(BlockPlaces, AreNoTwoBlocksOfOneElement) {
  for (int64_t rows = 1; rows <= 5; ++rows)
    for (int64_t columns = 1; columns <= 4; ++columns)
      for (int64_t count = 1; count <= 6; ++count)
        for (const bool known : {true, false}) {
          const std::string text = known ? blocks_text(2, std::to_string(rows), std::to_string(columns), count)
                                         : blocks_text(2, "rows", "columns", count);
          const Program program = placed(text);
          EXPECT_EQ(print_program(parse_program(print_program(program))), print_program(program));
          const std::vector<double> y = interpret(program, {}, {{"rows", rows}, {"columns", columns}}).at("y").reals;
          for (int64_t at = 0; at < 2 * 81; ++at)
            EXPECT_EQ(y[at] == 1.0, at / 9 % 9 < rows && at % 9 < columns) << print_program(program) << at;
        }
}

// Run-time sizes are what they are when the kernel is launched.
TEST(BlockPlaces, FollowTheOrderOfRunTimeSizes) {
  for (int64_t count = 1; count <= 4; ++count) {
    const Program program = placed(blocks_text(3, "rows", "columns", count));
    for (int64_t rows = 1; rows <= 9; ++rows)
      for (int64_t columns = 1; columns <= 9; ++columns)
        EXPECT_EQ(order_of(program, 3 * rows * columns, {{0, rows}, {1, columns}}),
                  expected_order(3, rows, columns, count));
  }
}

TEST(BlockPlaces, AreNoneWhereThereAreNoBlocks) {
  for (const auto& [rows, columns] : {std::pair("0", "3"), std::pair("3", "0"), std::pair("0", "0")}) {
    const Program program = placed(blocks_text(2, rows, columns, 2));
    for (const double one : interpret(program, {}, {{"rows", 1}, {"columns", 1}}).at("y").reals) EXPECT_NE(one, 1.0);
  }
}

TEST(BlockPlaces, ReadLikeThis) {
  const std::string text = print_program(placed(blocks_text(1, "5", "3", 4)));
  EXPECT_NE(text.find(R"(
  number program = 15
  place first_row = program / 12 * 4
  place grouped_row = min(5 - first_row, 4)
  place row = first_row + program % 12 % grouped_row
  place column = program % 12 / grouped_row
)"),
            std::string::npos)
      << text;
  // Whole groups have as many rows as all.
  const std::string whole = print_program(placed(blocks_text(1, "8", "3", 4)));
  EXPECT_NE(whole.find("  place row = first_row + program % 4\n"), std::string::npos) << whole;
  EXPECT_EQ(whole.find("min("), std::string::npos) << whole;
}

TEST(BlockPlaces, OfBlocksThatRunAsOneAreThoseOfTheirGroup) {
  Program program = parse_program(R"(program pairs {
  grid row = 6, column = 2
  launch warps 4
  buffer y: f32[6, 2] output

  %one: f32 = constant 1.0
  store y[row, column] <- %one
}
)");
  program.consumers = {.along = program.grid[0], .count = 2};
  place_blocks(program, "program");
  EXPECT_EQ(fault_of_places(program), "");
  std::vector<int64_t> values(program.symbols.size());
  std::vector<Place> order;
  for (int64_t block = 0; block < 6; ++block)
    for (int64_t consumer = 0; consumer < 2; ++consumer) {
      values[number_of_block(program)] = block;
      values[number_of_consumer(program)] = consumer;
      for (const Symbol symbol : program.places)
        values[symbol] = kernel::evaluate(program.symbols[symbol].value, values);
      order.push_back({values[program.grid[0]], values[program.grid[1]]});
    }
  EXPECT_EQ(order,
            (std::vector<Place>{
                {0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {2, 1}, {3, 1}, {4, 0}, {5, 0}, {4, 1}, {5, 1}}));
}

// What is checked is that they are those of the declared order, not what they would mean.
TEST(BlockPlaces, AreThoseOfTheOrder) {
  const Program program = placed(blocks_text(1, "5", "3", 4));
  const std::string other = "the places of blocks are not those of the grid in its order";
  const auto fault = [&](const auto& change) {
    Program changed = program;
    change(changed);
    return find_fault(changed);
  };
  const auto expect = [&](const std::string& wanted, const auto& change) {
    const std::string found = fault(change);
    EXPECT_NE(found.find(wanted), std::string::npos) << found;
  };
  expect(other, [](Program& one) { one.order.count = 2; });
  expect(other, [](Program& one) { one.places.pop_back(); });
  expect(other, [](Program& one) { one.symbols[one.grid[0]].value = Index(0); });
  expect(other, [](Program& one) { std::swap(one.symbols[one.grid[0]].value, one.symbols[one.grid[1]].value); });
  expect("numbered, but not placed", [](Program& one) { one.places.clear(); });
  expect("'program' is used elsewhere",
         [](Program& one) { one.body[1].access.coordinates[0].index = kernel::symbol_index(number_of_block(one)); });
  expect("'first_row' is used where it is not defined",
         [](Program& one) { one.body[1].access.coordinates[0].index = kernel::symbol_index(one.places[0]); });
}

TEST(BlockPlaces, TakeNamesThatNothingElseHas) {
  const Program program = placed(R"(program named {
  grid row = 5, column = 3
  launch warps 4
  order grouped 4 (row, column)
  buffer program: f32[5, 3] output
  buffer first_row: f32[5, 3] output

  %one: f32 = constant 1.0
  store program[row, column] <- %one
  store first_row[row, column] <- %one
}
)");
  EXPECT_EQ(program.symbols[number_of_block(program)].name, "program_id");
  EXPECT_EQ(program.symbols[program.places[0]].name, "first_row_");
}

}  // namespace
}  // namespace kw::tile
