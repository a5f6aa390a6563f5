// A talk with a language model about one problem: an answer at a time, as it comes, each judged and timed beside eager
// and the compiler's own kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/generate.hpp"
#include "run/report.hpp"

namespace kw {

// One answer of the model's.
struct Turn {
  std::string text;    // as it was written
  std::string source;  // the candidate; empty where there was no code
  std::string finish;  // as llm::Completion has it
  int tokens = 0;
  double seconds = 0;  // of writing
  bool judged = false;
  AnswerRecord record;
  Measurement times;  // where it passed and was timed
};

class Conversation {
 public:
  // `options` without a problem: model, target, sampling, verification. Everything may throw kw::Error and Interrupted;
  // the conversation goes on after either.
  Conversation(const GenerateOptions& options, Progress& progress);
  ~Conversation();

  // Loads the model, or asks the server what it serves.
  std::string model_name();
  // A problem file: compiled, verified and timed as `kw optimize` does (or answered from the archive). The report;
  // "verdict" may be "fail".
  const Report& open(const std::string& path);
  bool has_problem() const;
  const Report& built_in() const;  // of open()
  std::string built_in_source() const;
  std::string problem_source() const;

  // Writes an answer: to the problem's prompt, or with `message` to the answer before and what is said of it.
  // `on_piece` runs in another thread. Interrupted leaves what was written until then as a turn that is not judged.
  Turn& ask(const std::string& message, const llm::OnToken& on_piece);
  void judge(Turn& turn);        // verdict, and times when it passed
  std::string feedback() const;  // on the last turn that was judged; empty: nothing to say

  // A run of `edits` (run/edits.hpp): the report. The candidate is in `source` of a turn of its own.
  Report edits(int evaluations);

  std::string prompt() const;  // what ask("") would send
  GenerateOptions& options();  // sampling may change between answers
  std::vector<Turn>& turns();  // of this problem

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kw
