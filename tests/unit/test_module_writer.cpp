// Golden tests: each file of tests/golden/module has sections parted by lines of dashes: the problem's source, the
// graph, the program's kernels (group_text.hpp) and steps (empty: every node is a library call),
// and the module that is written.
// KW_UPDATE_GOLDEN=1 rewrites the last. tests/python/test_module_golden.py runs those modules.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "emit/module_writer.hpp"
#include "emit/program_steps.hpp"
#include "emit/python_text.hpp"
#include "emit/scratch_memory.hpp"
#include "group_text.hpp"
#include "ir/text.hpp"
#include "plan/plan.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

using namespace kw;

namespace {

const std::string kSeparator = "----\n";

std::vector<std::string> sections_of(const std::string& content) {
  std::vector<std::string> sections;
  size_t at = 0;
  for (size_t end = content.find(kSeparator); end != std::string::npos && sections.size() < 3;
       end = content.find(kSeparator, at)) {
    sections.push_back(content.substr(at, end - at));
    at = end + kSeparator.size();
  }
  sections.push_back(content.substr(at));
  return sections;
}

ValueId value_named(const Graph& graph, const std::string& name) {
  for (size_t id = 0; id < graph.values.size(); ++id)
    if (graph.values[id].name == name) return static_cast<ValueId>(id);
  throw std::runtime_error("no value " + name);
}

// Lines after the kernels: "allocate NAME", "run KERNEL TENSORS…", "call NAME" (the node that makes it), "view NAME
// BASE", "graphs" (as a CUDA graph).
Program read_program(const std::string& text, const Graph& graph) {
  Program program;
  std::vector<std::vector<int>> buffers;  // of each tile program: which of the kernel's each of its own is
  std::string kernel_text;
  for (const std::string& line : split_lines(text)) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb;
    if (verb == "allocate" && words >> name) {
      const ValueId value = value_named(graph, name);
      program.steps.push_back(AllocateStep{value, name, graph.type(value)});
    } else if (verb == "run") {
      size_t kernel = 0;
      words >> kernel;
      std::vector<std::string> given;
      while (words >> name) given.push_back(name);
      TileStep step;
      step.program = static_cast<int>(kernel);
      for (const int buffer : buffers.at(kernel)) step.tensors.push_back(given.at(buffer));
      program.steps.push_back(step);
    } else if (verb == "graphs") {
      program.graphs = true;
    } else if (verb == "call" && words >> name) {
      program.steps.emplace_back(std::in_place_type<ExternStep>,
                                 ExternStep{graph.values[value_named(graph, name)].producer});
    } else if (verb == "view" && words >> name) {
      ViewStep step;
      step.value = value_named(graph, name);
      step.type = graph.type(step.value);
      words >> step.base;
      program.steps.push_back(step);
    } else {
      kernel_text += line + "\n";
      if (line == "}") {
        plan::ScheduledTiles tiles = triton_tiles(parse_group(kernel_text));
        program.tiles.push_back(std::move(tiles.program));
        buffers.push_back(std::move(tiles.buffers));
        kernel_text.clear();
      }
    }
  }
  if (program.steps.empty())
    for (size_t node = 0; node < graph.nodes.size(); ++node)
      program.steps.emplace_back(std::in_place_type<ExternStep>, ExternStep{static_cast<NodeId>(node)});
  lower_for(target_named("triton"), program);
  return program;
}

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(KW_GOLDEN_DIR "/module"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class ModuleGolden : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(ModuleGolden, WritesTheExpectedModule) {
  const std::vector<std::string> sections = sections_of(read_file(GetParam()));
  ASSERT_GE(sections.size(), 3u);
  const Graph graph = parse_graph(sections[1]);
  const Program program = read_program(sections[2], graph);
  const std::string written = write_module(graph, program, *make_triton_printer(),
                                           {"A golden test's module.", sections[0]});
  if (std::getenv("KW_UPDATE_GOLDEN")) {
    write_file_atomically(GetParam(),
                          sections[0] + kSeparator + sections[1] + kSeparator + sections[2] + kSeparator + written);
    return;
  }
  ASSERT_EQ(sections.size(), 4u);
  EXPECT_EQ(written, sections[3]);
}

INSTANTIATE_TEST_SUITE_P(Files, ModuleGolden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

TEST(PythonText, RenamesOnlyTheNameItself) {
  EXPECT_EQ(python::rename_word("sign(x) + torch.sign(y) + signed", "sign", "kw_sign"),
            "kw_sign(x) + torch.sign(y) + signed");
}

TEST(PythonText, FindsTopLevelNames) {
  const auto names = python::top_level_names(
      "import torch.nn as nn\nfrom a import b\nSIZE = 3\ndef f(x):\n    y = 1\nclass C(D):\n    pass\nx == 3\n");
  EXPECT_EQ(names, (std::set<std::string>{"nn", "b", "SIZE", "f", "C"}));
  EXPECT_EQ(
      python::top_level_names("import os.path, re as r\nfrom a import b, c as d  # and e\nfrom f import (\n    g,\n"
                              "    h,\n)\nfrom i import *\nA, B = C = 3\n(D, E) = F\nG: int = 3\nx.y = 3\nz[0] = 3\n"
                              "H += 1\nif x: I = 3\nJ\n"),
      (std::set<std::string>{"os", "r", "b", "d", "g", "h", "*", "A", "B", "C", "D", "E", "G"}));
}

TEST(ScratchMemory, HoldsWhatKernelsAloneReadByAddress) {
  const Graph graph = parse_graph(R"(graph Model on cuda {
  input %x : f32[100, 3] user args.0 access "x"
  %first = aten.neg.default(self=%x) : f32[100, 3]
  %second = aten.abs.default(self=%first) : f32[100, 3]
  %third = aten.neg.default(self=%second) : f32[100, 3]
  %columns = aten.t.default(self=%third) : f32[3, 100]
  %fourth = aten.neg.default(self=%third) : f32[100, 3]
  %product = aten.mm.default(self=%columns, mat2=%fourth) : f32[3, 3]
  %fifth = aten.neg.default(self=%product) : f32[3, 3]
  return %fifth
})");
  Program program;
  const auto allocate = [&](const std::string& name) {
    const ValueId value = value_named(graph, name);
    program.steps.push_back(AllocateStep{value, "", graph.type(value)});
  };
  for (const char* name : {"first", "second", "third", "fourth", "fifth"}) allocate(name);
  const auto scratch_of = [&](const std::string& name, DType dtype, bool zeros) {
    TensorType type;
    type.dtype = dtype;
    type.shape = {5};
    type.strides = {1};
    type.device = "cuda";
    program.steps.push_back(AllocateStep{kNoValue, name, type, zeros});
  };
  scratch_of("parts", DType::f64, false);
  scratch_of("counters", DType::i32, true);
  TileStep launch;
  launch.tensors = {"x", "first", "second", "third", "fourth", "parts", "counters", "fifth"};
  program.steps.emplace_back(std::in_place_type<TileStep>, std::move(launch));
  const ViewStep view{value_named(graph, "columns"), "third", graph.type(value_named(graph, "columns"))};
  program.steps.push_back(view);
  program.steps.emplace_back(std::in_place_type<ExternStep>,
                             ExternStep{graph.values[value_named(graph, "product")].producer});
  // Not what is viewed, what the library reads, what must be 0 at first, and what stands apart.
  const ScratchMemory scratch = scratch_memory(graph, program, {"fifth"});
  EXPECT_EQ(scratch.starts, (std::map<std::string, int64_t>{{"first", 0}, {"second", 1536}, {"parts", 3072}}));
  EXPECT_EQ(scratch.bytes, 3072 + 512);
  // A kernel that starts within one takes a view of it; one part saves nothing.
  std::get<TileStep>(program.steps[7]).offsets = {0, 30, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(scratch_memory(graph, program, {"fifth"}).starts.size(), 2u);
  EXPECT_TRUE(scratch_memory(graph, program, {"fifth", "parts"}).starts.empty());
}

TEST(LateAllocations, StandBeforeTheFirstStepThatNeedsThem) {
  const Graph graph = parse_graph(R"(graph Model on cuda {
  input %x : f32[4] user args.0 access "x"
  %a = aten.neg.default(self=%x) : f32[4]
  %b = aten.abs.default(self=%a) : f32[4]
  return %b
})");
  Program program;
  const auto allocate = [&](const std::string& name) {
    TensorType type = graph.type(value_named(graph, "x"));
    const ValueId value = name.size() == 1 ? value_named(graph, name) : kNoValue;
    program.steps.push_back(AllocateStep{value, value == kNoValue ? name : "", type});
  };
  const auto run = [&](std::vector<std::string> tensors, bool by_last) {
    TileStep step;
    step.tensors = std::move(tensors);
    step.by_last = by_last;
    program.steps.emplace_back(std::in_place_type<TileStep>, std::move(step));
  };
  for (const char* name : {"b", "nobody's", "parts", "a", "sums"}) allocate(name);
  run({"x", "a"}, false);
  run({"a", "parts"}, false);
  run({"parts", "sums", "b"}, true);
  run({"b", "sums"}, false);
  std::string order;
  for (const Step& step : with_late_allocations(graph, program).steps) {
    const auto* made = std::get_if<AllocateStep>(&step);
    order += made == nullptr ? "run " : (made->name.empty() ? graph.values[made->value].name : made->name) + " ";
  }
  // What the last program of a launch needs is there before the launch.
  EXPECT_EQ(order, "nobody's a run b parts sums run run run ");
}

TEST(PythonText, LongStatementsAreBrokenBetweenTermsAndFactors) {
  EXPECT_EQ(python::with_short_lines("x = aaaa + bbbb - cccc", 4, 20),
            "x = (\n        aaaa + bbbb\n        - cccc\n    )");
  EXPECT_EQ(python::with_short_lines("x = (aaaa + bbbb) // 12345", 4, 25),
            "x = (\n        (aaaa + bbbb)\n        // 12345\n    )");
  EXPECT_EQ(python::with_short_lines("x = load(\n        pointer + aaaaa + bbbbb,\n    )", 4, 24),
            "x = load(\n        pointer + aaaaa\n        + bbbbb,\n    )");
  for (const char* stays :
       {"x = aaaa + bbbb", "x = f(\"aaaaaaaaaa + bbbbbbbbbbb\")", "if aaaaaaa + bbbbbbb + ccccccc:"})
    EXPECT_EQ(python::with_short_lines(stays, 0, 20), stays);
}

TEST(PythonText, DocstringsAreBrokenBetweenWords) {
  EXPECT_EQ(python::docstring("What a kernel does.", 4, 40), "\"\"\"What a kernel does.\"\"\"");
  EXPECT_EQ(python::docstring("What a kernel does.", 4, 20), "\"\"\"What a\n    kernel does.\"\"\"");
}

TEST(PythonText, LongListsAreBrokenIntoRows) {
  std::string list = "[";
  for (int one = 0; one < 60; ++one) list += (one ? ", tensor_" : "tensor_") + std::to_string(one);
  const std::string call = python::wrapped_call("y = aten.cat(", {list + "]", "dim=1"}, ")");
  std::string joined;
  for (const std::string& line : split_lines(call)) {
    EXPECT_LE(line.size(), 118u) << line;
    joined += line.substr(line.find_first_not_of(' ')) + " ";
  }
  EXPECT_TRUE(joined.starts_with("y = aten.cat( [ tensor_0, tensor_1,")) << joined;
  EXPECT_TRUE(joined.ends_with("tensor_59, ], dim=1, ) ")) << joined;
}
