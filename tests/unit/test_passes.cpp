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
  const std::string pass = text.substr(5, line_end - 5);
  const std::string before = text.substr(line_end + 1, separator - line_end - 1);
  Graph graph = parse_graph(before);
  verify(graph, "parsing");
  if (pass == "all") run_passes(graph);
  else run_pass(graph, pass);
  const std::string after = print(graph);
  EXPECT_EQ(parse_graph(after), graph);
  if (std::getenv("KW_UPDATE_GOLDEN"))
    write_file_atomically(path, "pass " + pass + "\n" + before + std::string(kSeparator) + after);
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
  const PassReport report = run_passes(graph, options);
  EXPECT_EQ(report.passes.size(), pass_names().size());
  EXPECT_EQ(titles.size(), pass_names().size() + 1);
  EXPECT_GE(report.seconds(), 0.0);
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(Pipeline, SwitchesPassesOffByName) {
  Graph graph = parse_graph(kTwice);
  PassOptions options;
  options.disabled = {"cse"};
  EXPECT_EQ(run_passes(graph, options).passes.size(), pass_names().size() - 1);
  EXPECT_EQ(graph.nodes.size(), 3u);
  options.disabled = {"all"};
  const PassReport needed = run_passes(graph, options);
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
  EXPECT_THROW(run_passes(graph, options), Error);
}
