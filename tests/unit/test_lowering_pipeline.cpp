// The table of lowering's steps: which run, in which order, and what they say of themselves.
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

constexpr std::string_view kTwice = R"(kernel twice {
  axis row = 12, column = 4096
  in x: f32[12, 4096]
  out y: f32[12, 4096]
  largest = max(x[row, column]; column)
  y[row, column] = x[row, column] / largest
})";

constexpr std::string_view kStep = R"(kernel step {
  size time = 0..3
  axis unit = 8
  in x: f32[4, 8]
  in before: f32[2, 8]
  out after: f32[2, 8]
  after[time % 2, unit] = before[(time + 1) % 2, unit] + x[time, unit]
})";

std::vector<std::string> names_of(const LoweringReport& report) {
  std::vector<std::string> names;
  for (const StepTiming& one : report.steps) names.emplace_back(one.step);
  return names;
}

KernelSchedule schedule_of(const kernel::Kernel& kernel, std::string_view text) { return parse_schedule(text, kernel); }

std::string refusal(const kernel::Kernel& kernel, std::string_view schedule) {
  try {
    to_tiles(kernel, schedule_of(kernel, schedule));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(LoweringPipeline, RunsTheStepsThatTheScheduleAsksFor) {
  const kernel::Kernel kernel = kernel::parse_kernel(kTwice);
  LoweringReport report;
  to_tiles(kernel, schedule_of(kernel, R"({"row":{"grid":1},"column":{"loop":512}})"), &report);
  EXPECT_EQ(names_of(report), std::vector<std::string>{"arrange"});
  EXPECT_GT(report.steps[0].instructions, 5);
  EXPECT_GT(report.steps[0].seconds, 0.0);

  LoweringReport more;
  to_tiles(kernel,
           schedule_of(kernel, R"({"row":{"grid":1},"column":{"loop":512},"cache_hints":true,"serpentine":true})"),
           &more);
  EXPECT_EQ(names_of(more), (std::vector<std::string>{"arrange", "serpentine", "cache-hints"}));
}

// Whole numbers of few digits: their products and sums are exact whatever they are made of.
tile::Memory whole_numbers(int64_t left, int64_t right) {
  tile::Memory memory;
  for (int64_t place = 0; place < left; ++place) memory["a"].reals.push_back(static_cast<double>(place % 7 - 3));
  for (int64_t place = 0; place < right; ++place) memory["w"].reals.push_back(static_cast<double>(place % 5 - 2));
  return memory;
}

long times(const std::string& text, const std::string& part) {
  long found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(LoweringPipeline, WritesProductsOfHalvesOutInAStepOfTheirOwn) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel product {
  axis m = 40, n = 32, k = 50
  in a: f32[40, 50]
  in w: f32[32, 50]
  out y: f32[40, 32]
  y[m, n] = dot(a[m, k], w[n, k]; k)
})");
  for (const auto* walk : {R"({"loop":16})", R"({"tile":64})"}) {
    const KernelSchedule schedule = schedule_of(
        kernel, fmt::format(R"({{"m":{{"grid":16}},"n":{{"grid":16}},"k":{},"scheme":"fp16x3"}})", walk));
    const tile::Program one = to_tiles(kernel, schedule, nullptr, "arrange"), three = to_tiles(kernel, schedule);
    const std::string before = tile::print_program(one), after = tile::print_program(three);
    EXPECT_EQ(times(before, "= dot "), 1) << before;
    EXPECT_EQ(times(before, "precision fp16x3"), 1) << before;
    EXPECT_EQ(times(after, "= dot "), 3) << after;
    EXPECT_EQ(times(after, "precision"), 0) << after;
    EXPECT_EQ(tile::print_program(tile::parse_program(before)), before);
    const tile::Memory memory = whole_numbers(40 * 50, 32 * 50);
    EXPECT_EQ(tile::interpret(one, memory).at("y").reals, tile::interpret(three, memory).at("y").reals);
  }
}

TEST(LoweringPipeline, TakesHalvesThatAnOperandIsTheSumOf) {
  const kernel::Kernel kernel = kernel::parse_kernel(R"(kernel product {
  axis m = 32, n = 32, k = 64
  in high: f16[32, 64]
  in low: f16[32, 64]
  in w: f32[32, 64]
  out y: f32[32, 32]
  y[m, n] = dot(f32(high[m, k]) + f32(low[m, k]), w[n, k]; k)
})");
  const std::string text = tile::print_program(
      to_tiles(kernel, schedule_of(kernel, R"({"m":{"grid":16},"n":{"grid":16},"k":{"loop":16},"scheme":"fp16x3"})")));
  EXPECT_EQ(times(text, "= dot "), 3) << text;
  EXPECT_EQ(times(text, "= dot %product_so_far"), 0) << text;
  EXPECT_EQ(times(text, "= add "), 1) << text;  // of the three products to the total: no sum of halves
  EXPECT_EQ(times(text, "= sub "), 1) << text;  // of what a half of w lacks
}

TEST(LoweringPipeline, EveryStepHasAPlaceAndAName) {
  const std::vector<std::string> names = step_names();
  EXPECT_EQ(names.front(), "arrange");
  EXPECT_EQ(names.back(), "steps-inside");
  for (size_t at = 0; at < names.size(); ++at)
    EXPECT_EQ(std::count(names.begin(), names.end(), names[at]), 1) << names[at];
}

TEST(LoweringPipeline, StopsAfterAStepThatIsNamed) {
  const kernel::Kernel kernel = kernel::parse_kernel(kTwice);
  const KernelSchedule schedule = schedule_of(
      kernel, R"({"row":{"grid":1},"column":{"loop":512},"cache_hints":true,"serpentine":true})");
  const std::string arranged = tile::print_program(to_tiles(kernel, schedule, nullptr, "arrange")),
                    turned = tile::print_program(to_tiles(kernel, schedule, nullptr, "serpentine")),
                    whole = tile::print_program(to_tiles(kernel, schedule));
  EXPECT_NE(arranged, turned);
  EXPECT_NE(turned, whole);
  EXPECT_EQ(turned.find("evict"), std::string::npos) << turned;
  // What the schedule does not ask for changes nothing.
  EXPECT_EQ(tile::print_program(to_tiles(kernel, schedule, nullptr, "prefetch")), arranged);
}

void warm(Lowered& lowered) { lowered.program.warps *= 2; }
void undo(Lowered& lowered) { lowered.program.values[0].name = lowered.program.values[1].name; }

TEST(LoweringPipeline, ATargetsOwnStepsComeLast) {
  const kernel::Kernel kernel = kernel::parse_kernel(kTwice);
  const tile::Program program = to_tiles(kernel, schedule_of(kernel, R"({"row":{"grid":1},"column":{"loop":512}})"));
  constexpr TargetStep kTwoSteps[] = {{"warm", warm}, {"warmer", warm}};
  LoweringReport report, first;
  EXPECT_EQ(lowered_by(kTwoSteps, program, &report)->program.warps, 4 * program.warps);
  EXPECT_EQ(names_of(report), (std::vector<std::string>{"warm", "warmer"}));
  EXPECT_GT(report.steps[0].instructions, 5);
  EXPECT_EQ(lowered_by(kTwoSteps, program, &first, "warm")->program.warps, 2 * program.warps);
  EXPECT_EQ(names_of(first), std::vector<std::string>{"warm"});
  EXPECT_EQ(tile::print_program(lowered_by({}, program)->program), tile::print_program(program));
  EXPECT_EQ(step_names(kTwoSteps).size(), step_names().size() + 2);
  EXPECT_EQ(step_names(kTwoSteps).back(), "warmer");
  constexpr TargetStep kWrong[] = {{"undo", undo}};
  EXPECT_THROW(lowered_by(kWrong, program), Error) << "is verified";
}

TEST(LoweringPipeline, AKernelsBuffersKeepTheirAlignment) {
  std::string text(kTwice);
  text.replace(text.find("in x: f32[12, 4096]"), 19, "in x: f32[12, 4096] align 4");
  const kernel::Kernel kernel = kernel::parse_kernel(text);
  EXPECT_EQ(kernel::print_kernel(kernel), kernel::print_kernel(kernel::parse_kernel(kernel::print_kernel(kernel))));
  const tile::Program program = to_tiles(kernel, schedule_of(kernel, R"({"row":{"grid":1},"column":{"loop":512}})"));
  EXPECT_EQ(program.buffers[0].alignment, 4);
  EXPECT_EQ(program.buffers[1].alignment, 16);
  text.replace(text.find("align 4"), 7, "align 6");
  EXPECT_THROW(kernel::parse_kernel(text), Error);
}

// The axis may end after any so many elements, so that no wider vectors are whole: said of lanes along which neighbours
// stand equally far apart, of which Triton would know as much without quotients and products.
TEST(LoweringPipeline, LanesSayWhereTheirAxesEndWithinVectors) {
  const auto lanes = [](std::string_view text, std::string_view schedule) {
    const kernel::Kernel kernel = kernel::parse_kernel(text);
    const std::string program = tile::print_program(to_tiles(kernel, schedule_of(kernel, schedule)));
    const size_t begin = program.find("  lane ");
    return program.substr(begin, program.find('\n', begin) - begin);
  };
  const auto copy = [](int64_t elements, std::string_view dtype) {
    return fmt::format(
        "kernel copy {{\n  axis element = {0}\n  in x: {1}[{0}]\n  out y: {1}[{0}]\n"
        "  y[element] = x[element]\n}}",
        elements, dtype);
  };
  constexpr std::string_view kBlocks = R"({"element":{"grid":64}})";
  EXPECT_EQ(lanes(copy(1001, "f32"), kBlocks), "  lane element = 64 vectors 1");
  EXPECT_EQ(lanes(copy(1002, "f32"), kBlocks), "  lane element = 64 vectors 2");
  EXPECT_EQ(lanes(copy(1004, "f32"), kBlocks), "  lane element = 64");
  EXPECT_EQ(lanes(copy(1004, "bf16"), kBlocks), "  lane element = 64 vectors 4");
  EXPECT_EQ(lanes(copy(1024, "f32"), kBlocks), "  lane element = 64");
  EXPECT_EQ(lanes("kernel turned {\n  axis element = 1002\n  in x: f32[501, 2]\n  out y: f32[1002]\n"
                  "  y[element] = x[element / 2, element % 2]\n}",
                  kBlocks),
            "  lane element = 64");
  EXPECT_EQ(lanes("kernel product {\n  axis row = 30, column = 17, depth = 9\n  in a: f16[30, 9]\n  in b: f16[17, 9]\n"
                  "  out y: f32[30, 17]\n  y[row, column] = dot(f32(a[row, depth]), f32(b[column, depth]); depth)\n}",
                  R"({"row":{"grid":16},"column":{"grid":16},"depth":{"loop":16}})"),
            "  lane row = 16, column = 16, depth = 16");
}

TEST(LoweringPipeline, LaunchesBecomeStepsOfOne) {
  const kernel::Kernel kernel = kernel::parse_kernel(kStep);
  const std::string schedule =
      R"({"unit":{"grid":4},"steps_inside":{"size":"time","count":4,"same":[["before","after"]]},"warps":4})";
  LoweringReport report;
  const tile::Program program = to_tiles(kernel, schedule_of(kernel, schedule), &report);
  EXPECT_EQ(names_of(report), (std::vector<std::string>{"arrange", "chain-products", "steps-inside"}));
  EXPECT_NE(tile::print_program(program).find("for time = 0 to 4"), std::string::npos) << tile::print_program(program);
  EXPECT_EQ(to_json(schedule_of(kernel, schedule), kernel).dump(), schedule);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"size":"times","count":4})", "names 'times', which is no run-time size"},
      {R"({"size":"unit","count":4})", "names 'unit', which is no run-time size"},
      {R"({"size":"time","count":5})", "has 5 steps, but 'time' is 3 at most"},
      {R"({"size":"time","count":0})", "is 0, but must be a whole number"},
      {R"({"size":7,"count":4})", "must be a name"},
      {R"({"size":"time","count":4,"same":[["after","before"]]})", "wants pairs of an input and an output"},
      {R"({"size":"time","count":4,"same":["before"]})", "wants pairs of an input and an output"},
      {R"({"size":"time","counts":4})", "steps_inside has no parameter 'counts'"},
      {R"(4)", "must be an object"},
  };
  for (const auto& [steps, words] : wrong) {
    const std::string said = refusal(kernel, std::string(R"({"unit":{"grid":4},"steps_inside":)") + steps + "}");
    EXPECT_NE(said.find(words), std::string::npos) << steps << ": " << said;
  }
}

}  // namespace
}  // namespace kw::lower
