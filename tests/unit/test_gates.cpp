// Axes that are one dimension in products and two elsewhere, as a recurrent layer's units and gates are; loads before
// loops.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

// Units with three gates each, of which the first and the last are multiplied.
constexpr const char* kGates = R"(kernel gates {
  axis sample = 19, unit = 20, gate = 3, source = 40
  in h: f32[19, 40]
  in w: f32[3, 20, 40]
  in bias: f32[3, 20]
  out y: f32[19, 20]
  product = dot(h[sample, source], w[gate, unit, source]; source)
  first = sum(select(gate == 0, product, 0.0); gate)
  last = sum(select(gate == 2, product, 0.0); gate)
  y[sample, unit] = (first + bias[0, unit]) * (last + bias[2, unit])
})";

tile::Program gates_under(const std::string& schedule) {
  const kernel::Kernel kernel = kernel::parse_kernel(kGates);
  const KernelSchedule parsed = parse_schedule(std::string_view(schedule), kernel);
  EXPECT_EQ(to_json(parsed, kernel).dump(), schedule);
  return to_tiles(kernel, parsed);
}

TEST(Gates, UnitsAndGatesAreOneDimensionOfAProduct) {
  const kernel::Kernel kernel = kernel::parse_kernel(kGates);
  kernel::Memory memory;
  for (const auto& [name, count] : {std::pair("h", 19 * 40), std::pair("w", 3 * 20 * 40), std::pair("bias", 60)})
    for (int at = 0; at < count; ++at) memory[name].reals.push_back((at * 7 % 23 - 11) * 0.125);
  const kernel::Memory expected = kernel::evaluate(kernel, memory, {});
  const std::string within = R"("gate":{"tile":4,"within":"unit"},"source":{"loop":16,"stages":2},)";
  for (const std::string& rest : {within + R"("warps":4})", within + R"("loads_first":true,"warps":4})"})
    for (const char* unit : {R"({"grid":8})", R"({"tile":32})"}) {
      const tile::Program program = gates_under(R"({"sample":{"grid":16},"unit":)" + std::string(unit) + "," + rest);
      const std::string text = tile::print_program(program);
      EXPECT_NE(text.find("[sample, unit_gate] = dot"), std::string::npos) << text;
      EXPECT_NE(text.find("unit_gate -> unit, gate"), std::string::npos) << text;
      EXPECT_EQ(tile::print_program(tile::parse_program(text)), text);
      const auto found = tile::interpret(program, memory, {}, tile::Arithmetic::kDouble).at("y").reals;
      ASSERT_EQ(found.size(), expected.at("y").reals.size());
      for (size_t at = 0; at < found.size(); ++at) ASSERT_NEAR(found[at], expected.at("y").reals[at], 1e-9) << text;
    }
}

TEST(Gates, WhatFollowsALoopMayBeLoadedBeforeIt) {
  const std::string axes =
      R"({"sample":{"grid":16},"unit":{"grid":8},"gate":{"tile":4,"within":"unit"},"source":{"loop":16},)";
  const auto loads_before_the_loop = [&](const std::string& schedule) {
    int loads = 0;
    for (const tile::Instruction& one : gates_under(schedule).body) {
      if (one.kind == tile::Kind::kFor) break;
      loads += one.kind == tile::Kind::kLoad ? 1 : 0;
    }
    return loads;
  };
  EXPECT_EQ(loads_before_the_loop(axes + R"("warps":4})"), 0);
  EXPECT_EQ(loads_before_the_loop(axes + R"("loads_first":true,"warps":4})"), 2);
}

TEST(Gates, AxesThatCannotBeOneAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("unit":{"grid":8},"gate":{"tile":4,"within":"units"})", "within 'units', which is no axis before it"},
      {R"("unit":{"grid":8,"within":"gate"},"gate":{"tile":4})", "within 'gate', which is no axis before it"},
      {R"("unit":{"grid":1},"gate":{"tile":4,"within":"unit"})", "axis 'gate' cannot be within 'unit'"},
      {R"("unit":{"loop":8},"gate":{"tile":4,"within":"unit"})", "axis 'gate' cannot be within 'unit'"},
      {R"("unit":{"grid":8},"gate":{"grid":4,"within":"unit"})", "axis 'gate' cannot be within 'unit'"},
      {R"("unit":{"grid":8,"last":true},"gate":{"tile":4,"within":"unit"})", "axis 'gate' cannot be within 'unit'"},
      {R"("unit":{"grid":8},"gate":{"tile":4,"within":3})", "is 3, but must be an axis"},
      {R"("unit":{"grid":8},"gate":{"tile":4},"loads_first":1)", "loads_first is 1, but must be true or false"},
  };
  const kernel::Kernel kernel = kernel::parse_kernel(kGates);
  for (const auto& [axes, words] : cases) try {
      parse_schedule(std::string_view(R"({"sample":{"grid":16},"source":{"loop":16},)" + std::string(axes) + "}"),
                     kernel);
      ADD_FAILURE() << axes;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace kw::lower
