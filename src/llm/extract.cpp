#include "llm/extract.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "llm/checks.hpp"
#include "llm/embedded.hpp"
#include "support/text.hpp"

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMostSource = 200'000;

std::string stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

bool starts_like_python(const std::string& line) {
  for (const char* start : {"import ", "from ", "class ", "def ", "@triton", "@torch", "CPP_SOURCE"})
    if (line.starts_with(start)) return true;
  return false;
}

// Lines that a file of code may begin with but prose may not end in.
bool is_prose(const std::string& line) {
  if (line.empty() || std::isspace(static_cast<unsigned char>(line[0])) || line[0] == '#' || line[0] == '@' ||
      line[0] == ')' || line[0] == ']' || line[0] == '}')
    return false;
  if (starts_like_python(line)) return false;
  const size_t spaces = static_cast<size_t>(std::count(line.begin(), line.end(), ' '));
  return spaces >= 3 && line.find('=') == std::string::npos && line.find('(') == std::string::npos &&
         !line.ends_with(':');
}

// Models that indent a whole block, or answer inside a list.
std::string dedented(const std::string& code) {
  size_t least = std::string::npos;
  const std::vector<std::string> lines = split_lines(code);
  for (const std::string& line : lines)
    if (const size_t first = line.find_first_not_of(" \t"); first != std::string::npos) least = std::min(least, first);
  if (least == 0 || least == std::string::npos) return code;
  std::string out;
  for (const std::string& line : lines) out += (line.size() > least ? line.substr(least) : "") + "\n";
  return out;
}

bool mentions_class(const std::string& code, const char* name) {
  return code.find(std::string("class ") + name + "(") != std::string::npos ||
         code.find(std::string("class ") + name + ":") != std::string::npos;
}

bool has_module_class(const std::string& code) {
  for (size_t at = code.find("class "); at != std::string::npos; at = code.find("class ", at + 1))
    if (code.substr(at, code.find('\n', at) - at).find("Module)") != std::string::npos) return true;
  return false;
}

bool has_kernel(const std::string& code, const KernelLanguage& language) {
  return code.find(language.mark()) != std::string::npos;
}

class Extractor {
 public:
  Extractor(const ExtractionInput& input, const FactsOf& facts_of) : input_(input), facts_of_(facts_of) {}

  Extraction run() {
    const std::string text = without_reasoning(input_.text);
    if (text.size() != input_.text.size()) repaired("reasoning removed");
    if (stripped(text).empty()) return failed("empty", "The answer is empty.");
    if (!choose_code(text)) return failed("no-code", "The answer has no code in it.");
    if (source().size() > kMostSource)
      return failed("too-long", "The code is longer than " + std::to_string(kMostSource / 1000) + " kB.");
    Json facts = facts_of_(source());
    if (!facts["syntax"].is_null() && !mend_syntax(facts)) {
      const Json& syntax = facts["syntax"];
      Extraction& out = failed(input_.cut_off ? "truncated" : "syntax-error",
                               input_.cut_off ? "The answer was cut off before its end."
                                              : "The code is not valid Python: " + syntax.value("message", "") +
                                                    " (line " + std::to_string(syntax.value("line", 0)) + ").");
      out.fault.evidence = syntax.value("text", "");
      return out;
    }
    problem_ = facts_of_(input_.problem);
    if (!find_model_new(facts))
      return failed(input_.cut_off ? "truncated" : "no-model-new",
                    input_.cut_off ? "The answer was cut off before ModelNew was complete."
                                   : "The code has no class ModelNew, and nothing that could be it.");
    add_what_is_missing();
    facts = facts_of_(source());
    // A line of our own never breaks the syntax; a model's `from __future__` further down does.
    if (!facts["syntax"].is_null())
      return failed("syntax-error", "The code is not valid Python: " + facts["syntax"].value("message", "") + ".");
    result_.fault = check(facts, source(), input_.language);
    const std::string_view helper = input_.language.helper();
    if (!helper.empty() && result_.fault.code.empty() && is_undefined(facts, helper))
      prepend(std::string(input_.language.helper_text()) + "\n\n", "");
    return result_;
  }

 private:
  std::string& source() { return result_.source; }
  void repaired(const std::string& what) { result_.repairs.push_back(what); }
  Extraction& failed(const char* code, const std::string& message) {
    result_.fault = {code, message, ""};
    return result_;
  }

  bool choose_code(const std::string& text) {
    std::vector<Block> blocks = code_blocks(text);
    std::erase_if(blocks, [](const Block& block) {
      return stripped(block.code).empty() ||
             (!block.language.empty() && block.language != "python" && block.language != "py" &&
              block.language != "python3" && block.language != "triton");
    });
    if (blocks.empty()) return take_without_fences(text);
    const auto last_with = [&](auto&& holds) {
      const auto found = std::find_if(blocks.rbegin(), blocks.rend(),
                                      [&](const Block& block) { return holds(block.code); });
      return found == blocks.rend() ? blocks.end() : std::prev(found.base());
    };
    auto chosen = last_with([](const std::string& code) { return mentions_class(code, "ModelNew"); });
    if (chosen == blocks.end()) chosen = last_with(has_module_class);
    if (chosen == blocks.end())
      chosen = last_with([&](const std::string& code) { return has_kernel(code, input_.language); });
    if (chosen == blocks.end()) chosen = std::prev(blocks.end());
    source() = dedented(chosen->code);
    if (!chosen->closed) repaired("fence closed");
    if (blocks.size() > 1) join_kernels(blocks, *chosen);
    return true;
  }

  // Kernel in one block, module in another.
  void join_kernels(const std::vector<Block>& blocks, const Block& chosen) {
    if (has_kernel(source(), input_.language))
      return repaired("one of " + std::to_string(blocks.size()) + " blocks taken");
    std::string before;
    for (const Block& block : blocks)
      if (&block != &chosen && has_kernel(block.code, input_.language)) before += dedented(block.code) + "\n\n";
    if (before.empty()) return repaired("one of " + std::to_string(blocks.size()) + " blocks taken");
    source() = before + source();
    repaired("blocks joined");
  }

  bool take_without_fences(const std::string& text) {
    const std::vector<std::string> lines = split_lines(text);
    const auto first = std::find_if(lines.begin(), lines.end(), starts_like_python);
    if (first == lines.end()) return false;
    auto last = lines.end();
    // Only what stands behind the last line of code, so that text inside strings stays.
    while (last != first && (stripped(*std::prev(last)).empty() || is_prose(*std::prev(last)))) --last;
    for (auto line = first; line != last; ++line) source() += *line + "\n";
    repaired(first == lines.begin() && last == lines.end() ? "no fences" : "no fences, text around the code removed");
    return true;
  }

  // A text that was cut off, or that ends in prose: what is left when whole statements are kept. Only if ModelNew is
  // among them.
  bool mend_syntax(Json& facts) {
    const int whole = facts.value("whole_lines", 0);
    if (whole <= 0) return false;
    const std::vector<std::string> lines = split_lines(source());
    std::string kept;
    for (int i = 0; i < whole && i < static_cast<int>(lines.size()); ++i) kept += lines[static_cast<size_t>(i)] + "\n";
    if (!mentions_class(kept, "ModelNew")) return false;
    Json again = facts_of_(kept);
    if (!again["syntax"].is_null()) return false;
    source() = std::move(kept);
    facts = std::move(again);
    repaired("unfinished end removed");
    return true;
  }

  static bool is_module(const Json& class_facts) {
    return std::any_of(class_facts["bases"].begin(), class_facts["bases"].end(),
                       [](const Json& base) { return base.get<std::string>().ends_with("Module") || base == "Model"; });
  }

  bool find_model_new(const Json& facts) {
    std::vector<std::string> modules;
    for (const Json& one : facts["classes"]) {
      if (one["name"] == "ModelNew") return true;
      if (is_module(one) && one["methods"].contains("forward")) modules.push_back(one["name"]);
    }
    const auto& assigned = facts["assigned"];
    if (std::find(assigned.begin(), assigned.end(), "ModelNew") != assigned.end()) return true;
    // Layers come first, the whole last; the problem's own Model, repeated, is not an answer.
    if (modules.size() > 1) std::erase_if(modules, [](const std::string& name) { return name == "Model"; });
    if (!modules.empty()) {
      source() += "\n\nModelNew = " + modules.back() + "\n";
      repaired("class " + modules.back() + " taken as ModelNew");
      return true;
    }
    return wrap_function(facts);
  }

  // A function that takes what forward takes and launches the kernels.
  bool wrap_function(const Json& facts) {
    const auto classes = problem_.contains("classes") ? problem_["classes"] : Json::array();
    const auto model = std::find_if(classes.begin(), classes.end(),
                                    [](const Json& one) { return one["name"] == "Model"; });
    if (model == classes.end() || !(*model)["methods"].contains("forward")) return false;
    const size_t inputs = (*model)["methods"]["forward"].size() - 1;
    std::string wrapper;
    for (const Json& function : facts["functions"])
      if (function["decorators"].empty() && function["parameters"].size() == inputs) wrapper = function["name"];
    if (wrapper.empty()) return false;
    source() += "\n\nclass ModelNew(Model):\n    def forward(self, *inputs):\n        return " + wrapper +
                "(*inputs)\n";
    repaired("class written around " + wrapper + "()");
    return true;
  }

  static bool is_undefined(const Json& facts, std::string_view name) {
    return std::find(facts["undefined"].begin(), facts["undefined"].end(), name) != facts["undefined"].end();
  }

  void add_what_is_missing() {
    const Json facts = facts_of_(source());
    if (!facts["syntax"].is_null()) return;
    constexpr std::pair<const char*, const char*> kImports[] = {{"torch", "import torch"},
                                                                {"nn", "import torch.nn as nn"},
                                                                {"F", "import torch.nn.functional as F"},
                                                                {"triton", "import triton"},
                                                                {"tl", "import triton.language as tl"},
                                                                {"math", "import math"},
                                                                {"np", "import numpy as np"},
                                                                {"Optional", "from typing import Optional"},
                                                                {"Tuple", "from typing import Tuple"},
                                                                {"List", "from typing import List"}};
    std::string imports, names;
    for (const auto& [name, line] : kImports) {
      if (!is_undefined(facts, name)) continue;
      imports += std::string(line) + "\n";
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    if (!names.empty()) prepend(imports + "\n", "imports added: " + names);
    if (is_undefined(facts, "Model")) prepend(stripped(input_.problem) + "\n\n\n", "problem's Model added");
  }

  void prepend(const std::string& text, const std::string& repair) {
    source() = text + source();
    if (!repair.empty()) repaired(repair);
  }

  const ExtractionInput& input_;
  const FactsOf& facts_of_;
  Json problem_;
  Extraction result_;
};

}  // namespace

std::string without_reasoning(std::string_view text) {
  std::string out(text);
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"<think>", "</think>"},
                                    {"<thinking>", "</thinking>"},
                                    {"<|channel|>analysis", "<|channel|>final<|message|>"}}) {
    const size_t end = out.rfind(close);
    if (end != std::string::npos) out = out.substr(end + close.size());  // templates may swallow the opening tag
    else if (const size_t begin = out.find(open); begin != std::string::npos)
      out.resize(begin);  // it never came to an answer
  }
  return out;
}

std::vector<Block> code_blocks(std::string_view text) {
  std::vector<Block> blocks;
  bool inside = false;
  std::string fence;
  for (const std::string& line : split_lines(text)) {
    const size_t first = line.find_first_not_of(" \t");
    const std::string_view rest = first == std::string::npos ? std::string_view()
                                                             : std::string_view(line).substr(first);
    const bool marks = rest.starts_with("```") || rest.starts_with("~~~");
    if (!inside && marks) {
      fence = rest.substr(0, rest.find_first_not_of(rest[0]));
      std::string language = stripped(rest.substr(fence.size()));
      std::transform(language.begin(), language.end(), language.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      blocks.push_back({language.substr(0, language.find_first_of(" {:")), "", false});
      inside = true;
    } else if (inside && marks && rest.starts_with(fence) && stripped(rest.substr(fence.size())).empty()) {
      blocks.back().closed = true;
      inside = false;
    } else if (inside) {
      blocks.back().code += line + "\n";
    }
  }
  return blocks;
}

Extraction extract(const ExtractionInput& input, const FactsOf& facts_of) { return Extractor(input, facts_of).run(); }

}  // namespace kw::llm
