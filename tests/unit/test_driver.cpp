// Which groups a spilling kernel belongs to, and what a bench's summary says of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver/compile.hpp"
#include "driver/summary.hpp"
#include "ir/text.hpp"

using namespace kw;

namespace {

// A long sum is cut into parts, which the last program of the same launch adds; the library's product stands between it and the last group.
constexpr const char* kThreeGroups = R"(graph G on cuda {
  input %x : f32[8, 4194304] user args.0 access "x"
  input %w : f32[8, 8] user args.1 access "w"
  %s = aten.sum.dim_IntList(self=%x, dim=[1], keepdim=true) : f32[8, 1]
  %m = aten.mm.default(self=%w, mat2=%s) : f32[8, 1]
  %e = aten.exp.default(self=%m) : f32[8, 1]
  return %e
})";

}  // namespace

TEST(Compile, KnowsWhoseWorkAFunctionDoes) {
  const Compiled compiled = compile(parse_graph(kThreeGroups), {.target = "triton", .caution = Caution::kNone, .passes = {}, .problem_name = "", .problem_source = ""});
  ASSERT_EQ(compiled.schedule.groups.size(), 3u);
  const size_t at = compiled.source.find("_in_one_kernel[");
  ASSERT_NE(at, std::string::npos);
  const size_t begin = compiled.source.rfind(' ', at) + 1;
  const std::string joined = compiled.source.substr(begin, at + std::string("_in_one_kernel").size() - begin), last = compiled.kernels.back();
  EXPECT_EQ(groups_of(compiled, {joined}), std::vector<size_t>{0});
  EXPECT_EQ(groups_of(compiled, {last}), std::vector<size_t>{2});
  EXPECT_EQ(groups_of(compiled, {joined, last}), (std::vector<size_t>{0, 2}));
  EXPECT_TRUE(groups_of(compiled, {"another_kernel"}).empty());
}

TEST(Summary, NamesKernelsThatSpill) {
  const auto kernel = [](const char* name, int bytes) { return nlohmann::ordered_json{{"name", name}, {"ok", true}, {"registers", 64}, {"spills", bytes}}; };
  const std::vector<nlohmann::ordered_json> lines = {
      {{"name", "focal"}, {"category", "loss"}, {"verdict", "emitted"}, {"compiled", {{"sm", 90}, {"kernels", 2}, {"ok", 2}, {"each", {kernel("sum_kernel", 0), kernel("sigmoid_kernel", 56)}}}}},
      {{"name", "dice"}, {"category", "loss"}, {"verdict", "emitted"}, {"compiled", {{"sm", 90}, {"kernels", 1}, {"ok", 1}, {"each", {kernel("add_kernel", 0)}}}}}};
  const nlohmann::ordered_json summary = summarise(lines);
  ASSERT_EQ(summary["spilling"].size(), 1u);
  EXPECT_EQ(summary["spilling"][0]["bytes"], 56);
  EXPECT_NE(summary_text(summary).find("1 kernel spills registers: focal/sigmoid_kernel 56 B"), std::string::npos) << summary_text(summary);
}
