// Which programs can be captured into a CUDA graph, for which the cost model expects that to pay, and what a schedule
// says of it.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "plan/cuda_graph.hpp"
#include "plan/schedule_json.hpp"
#include "propose/compile.hpp"
#include "support/error.hpp"
#include "targets/targets.hpp"

namespace kw {
namespace {

Compiled compiled(const std::string& text, GraphUse graphs = GraphUse::kOn, Caution caution = Caution::kNone) {
  CompileOptions options{.device = default_device("triton"),
                         .graphs = graphs,
                         .caution = caution,
                         .passes = {},
                         .problem_name = "",
                         .problem_source = ""};
  return compile(parse_graph("graph G on cuda {\n" + text + "\n}"), options);
}

std::string why_not(const std::string& text) {
  const Compiled one = compiled(text);
  EXPECT_EQ(one.program.graphs, one.why_no_graph.empty());
  EXPECT_EQ(one.program.graphs, one.source.find("class ForwardGraphs") != std::string::npos);
  return one.why_no_graph;
}

// Products in 16 bits of `size` rows, one after the other.
std::string chain(int products, int size) {
  const std::string type = "f16[" + std::to_string(size) + ", " + std::to_string(size) + "]";
  std::string text = "input %w : " + type + " parameter \"w\"\ninput %v0 : " + type + " user args.0\n";
  for (int at = 0; at < products; ++at)
    text += "%v" + std::to_string(at + 1) + " = aten.mm.default(self=%v" + std::to_string(at) + ", mat2=%w) : " + type +
            "\n";
  return text + "return %v" + std::to_string(products);
}

TEST(CudaGraphs, KernelsAndPlainLibraryCallsAreCaptured) {
  EXPECT_EQ(why_not(R"(
    input %x : f32[8, 64] user args.0
    %y = aten.relu.default(self=%x) : f32[8, 64]
    return %y)"),
            "");
}

TEST(CudaGraphs, DrawsThatPyTorchCapturesAre) {
  EXPECT_EQ(why_not(R"(
    input %x : f32[8, 64] user args.0
    %y = aten.rand_like.default(self=%x) : f32[8, 64]
    %z = aten.add.Tensor(self=%x, other=%y) : f32[8, 64]
    return %z)"),
            "");
}

TEST(CudaGraphs, TensorsElsewhereThatNothingReadsDoNotMatter) {
  const std::string text = R"(
    input %elsewhere : f32[64] on cpu buffer "elsewhere" access "self.elsewhere"
    input %x : f32[8, 64] user args.0
    %y = aten.relu.default(self=%x) : f32[8, 64]
    return %y)";
  EXPECT_EQ(why_not(text), "");
}

TEST(CudaGraphs, WhatTheHostDoesAtEachCallIsNot) {
  EXPECT_EQ(why_not(R"(
    input %x : f32[8, 64] user args.0
    %y = aten.bernoulli.default(self=%x) : f32[8, 64]
    %z = aten.add.Tensor(self=%x, other=%y) : f32[8, 64]
    return %z)"),
            "it takes random numbers");
  EXPECT_EQ(why_not(R"(
    input %x : f32[64, 64] user args.0
    %y = aten.linalg_inv.default(self=%x) : f32[64, 64]
    return %y)"),
            "aten.linalg_inv.default may wait for the device");
  EXPECT_EQ(why_not(R"(
    input %x : f32[64, 64] user args.0
    %y = mine.filter.default(x=%x) : f32[64, 64]
    return %y)"),
            "nothing is known of the effects of mine.filter.default");
}

TEST(CudaGraphs, WhatACallPassesIsNotWrittenToNorHandedBack) {
  EXPECT_EQ(why_not(R"(
    input %x : f32[8, 64] user args.0
    %y = aten.relu.default(self=%x) : f32[8, 64]
    return input "args.0" %y, %y)"),
            "it writes to what a call passes");
  EXPECT_EQ(why_not(R"(
    input %x : f32[8, 64] user args.0
    %y = aten.relu.default(self=%x) : f32[8, 64]
    return %y, %x)"),
            "it returns a tensor that it was given");
}

TEST(CudaGraphs, BuffersTakeTheirNewContentsWithinTheGraph) {
  const Compiled one = compiled(R"(
    input %seen : f32[64] buffer "seen" access "self.seen"
    input %x : f32[8, 64] user args.0
    %sum = aten.sum.dim_IntList(self=%x, dim=[0]) : f32[64]
    %total = aten.add.Tensor(self=%seen, other=%sum) : f32[64]
    %y = aten.sub.Tensor(self=%x, other=%total) : f32[8, 64]
    return buffer "seen" %total, %y)");
  ASSERT_TRUE(one.program.graphs);
  EXPECT_NE(one.source.find("    seen.copy_("), std::string::npos) << one.source;
  EXPECT_EQ(one.source.find("self.seen.copy_("), std::string::npos) << one.source;
}

TEST(CudaGraphs, IndicesOutOfRangeAreLookedForAtEachCall) {
  const Compiled one = compiled(R"(
    input %table : f32[100, 64] parameter "table" access "self.table"
    input %i : i64[8] user args.0
    %y = aten.embedding.default(weight=%table, indices=%i) : f32[8, 64]
    return %y)");
  ASSERT_TRUE(one.program.graphs);
  const size_t forward = one.source.find("    def forward(");
  EXPECT_NE(one.source.find("        raise_refused()\n", forward), std::string::npos) << one.source;
  EXPECT_EQ(one.source.find("    raise_refused()\n", one.source.find("def kernel_forward(")),
            one.source.find("    raise_refused()\n", forward))
      << one.source;
}

TEST(CudaGraphs, AutoCapturesManyShortLaunchesOnly) {
  EXPECT_TRUE(compiled(chain(20, 256), GraphUse::kAuto).program.graphs);
  EXPECT_FALSE(compiled(chain(4, 256), GraphUse::kAuto).program.graphs);
  EXPECT_FALSE(compiled(chain(20, 8192), GraphUse::kAuto).program.graphs);
  EXPECT_TRUE(compiled(chain(4, 256), GraphUse::kOn).program.graphs);
  EXPECT_FALSE(compiled(chain(20, 256), GraphUse::kOff).program.graphs);
}

TEST(CudaGraphs, NoGraphsAndMoreCautionHaveNone) {
  for (const Caution caution : kCautions)
    EXPECT_EQ(compiled(chain(20, 256), GraphUse::kOn, caution).program.graphs, caution < Caution::kNoGraphs);
  EXPECT_EQ(compiled(chain(20, 256), GraphUse::kOn, Caution::kNoGraphs).source,
            compiled(chain(20, 256), GraphUse::kOff).source);
}

TEST(CudaGraphs, TheScheduleSaysSo) {
  const Compiled with = compiled(chain(20, 256)), without = compiled(chain(20, 256), GraphUse::kOff);
  const std::string text = schedule_to_json(with.schedule);
  EXPECT_NE(text.find("\"graphs\""), std::string::npos);
  EXPECT_EQ(schedule_to_json(without.schedule).find("\"graphs\""), std::string::npos);
  EXPECT_EQ(schedule_from_json(text), with.schedule);
  const CompileOptions options{
      .device = default_device("triton"), .passes = {}, .problem_name = "", .problem_source = ""};
  EXPECT_EQ(with_schedule(without, schedule_from_json(text), options).source, with.source);
  EXPECT_EQ(with_schedule(with, without.schedule, options).source, without.source);
}

TEST(CudaGraphs, OtherWordsAreRefused) { EXPECT_THROW(graph_use_of("yes"), Error); }

}  // namespace
}  // namespace kw
