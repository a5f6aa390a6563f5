// From what models really write to a candidate: each case is an answer, what has to come of it, and the repairs that
// have to be named.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "llm/extract.hpp"
#include "llm/host.hpp"
#include "llm/pass_at_k.hpp"
#include "llm/prompts.hpp"
#include "support/error.hpp"
#include "targets/targets.hpp"

namespace kw::llm {
namespace {

const std::string kProblem = R"py(import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(8), torch.randn(8)]


def get_init_inputs():
    return []
)py";

const std::string kImports = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n";
const std::string kKernel = R"py(
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)

)py";
const std::string kFunction = R"py(
def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out

)py";
const std::string kClass = R"py(
class ModelNew(nn.Module):
    def forward(self, x, y):
        return add(x, y)
)py";
const std::string kWhole = kImports + kKernel + kFunction + kClass;

std::string fenced(const std::string& code, const std::string& language = "python") {
  return "```" + language + "\n" + code + "```\n";
}

// One process of Python for all of them.
Extraction extracted(const std::string& text, bool cut_off = false, const std::string& target = "triton") {
  static Host host(HostOptions{"python3", KW_PYTHON_DIR});
  return extract({text, cut_off, language_of(target_named(target)), kProblem},
                 [](const std::string& source) { return host.request("source_facts", {{"source", source}}, 60); });
}

bool names(const Extraction& extraction, const std::string& repair) {
  return std::any_of(extraction.repairs.begin(), extraction.repairs.end(),
                     [&](const std::string& one) { return one.find(repair) != std::string::npos; });
}

TEST(LlmExtract, AWholeAnswerNeedsNoRepair) {
  const Extraction one = extracted("Here you are:\n\n" + fenced(kWhole) + "\nThis is fast because it is fused.");
  EXPECT_EQ(one.fault.code, "") << one.fault.message;
  EXPECT_EQ(one.source, kWhole);
  EXPECT_TRUE(one.repairs.empty());
}

TEST(LlmExtract, RepairsAreMadeAndNamed) {
  const struct {
    const char* name;
    std::string text;
    bool cut_off;
    std::string repair;
  } cases[] = {
      {"no fences", kWhole, false, "no fences"},
      {"chatter without fences",
       "Sure! I will write the kernel for you now.\n\n" + kWhole + "\nThis kernel is fast because it is fused.\n",
       false, "text around the code removed"},
      {"reasoning", "<think>\n```python\nclass ModelNew(nn.Module): pass\n```\n</think>\n" + fenced(kWhole), false,
       "reasoning removed"},
      {"open fence", "```python\n" + kWhole, true, "fence closed"},
      {"several blocks",
       fenced("print('usage')\n") + fenced(kWhole) + "Run it so:\n" + fenced("pip install triton\n", "bash"), false,
       "one of 2 blocks"},
      {"kernel and class apart",
       "The kernel:\n" + fenced(kImports + kKernel + kFunction) + "The module:\n" + fenced(kClass), false,
       "blocks joined"},
      {"wrong class name",
       fenced(kImports + kKernel + kFunction +
              "\nclass FusedAdd(nn.Module):\n    def forward(self, x, y):\n        return add(x, y)\n"),
       false, "class FusedAdd taken"},
      {"Model rewritten",
       fenced(kImports + kKernel + kFunction +
              "\nclass Model(nn.Module):\n    def forward(self, x, y):\n        return add(x, y)\n"),
       false, "class Model taken"},
      {"missing imports", fenced(kKernel + kFunction + kClass), false, "imports added: torch, nn, triton, tl"},
      {"subclass of Model",
       fenced(kImports + kKernel + kFunction +
              "\nclass ModelNew(Model):\n    def forward(self, x, y):\n        return add(x, y)\n"),
       false, "problem's Model added"},
      {"function without a class", fenced(kImports + kKernel + kFunction), false, "class written around add()"},
      {"cut off behind the class", "```python\n" + kWhole + "\ndef test():\n    x = torch.randn(", true,
       "unfinished end removed"},
      {"prose inside the block", fenced(kWhole + "\nThis code is fast because it's fused.\n"), false,
       "unfinished end removed"},
  };
  for (const auto& [name, text, cut_off, repair] : cases) {
    const Extraction one = extracted(text, cut_off);
    EXPECT_EQ(one.fault.code, "") << name << ": " << one.fault.message;
    EXPECT_TRUE(names(one, repair)) << name << ": " << nlohmann::json(one.repairs);
    EXPECT_NE(one.source.find("ModelNew"), std::string::npos) << name;
  }
}

TEST(LlmExtract, WhatCannotPassIsTold) {
  const std::string in_torch = kImports +
                               "class ModelNew(nn.Module):\n    def forward(self, x, y):\n        return x + y\n";
  const struct {
    const char* name;
    std::string text;
    bool cut_off;
    const char* code;
  } cases[] = {
      {"nothing", "", false, "empty"},
      {"only reasoning", "<think>Let me think about", true, "empty"},
      {"prose", "I am sorry, but I cannot help with that request.", false, "no-code"},
      {"cut in the kernel", "```python\n" + kImports + "\n@triton.jit\ndef add_kernel(x_ptr", true, "truncated"},
      {"broken", fenced(kImports + "class ModelNew(nn.Module:\n    pass\n"), false, "syntax-error"},
      {"PyTorch alone", fenced(in_torch), false, "no-kernel"},
      {"kernel that is not launched", fenced(kImports + kKernel + in_torch), false, "not-launched"},
      {"deletes files", fenced("import shutil\n" + kWhole), false, "forbidden"},
      {"opens sockets", fenced("from socket import socket\n" + kWhole), false, "forbidden"},
      {"forks", fenced(kWhole + "\nimport os\nos.fork()\n"), false, "forbidden"},
      {"writes a verdict", fenced(kWhole + "\nimport os\nos.write(3, b'pass')\n"), false, "forbidden"},
      {"changes its judge", fenced(kWhole + "\ntorch.allclose = lambda *a, **k: True\n"), false, "forbidden"},
      {"hides it", fenced(kWhole + "\nexec('import os')\n"), false, "forbidden"},
      {"no module and no function", fenced(kImports + kKernel), false, "no-model-new"},
  };
  for (const auto& [name, text, cut_off, code] : cases) {
    const Extraction one = extracted(text, cut_off);
    EXPECT_EQ(one.fault.code, code) << name << ": " << one.fault.message;
    EXPECT_FALSE(one.fault.message.empty()) << name;
  }
}

TEST(LlmExtract, CppNeedsAFunctionThatIsCompiledAndCalled) {
  const std::string cpp =
      "CPP_SOURCE = r\"\"\"\nextern \"C\" void add(const float* x, const float* y, float* out, long n) { for (long i = "
      "0; i < n; ++i) out[i] = x[i] + y[i]; }\n\"\"\"\n\n";
  const std::string use =
      "\n\nclass ModelNew(nn.Module):\n    def forward(self, x, y):\n        out = torch.empty_like(x)\n        "
      "kernels.add(pointer(x), pointer(y), pointer(out), integer(x.numel()))\n        return out\n";
  const Extraction good = extracted(
      fenced("import torch\nimport torch.nn as nn\n" + cpp + "kernels = compile_cpp(CPP_SOURCE)" + use), false, "cpu");
  EXPECT_EQ(good.fault.code, "") << good.fault.message;
  EXPECT_NE(good.source.find("def compile_cpp"), std::string::npos);
  EXPECT_EQ(extracted(fenced(cpp + use), false, "cpu").fault.code, "not-launched");
  EXPECT_EQ(extracted(fenced(kWhole), false, "cpu").fault.code, "no-kernel");
  EXPECT_EQ(extracted(fenced(cpp + "kernels = compile_cpp(CPP_SOURCE)\n\nclass ModelNew(nn.Module):\n    def "
                                   "forward(self, x, y):\n        return x + y\n"),
                      false, "cpu")
                .fault.code,
            "not-launched");
}

TEST(LlmPrompts, HaveTheProblemAndTheFormAndKeepToTheirBudget) {
  PromptFacts facts{
      .language = language_of(target_named("cpu")),
      .problem = kProblem + "# {{form}}",
      .hardware = "a Xeon with 2 threads",
      .examples = {{"class Model: # near", "class ModelNew: # near"}, {"class Model: # far", "class ModelNew: # far"}},
      .shots = 3};
  const auto count = [](const Prompt& prompt) { return static_cast<int>(prompt.text().size()); };
  const FilledPrompt all = fill(load_template("chat"), facts, 0, count);
  ASSERT_EQ(all.prompt.messages.size(), 2u);
  const std::string text = all.prompt.text();
  for (const char* part : {"x + y", "# {{form}}", "compile_cpp", "a Xeon with 2 threads", "# near", "# far", "C++"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_EQ(text.find("{{problem}}"), std::string::npos);
  const FilledPrompt fewer = fill(load_template("chat"), facts, all.tokens - 1, count);
  EXPECT_EQ(fewer.examples, 1);
  EXPECT_TRUE(fewer.fits);
  EXPECT_NE(fewer.prompt.text().find("# near"), std::string::npos);
  EXPECT_FALSE(fill(load_template("chat"), facts, 10, count).fits);
  facts.shots = 0;
  EXPECT_EQ(fill(load_template("chat"), facts, 0, count).prompt.text().find("scale_add_relu"), std::string::npos);
  EXPECT_FALSE(fill(load_template("kernelllm"), facts, 0, count).prompt.raw.empty());
  EXPECT_THROW(load_template("/no/such/file"), Error);
}

TEST(LlmPrompts, NearerProblemsAreMoreAlike) {
  EXPECT_GT(likeness("x = torch.softmax(y, dim=-1)", "z = torch.softmax(w, dim=1)"),
            likeness("x = torch.softmax(y, dim=-1)", "z = nn.Conv2d(3, 4)"));
  EXPECT_EQ(likeness("torch softmax", "softmax torch"), 1.0);
}

// All subsets of k among n samples of which the first c passed.
double brute_force(int n, int c, int k) {
  int all = 0, good = 0;
  for (unsigned set = 0; set < (1u << n); ++set) {
    if (std::popcount(set) != k) continue;
    ++all;
    good += (set & ((1u << c) - 1)) != 0;
  }
  return static_cast<double>(good) / all;
}

TEST(PassAtK, IsTheShareOfAllSubsets) {
  for (int n = 1; n <= 12; ++n)
    for (int c = 0; c <= n; ++c)
      for (int k = 1; k <= n; ++k)
        EXPECT_NEAR(*pass_at_k(n, c, k), brute_force(n, c, k), 1e-12) << n << " " << c << " " << k;
  EXPECT_FALSE(pass_at_k(3, 1, 4).has_value());
  EXPECT_NEAR(*pass_at_k(1000, 1, 20), 0.02, 1e-12);
}

TEST(BestAtK, IsTheMeanOverAllSubsets) {
  const std::vector<double> values = {1.0, 2.5, 1.0, 0.5, 4.0, 2.5, 1.25};
  const int n = static_cast<int>(values.size());
  for (int k = 1; k <= n; ++k) {
    double sum = 0;
    int sets = 0;
    for (unsigned set = 0; set < (1u << n); ++set) {
      if (std::popcount(set) != k) continue;
      double best = 0;
      for (int i = 0; i < n; ++i)
        if (set >> i & 1) best = std::max(best, values[static_cast<size_t>(i)]);
      sum += best;
      ++sets;
    }
    EXPECT_NEAR(*best_at_k(values, k), sum / sets, 1e-12) << k;
  }
  EXPECT_FALSE(best_at_k(values, n + 1).has_value());
}

}  // namespace
}  // namespace kw::llm
