// Golden tests: each file of tests/golden/triton holds a group's text (group_text.hpp), a line of dashes, and the
// Python module that the Triton printer makes of it as a tile program. KW_UPDATE_GOLDEN=1 rewrites the second half.
// tests/python/test_triton_golden.py runs and compiles those modules.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "emit/target_printer.hpp"
#include "group_text.hpp"
#include "plan/plan.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

using namespace kw;

namespace {

const std::string kSeparator = "----\n";

std::string module_of(GroupText group) {
  std::vector<std::string> names;
  for (const kernel::Buffer& buffer : group.group.kernel.buffers) names.push_back(buffer.name);
  plan::ScheduledTiles tiles = triton_tiles(std::move(group));
  Program program;
  TileStep step;
  for (const int tensor : tiles.buffers) step.tensors.push_back(names[tensor]);
  step.offsets = tiles.offsets;
  program.tiles = {std::move(tiles.program)};
  lower_for(target_named("triton"), program);
  const auto printer = make_triton_printer();
  const std::string kernels = printer->kernels(program);
  std::string out = printer->imports(program);
  if (kernels.find("refused_indices") != std::string::npos)
    out = "import functools\n\nimport torch\n" + out + "\nDEVICE = \"cpu\"\n";
  out += "\n\n" + kernels + "\n\ndef run(" + join(names, ", ") + "):\n";
  const std::string launch = printer->launch(program, step, nullptr);
  for (const std::string& line : split_lines(launch.empty() ? "pass\n" : launch))
    if (!line.empty()) out += "    " + line + "\n";
  return out + "\n\n" + printer->trailer(program);
}

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KW_GOLDEN_DIR "/triton"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class TritonGolden : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(TritonGolden, PrintsTheExpectedSource) {
  const std::string content = read_file(GetParam());
  const size_t separator = content.find(kSeparator);
  const std::string input = content.substr(0, separator);
  const std::string actual = module_of(parse_group(input));
  if (std::getenv("KW_UPDATE_GOLDEN")) {
    write_file_atomically(GetParam(), input + kSeparator + actual);
    return;
  }
  ASSERT_NE(separator, std::string::npos);
  EXPECT_EQ(actual, content.substr(separator + kSeparator.size()));
}

INSTANTIATE_TEST_SUITE_P(Files, TritonGolden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });
