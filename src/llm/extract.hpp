// From what a model wrote to a Python file that may be judged: the code in it, with what is plainly missing put right.
// Every repair is named, so that a record tells the model's own work from ours.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "target/kernel_language.hpp"

namespace kw::llm {

// What Python's own parser says of a source: the worker's `source_facts` (docs/worker-protocol.md).
using FactsOf = std::function<nlohmann::ordered_json(const std::string& source)>;

struct Fault {
  std::string code;      // "" where there is none; docs/llm.md has the table
  std::string message;   // one sentence
  std::string evidence;  // the line it is about, or ""
};

struct Extraction {
  std::string source;  // the candidate, also where there is a fault, as far as there is one
  std::vector<std::string> repairs;
  Fault fault;
};

struct ExtractionInput {
  std::string text;      // the completion
  bool cut_off = false;  // it ended because its tokens did
  const KernelLanguage& language;
  std::string problem;  // source of the problem
};

// Code blocks, the choice among them, repairs, and the static checks (checks.hpp). Runs nothing of the candidate's.
Extraction extract(const ExtractionInput& input, const FactsOf& facts_of);

// The parts of it that need no parser, for tests.
struct Block {
  std::string language, code;
  bool closed = true;
};
std::vector<Block> code_blocks(std::string_view text);
std::string without_reasoning(std::string_view text);  // <think>…</think> and its like

}  // namespace kw::llm
