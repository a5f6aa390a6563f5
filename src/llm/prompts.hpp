// Prompts as text files with placeholders (templates/, or a file of the user's), filled within a budget of tokens.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/backend.hpp"
#include "target/kernel_language.hpp"

namespace kw::llm {

// "=== ROLE" lines divide a template into messages ("system", "user", "assistant") or mark its only part as "raw"; what
// stands above the first is a comment. {{language}}, {{problem}}, {{form}}, {{example}}, {{examples}} and {{hardware}}
// are filled in; in prompts for schedules
// {{hardware}}, {{space}}, {{trials}}, {{fastest}} and {{time}}.
struct Template {
  std::string name;  // "chat", "kernelllm", "base", "edits", or the file's name
  std::string text;
  std::string hash() const;  // of the text: part of what a run is known by
};

// Throws kUser for a file that cannot be read, has no part, an unknown part or an unknown placeholder, or leaves out
// {{problem}} and {{space}}.
Template load_template(const std::string& name_or_path);

using Values = std::vector<std::pair<std::string_view, std::string>>;  // by placeholder
Prompt rendered(const Template& form, const Values& values);
std::string shown(const Prompt& prompt);  // for people, part by part

struct Example {
  std::string problem, candidate;  // sources
};

struct PromptFacts {
  const KernelLanguage& language;
  std::string problem;            // source of the problem file
  std::string hardware;           // what is known of the device, in words; empty: nothing
  std::vector<Example> examples;  // nearest first, from the archive
  int shots = 1;                  // 0: no example, 1: the format's, more: of the archive too
};

struct FilledPrompt {
  Prompt prompt;
  int tokens = 0;    // as counted
  int examples = 0;  // of the archive that had room
  bool fits = true;  // within the budget, with no example of the archive left to drop
};

// Takes examples of the archive away, the furthest first, until the prompt has at most `budget` tokens; 0: no limit.
FilledPrompt fill(const Template& form, const PromptFacts& facts, int budget,
                  const std::function<int(const Prompt&)>& count);

// The next turn after an answer that did not pass: what happened, and what there is to see of it.
std::string repair_message(const std::string& what, const std::string& evidence);

// The next turn after one that passed: how fast it is, and where its time goes.
std::string improvement_message(const std::string& what, const std::string& evidence);

// How much two sources have in common, from 0 to 1: the share of the names (operators, above all) that stand in either
// and in both.
double likeness(std::string_view one, std::string_view other);

}  // namespace kw::llm
