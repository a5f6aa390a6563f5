// Stores at places that data decide, in the order of their points: by one thread, by threads that share other axes, and
// by threads that own places.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "emit/cpu/tile_printer.hpp"
#include "emit/triton/tile_printer.hpp"
#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

constexpr const char* kOnePlace = R"(kernel scattered {
  axis column = 5, row = 40
  in token: i64[40]
  in x: f32[40, 5]
  inout sums: f32[7, 5]
  inout largest: f32[7, 5]
  inout put: f32[7, 5]
  sums[token[row], column] += exp(x[row, column])
  largest[token[row], column] max= x[row, column]
  put[token[row], column] where column < 4 = x[row, column]
})";
constexpr const char* kTwoPlaces = R"(kernel scattered {
  axis row = 40
  in token: i64[40]
  in x: f32[40]
  inout sums: f32[7]
  inout put: f32[9]
  sums[token[row]] += x[row]
  put[token[row] + 2] where row > 3 = x[row]
})";
constexpr const char* kRowsInside =
    R"("column":{"loop":1,"simd":true},"row":{"loop":1},"nest":["row","column"],"in_order":true)";

tile::Program lowered(const std::string& text, const std::string& schedule) {
  const kernel::Kernel kernel = kernel::parse_kernel(text);
  const KernelSchedule read = parse_schedule(std::string_view(schedule), kernel);
  EXPECT_EQ(parse_schedule(to_json(read, kernel), kernel), read);
  tile::Program program = to_tiles(kernel, read);
  EXPECT_EQ(tile::print_program(tile::parse_program(tile::print_program(program))), tile::print_program(program));
  return program;
}

tile::Memory memory_of(const kernel::Kernel& kernel) {
  tile::Memory memory;
  for (const kernel::Buffer& buffer : kernel.buffers) {
    int64_t elements = 1;
    for (const kernel::Index& extent : buffer.shape) elements *= *kernel::as_constant(extent);
    kernel::Numbers& numbers = memory[buffer.name];
    for (int64_t at = 0; at < elements; ++at)
      if (kernel::is_real(buffer.dtype)) numbers.reals.push_back(0.1 * static_cast<double>(at * 37 % 101) - 4.0);
      else numbers.wholes.push_back(at * 5 % 7);
  }
  return memory;
}

// The same sums, in the same order, to the last bit.
void expect_in_order(const std::string& text, const std::string& schedule,
                     const std::map<std::string, int64_t>& sizes = {}) {
  const kernel::Kernel kernel = kernel::parse_kernel(text);
  const tile::Memory memory = memory_of(kernel), right = kernel::evaluate(kernel, memory);
  const tile::Memory found = tile::interpret(lowered(text, schedule), memory, sizes, tile::Arithmetic::kDouble);
  for (const auto& [name, numbers] : found) EXPECT_EQ(numbers.reals, right.at(name).reals) << name << "\n" << schedule;
}

std::string fault_of(const std::string& text, const std::string& schedule) {
  try {
    expect_in_order(text, schedule);
    return "";
  } catch (const Error& error) { return error.what(); }
}

std::string printed(const tile::Program& program) {
  cpu::HelperSet helpers;
  return cpu::print_tile_function(*lowered_by(cpu::lowering_steps(), program), helpers).text;
}

TEST(Scatters, StoreInTheOrderOfTheirPoints) {
  expect_in_order(kOnePlace, std::string("{") + kRowsInside + "}");
  expect_in_order(kOnePlace, R"({"column":{"loop":1,"threads":true},"row":{"loop":1},"in_order":true})");
  expect_in_order(kOnePlace, R"({"column":{"loop":2,"threads":true},"row":{"loop":1},"in_order":true})");
  expect_in_order(kOnePlace, R"({"column":{"tile":8,"simd":true},"row":{"loop":1},"in_order":true})");
  expect_in_order(kTwoPlaces, R"({"row":{"loop":1},"in_order":true})");
}

TEST(Scatters, SeeTheirPointsInOrderWhateverNumberOfThreadsOwnsPlaces) {
  for (const int64_t owners : {1, 2, 3, 50}) {
    expect_in_order(kOnePlace, std::string("{") + kRowsInside + R"(,"owners":1})", {{"owners", owners}});
    expect_in_order(kOnePlace, R"({"column":{"loop":2},"row":{"loop":1},"in_order":true,"owners":4})",
                    {{"owners", owners}});
    expect_in_order(kTwoPlaces, R"({"row":{"loop":1},"in_order":true,"owners":4})", {{"owners", owners}});
  }
}

TEST(Scatters, AreRefusedWherePointsHaveNoOrder) {
  EXPECT_NE(fault_of(kTwoPlaces, R"({"row":{"loop":1,"threads":true},"in_order":true})")
                .find("is stored to in order by two iterations that threads share"),
            std::string::npos);
  EXPECT_NE(fault_of(kTwoPlaces, R"({"row":{"loop":1,"simd":true},"in_order":true})")
                .find("points along 'row' may meet, and have no order"),
            std::string::npos);
  EXPECT_NE(fault_of(kTwoPlaces, R"({"row":{"tile":64},"in_order":true})").find("points along 'row' may meet"),
            std::string::npos);
  EXPECT_NE(fault_of(kTwoPlaces, R"({"row":{"grid":1},"in_order":true})").find("axis 'row' is shared out by blocks"),
            std::string::npos);
  EXPECT_NE(fault_of(kTwoPlaces, R"({"row":{"loop":1},"owners":4})").find("owners is set, but in_order is not"),
            std::string::npos);
  EXPECT_NE(fault_of(kOnePlace, R"({"column":{"loop":1,"threads":true},"row":{"loop":1},"in_order":true,"owners":1})")
                .find("threads own places, and share axis 'column', too"),
            std::string::npos);
  const tile::Program program = lowered(kTwoPlaces, R"({"row":{"loop":1},"in_order":true})");
  EXPECT_THROW(triton::print_tile_kernel(program), Error);
}

TEST(Scatters, AskWhoOwnsAPlaceBeforeAllElse) {
  const std::string code = printed(lowered(kOnePlace, std::string("{") + kRowsInside + R"(,"owners":4})"));
  EXPECT_NE(code.find("const int owners = threads < 4 ? 1 : threads;\n"
                      "#pragma omp parallel for num_threads(owners) schedule(static)\n"),
            std::string::npos)
      << code;
  EXPECT_LT(code.find("if ("), code.find("exp"));
  EXPECT_EQ(code.find("combine_atomically"), std::string::npos);
  EXPECT_NE(printed(lowered(kTwoPlaces, R"({"row":{"loop":1},"in_order":true,"owners":1})"))
                .find("num_threads(threads) schedule(static)"),
            std::string::npos);
}

}  // namespace
}  // namespace kw::lower
