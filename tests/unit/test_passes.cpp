// Runs every file of tests/golden/passes: "pass NAME", the graph before, "----", the graph after.
// KW_UPDATE_GOLDEN=1 rewrites the expected part.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/verifier.hpp"
#include "passes/pipeline.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

using namespace kw;

namespace {

constexpr std::string_view kSeparator = "----\n";

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KW_GOLDEN_DIR))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().stem());
  std::sort(files.begin(), files.end());
  return files;
}

class GoldenPass : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(GoldenPass, PrintsAsExpected) {
  const std::string path = std::string(KW_GOLDEN_DIR) + "/" + GetParam() + ".txt";
  const std::string text = read_file(path);
  const size_t line_end = text.find('\n'), separator = text.find(kSeparator);
  ASSERT_TRUE(text.starts_with("pass ") && line_end != std::string::npos && separator != std::string::npos) << path;
  const std::string pass = text.substr(5, text.find_first_of(" \n", 5) - 5), head = text.substr(0, line_end + 1);
  const size_t target = head.find(" for ");
  const GraphForms forms = target == std::string::npos
                               ? GraphForms{}
                               : target_named(head.substr(target + 5, line_end - target - 5)).graph_forms();
  const std::string before = text.substr(line_end + 1, separator - line_end - 1);
  Graph graph = parse_graph(before);
  verify(graph, "parsing");
  if (pass == "all") run_passes(graph, forms);
  else run_pass(graph, forms, pass);
  const std::string after = print(graph);
  EXPECT_EQ(parse_graph(after), graph);
  if (std::getenv("KW_UPDATE_GOLDEN")) write_file_atomically(path, head + before + std::string(kSeparator) + after);
  else EXPECT_EQ(after, text.substr(separator + kSeparator.size())) << "KW_UPDATE_GOLDEN=1 rewrites " << path;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenPass, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param; });

namespace {

constexpr const char* kTwice = R"(graph Twice {
  input %x : f32[4] user args.0
  %a = aten.exp.default(self=%x) : f32[4]
  %b = aten.exp.default(self=%x) : f32[4]
  %c = aten.add.Tensor(self=%a, other=%b) : f32[4]
  return %c
}
)";

}  // namespace

TEST(Pipeline, TimesNamesAndPrintsEachPass) {
  Graph graph = parse_graph(kTwice);
  PassOptions options;
  std::vector<std::string> titles;
  options.print_before = {"cse"};
  options.print_after = {"all"};
  options.dump = [&](const std::string& title, const std::string& text) {
    titles.push_back(title);
    EXPECT_TRUE(text.starts_with("graph Twice"));
  };
  const PassReport report = run_passes(graph, {}, options);
  EXPECT_EQ(report.passes.size(), pass_names().size());
  EXPECT_EQ(titles.size(), pass_names().size() + 1);
  EXPECT_GE(report.seconds(), 0.0);
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(Pipeline, SwitchesPassesOffByName) {
  Graph graph = parse_graph(kTwice);
  PassOptions options;
  options.disabled = {"cse"};
  EXPECT_EQ(run_passes(graph, {}, options).passes.size(), pass_names().size() - 1);
  EXPECT_EQ(graph.nodes.size(), 3u);
  options.disabled = {"all"};
  const PassReport needed = run_passes(graph, {}, options);
  ASSERT_EQ(needed.passes.size(), 1u);
  EXPECT_EQ(needed.passes[0].name, "mutations");  // without it outputs would be overwritten
}

RewriteCounts breaks_in_silence(Graph& graph) {
  graph.nodes.pop_back();  // an output has no producer any more
  return {};
}

TEST(Pipeline, APassThatCountsNoRewriteIsVerifiedToo) {
  Graph graph = parse_graph(kTwice);
  EXPECT_THROW(run_checked(graph, "broken", breaks_in_silence, NumericTag::kExact), Error);
}

RewriteCounts reassociates(Graph&) {
  RewriteCounts counts;
  counts.add(NumericTag::kReassociates);
  return counts;
}

TEST(Pipeline, AnExactPassHasNoRewriteThatReassociates) {
  Graph graph = parse_graph(kTwice);
  EXPECT_NO_THROW(run_checked(graph, "sums", reassociates, NumericTag::kReassociates));
  EXPECT_THROW(run_checked(graph, "sums", reassociates, NumericTag::kExact), Error);
}

TEST(Pipeline, RefusesAnUnknownPass) {
  Graph graph = parse_graph(kTwice);
  PassOptions options;
  options.disabled = {"css"};
  EXPECT_THROW(run_passes(graph, {}, options), Error);
}

namespace {

// The texts of one pass's rewrites of a graph.
std::vector<RewriteText> rewrites_in(const char* text, const std::string& pass) {
  Graph graph = parse_graph(text);
  PassOptions options;
  options.keep_rewrites = true;
  std::vector<RewriteText> rewrites = run_passes(graph, {}, options).rewrites;
  std::erase_if(rewrites, [&](const RewriteText& one) { return one.pass != pass; });
  return rewrites;
}

constexpr const char* kSums = R"(graph Sums {
  input %x : f32[32, 8] user args.0
  input %w : f32[64, 8] parameter "w" access "self.w"
  %linear = aten.linear.default(input=%x, weight=%w) : f32[32, 64]
  %sum = aten.sum.dim_IntList(self=%linear, dim=[1], keepdim=true) : f32[32, 1]
  %negative = aten.neg.default(self=%sum) : f32[32, 1]
  %absolute = aten.abs.default(self=%negative) : f32[32, 1]
  return %absolute
}
)";

}  // namespace

TEST(Rewrites, HaveTheNodesThatNothingReadsAnyMoreAndThoseInTheirPlace) {
  const auto sums = rewrites_in(kSums, "linear_sums");
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].tag, NumericTag::kReassociates);
  EXPECT_EQ(sums[0].names, (std::vector<std::string>{"linear", "sum"}));
  ASSERT_EQ(sums[0].before.nodes.size(), 2u);
  EXPECT_EQ(sums[0].before.nodes[0], "%linear = aten.linear.default(input=%x, weight=%w) : f32[32, 64]");
  EXPECT_EQ(sums[0].before.flops, 2.0 * 32 * 64 * 8 + 32 * 64);
  EXPECT_EQ(sums[0].before.bytes, 4.0 * (32 * 8 + 64 * 8 + 2 * 32 * 64 + 32));
  ASSERT_EQ(sums[0].after.nodes.size(), 3u);  // of the matrix, times x, of that
  EXPECT_TRUE(sums[0].after.nodes[2].starts_with("%sum = aten.sum.dim_IntList(self=%mul, ")) << sums[0].after.nodes[2];
  EXPECT_EQ(sums[0].after.flops, 64.0 * 8 + 2 * 32 * 8);
}

TEST(Rewrites, OfANodeThatChangesInPlaceHaveBothForms) {
  const auto identities = rewrites_in(kSums, "identities");
  ASSERT_EQ(identities.size(), 1u);
  EXPECT_EQ(identities[0].names, (std::vector<std::string>{"negative", "absolute"}));
  EXPECT_EQ(identities[0].after.nodes,
            (std::vector<std::string>{"%absolute = aten.abs.default(self=%sum) : f32[32, 1]"}));
  EXPECT_EQ(identities[0].tag, NumericTag::kExact);
}

TEST(Rewrites, OfAValueThatIsAnotherNameIt) {
  const auto shared = rewrites_in(kTwice, "cse");
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].before.nodes, (std::vector<std::string>{"%b = aten.exp.default(self=%x) : f32[4]"}));
  EXPECT_EQ(shared[0].after.nodes, (std::vector<std::string>{"%b is %a"}));
  EXPECT_EQ(shared[0].before.bytes - shared[0].after.bytes, 32.0);
}

TEST(Rewrites, OfAPassWithoutPlacesAreOne) {
  const auto dead = rewrites_in(kSums, "dead_code");
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_EQ(dead[0].names, (std::vector<std::string>{"linear", "negative"}));
  EXPECT_TRUE(dead[0].after.nodes.empty());
  EXPECT_EQ(dead[0].before.flops, 0.0);  // the rewrites before have saved that
}

TEST(Rewrites, AreKeptOnDemandOnly) {
  Graph graph = parse_graph(kSums);
  EXPECT_TRUE(run_passes(graph, {}).rewrites.empty());
}
