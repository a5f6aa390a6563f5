// A language model as a proposer of schedules: prompts with what was tried, answers under a grammar, every one in the
// archive.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "llm/prompts.hpp"
#include "propose/generate_options.hpp"
#include "propose/sample_log.hpp"
#include "propose/sampling.hpp"
#include "propose/search_run.hpp"
#include "support/error.hpp"

namespace kw {

// What became of one answer.
struct EditAnswer {
  int64_t answer = 0;  // its number
  std::string change, code;
  bool is_evaluated = false;
  std::optional<double> ratio;        // where it ran
  std::optional<std::string> reason;  // where it was judged and is not good
};

// What a run of edits leaves behind for its report.
struct EditLog {
  SampleLog samples;
  std::string model, run;
  int groups = 0, prompt_tokens = 0;
  double combinations = 0, writing_seconds = 0;
  std::vector<EditAnswer> answers;
  std::optional<Error> fault;
};

// `threads` and `log` must outlive it. `hardware`: the device in words.
std::unique_ptr<search::Proposer> edit_proposer(const EditContext& context, const GenerateOptions& options,
                                                const std::string& hardware, SamplingThreads& threads, EditLog& log);

// Before anything was tried: `prompt` as text, `grammar` and `schema` of the answers.
nlohmann::ordered_json edit_prompt(const llm::Template& form, search::Catalogue& catalogue, const Schedule& first,
                                   const std::string& hardware);

}  // namespace kw
