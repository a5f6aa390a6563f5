// What a language model is asked for, and how its answers are judged.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "llm/backend.hpp"
#include "measure/statistics.hpp"

namespace kw {

// With edits, as a model: the compiler's own best-first search.
inline constexpr const char* kSearchAsModel = "search";

struct GenerateOptions {
  std::string problem, output;  // as OptimizeOptions has them
  std::string target = "auto", size, policy = "reference";
  llm::ModelOptions model;
  bool edits = false;      // the model picks schedules of the compiler's kernels and writes no code (run/edits.hpp)
  bool emit_only = false;  // edits alone: written and compiled without being run
  std::string prompt = "chat";  // template: chat, kernelllm, base, edits, or a file
  int samples = 10;             // k; with edits: schedules that are evaluated, the compiler's own among them
  int answers = 4;  // with edits: asked for each evaluation; the one that the cost model expects most of is evaluated
  int shots = 1;    // examples in the prompt: 0, 1 (the format's), more (of the archive)
  int repair = 0;   // further turns for an answer that fails
  int improve = 0;  // further turns for one that passed, with its times
  double ask_seconds = 0;  // after which the model is asked no more; 0: until there are all samples
  double temperature = 1.0, top_p = 0.97;
  int max_tokens = 2048;
  std::optional<uint64_t> seed;     // of the sampling; the draws of a verification stay secret
  int draws = 0;                    // 0: the worker's default
  double timeout_seconds = 120;     // of one verification
  double budget_seconds = 10;       // of timing, all in all; 0: verify only
  double min_speedup = kNotSlower;  // as OptimizeOptions has it
  std::vector<std::string> baselines = {"eager", "compile"};
  bool fresh = false;  // do not go on from what the archive holds of this run
  bool force = false;  // overwrite what stands at `output`, whoever wrote it
  std::string template_name() const { return edits && prompt == "chat" ? "edits" : prompt; }
};

// What of the options decides a model's answers and their number, for a bench's children and the keys of its results.
nlohmann::ordered_json to_json(const GenerateOptions& options);
GenerateOptions generate_options_from(const nlohmann::ordered_json& json);

}  // namespace kw
