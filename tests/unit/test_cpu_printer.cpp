// Golden tests: each file of tests/golden/cpu holds a kernel's text, a line of dashes, and the C++ that the CPU printer
// makes of it. KW_UPDATE_GOLDEN=1 rewrites the second half. tests/python/test_cpu_golden.py compiles and runs the
// kernels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "emit/runtime/cpu/helper_sections.hpp"
#include "emit/cpu/tile_printer.hpp"
#include "group_text.hpp"
#include "support/text.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/text.hpp"

using namespace kw;

namespace {

const std::string kSeparator = "----\n";

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KW_GOLDEN_DIR "/cpu"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string printed(const GroupText& group, cpu::HelperSet& helpers) {
  const tile::Program tiles = cpu_tiles(group);
  EXPECT_EQ(tile::print_program(tile::parse_program(tile::print_program(tiles))), tile::print_program(tiles));
  return cpu::print_tile_function(*lower::lowered_by(cpu::lowering_steps(), tiles), helpers).text;
}

class CpuGolden : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(CpuGolden, PrintsTheExpectedSource) {
  const std::string content = read_file(GetParam());
  const size_t separator = content.find(kSeparator);
  const std::string input = content.substr(0, separator);
  cpu::HelperSet helpers;
  const std::string kernel_text = printed(parse_group(input), helpers);
  const std::string actual = "// calls: " + join({helpers.begin(), helpers.end()}, " ") + "\n" + kernel_text;
  if (std::getenv("KW_UPDATE_GOLDEN")) {
    write_file_atomically(GetParam(), input + kSeparator + actual);
    return;
  }
  ASSERT_NE(separator, std::string::npos);
  EXPECT_EQ(actual, content.substr(separator + kSeparator.size()));
}

INSTANTIATE_TEST_SUITE_P(Files, CpuGolden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });
