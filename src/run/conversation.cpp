#include "run/conversation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/judges.hpp"
#include "judge/problem_file.hpp"
#include "targets/targets.hpp"
#include "llm/host.hpp"
#include "llm/prompts.hpp"
#include "llm/tokens.hpp"
#include "propose/prompt_facts.hpp"
#include "propose/sampling.hpp"
#include "run/answer_judge.hpp"
#include "run/optimize.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr int kConversationVersion = 1;  // of what a run's name rests on

}  // namespace

struct Conversation::State {
  State(const GenerateOptions& given, Progress& shown)
      : options(given),
        progress(shown),
        environment(find_environment()),
        target(resolve_target(given.target, environment, true)),
        facts(llm::HostOptions{environment.python, environment.module_path}),
        environment_hash(archive.add_environment(environment.description_json())),
        began(std::to_string(Session::secret_seed())) {
    llm::place_of(options.model.model);
    llm::load_template(options.prompt);
    facts.start();
  }

  // The problem that is talked about, and what judges answers to it.
  struct Subject {
    ProblemFile file;
    std::string hash;
    Report built_in;
    std::string built_in_source;
    std::unique_ptr<Judges> judges;
    std::unique_ptr<AnswerJudge> judge;
    std::vector<Turn> turns;
    llm::Prompt last_prompt;
    std::string last_feedback;
  };

  SamplingThreads& model() {
    if (!threads)
      threads = std::make_unique<SamplingThreads>(
          llm::open_backends(options.model, {environment.python, environment.module_path}));
    if (opened.name.empty()) {
      const Stage stage(progress, "loading the model");
      threads->open();
      try {
        opened = threads->opened();
      } catch (...) {
        threads.reset();
        throw;
      }
    }
    return *threads;
  }

  void forget_model() {
    threads.reset();
    opened = {};
  }

  Subject& subject_or_throw() {
    if (!subject) throw Error(ErrorKind::kUser, "There is no module yet.", "Paste one, or :open FILE.");
    return *subject;
  }

  llm::FilledPrompt first_prompt() {
    const Subject& now = subject_or_throw();
    const int budget = opened.context > 0 ? opened.context - options.max_tokens : 0;
    const auto count = [&](const llm::Prompt& prompt) { return llm::estimate_tokens(prompt.text()); };
    return llm::fill(llm::load_template(options.prompt),
                     prompt_facts(archive, environment, environment_hash, now.file, target, options.shots),
                     std::max(0, budget), count);
  }

  // The last answer only, as `kw generate` does: contexts are small.
  llm::Prompt next_prompt(const std::string& message) {
    Subject& now = *subject;
    const std::string answer = now.turns.empty() ? "" : now.turns.back().text;
    llm::Prompt next = first_prompt().prompt;
    if (next.messages.empty()) {
      next.raw += "\n" + answer + "\n\n" + message + "\n";
      return next;
    }
    if (answer.empty()) {
      next.messages.back().content += "\n\n" + message;
      return next;
    }
    next.messages.push_back({"assistant", answer});
    next.messages.push_back({"user", message});
    return next;
  }

  GenerateOptions options;
  Progress& progress;
  Environment environment;
  const Target& target;
  Archive archive;
  llm::Host facts;
  std::string environment_hash, began;
  std::unique_ptr<SamplingThreads> threads;
  SamplingThreads::Opened opened;
  Scratch scratch;
  std::unique_ptr<Subject> subject;
  int asked = 0;
};

Conversation::Conversation(const GenerateOptions& options, Progress& progress)
    : state_(std::make_unique<State>(options, progress)) {}

// A server that hangs, or a model that reads a long prompt, must not keep anybody here.
Conversation::~Conversation() {
  if (state_->subject) state_->subject->judges.reset();
  kill_children();
}

std::string Conversation::model_name() {
  state_->model();
  return state_->opened.name;
}

bool Conversation::has_problem() const { return state_->subject != nullptr; }
const Report& Conversation::built_in() const { return state_->subject_or_throw().built_in; }
std::string Conversation::built_in_source() const { return state_->subject_or_throw().built_in_source; }
std::string Conversation::problem_source() const { return state_->subject_or_throw().file.source; }
GenerateOptions& Conversation::options() { return state_->options; }

std::vector<Turn>& Conversation::turns() { return state_->subject_or_throw().turns; }

const Report& Conversation::open(const std::string& path) {
  State& state = *state_;
  auto now = std::make_unique<State::Subject>(
      State::Subject{.file = read_problem_file(path, state.options.size, state.target),
                     .hash = "",
                     .built_in = {},
                     .built_in_source = "",
                     .judges = {},
                     .judge = {},
                     .turns = {},
                     .last_prompt = {},
                     .last_feedback = ""});
  OptimizeOptions optimised;
  optimised.problem = path;
  optimised.output = state.scratch.folder() + "/built_in.py";
  optimised.target = state.target.name();
  optimised.size = state.options.size;
  optimised.policy = state.options.policy;
  optimised.baselines = state.options.baselines;
  optimised.budget_seconds = std::min(state.options.budget_seconds, kTimingSeconds);
  optimised.timeout_seconds = state.options.timeout_seconds;
  optimised.draws = state.options.draws;
  optimised.min_speedup = 0;  // what is written is talked about, however fast
  now->built_in = optimize(optimised, state.progress);
  if (now->built_in.passed()) now->built_in_source = read_file(optimised.output);
  now->hash = state.archive.add(ProblemRecord{now->file.name, now->file.path, now->file.source_with_imports});
  const std::string device(state.target.tensors());
  now->judges = std::make_unique<Judges>(state.environment, state.progress,
                                         VerifyRequest{.problem = now->file.path,
                                                       .size = now->file.size,
                                                       .candidate = "",
                                                       .device = device,
                                                       .policy = state.options.policy,
                                                       .seed = std::nullopt,
                                                       .draws = state.options.draws,
                                                       .input_bytes = 0,
                                                       .secrets = {state.options.model.key_variable}},
                                         state.options.timeout_seconds);
  now->judge = std::make_unique<AnswerJudge>(JudgeContext{.archive = state.archive,
                                                          .facts = state.facts,
                                                          .judges = *now->judges,
                                                          .environment = state.environment,
                                                          .progress = state.progress,
                                                          .problem = now->file,
                                                          .problem_hash = now->hash,
                                                          .environment_hash = state.environment_hash,
                                                          .target = state.target,
                                                          .policy = state.options.policy,
                                                          .timeout_seconds = state.options.timeout_seconds});
  state.subject = std::move(now);
  return state.subject->built_in;
}

std::string Conversation::prompt() const {
  const llm::FilledPrompt filled = state_->first_prompt();
  return llm::shown(filled.prompt) +
         fmt::format("=== about {} tokens, {} examples of the archive\n", filled.tokens, filled.examples);
}

Turn& Conversation::ask(const std::string& message, const llm::OnToken& on_piece) {
  State& state = *state_;
  State::Subject& now = state.subject_or_throw();
  SamplingThreads& model = state.model();
  now.judges->get_ready();
  now.last_prompt = message.empty() ? state.first_prompt().prompt : state.next_prompt(message);
  SampleTask task{state.asked++,
                  0,
                  now.last_prompt,
                  {.temperature = state.options.temperature,
                   .top_p = state.options.top_p,
                   .max_tokens = state.options.max_tokens,
                   .seed = std::nullopt,
                   .stop = {},
                   .grammar = "",
                   .schema = ""},
                  {}};
  if (state.options.seed) task.sampling.seed = *state.options.seed + static_cast<uint64_t>(task.sample);
  // Shared with the thread that writes: it may still do so after this call has been left.
  struct Written {
    std::mutex mutex;
    std::string text;
    bool open = true;
  };
  const auto written = std::make_shared<Written>();
  task.on_piece = [written, on_piece](std::string_view piece) {
    const std::lock_guard lock(written->mutex);
    if (!written->open) return false;
    written->text += piece;
    return !on_piece || on_piece(piece);
  };
  model.ask(task);
  std::optional<SampleAnswer> answer;
  try {
    while (!answer) {
      throw_if_interrupted();
      answer = model.next(kLookSeconds);
    }
  } catch (const Interrupted&) {
    {
      const std::lock_guard lock(written->mutex);
      written->open = false;
    }
    model.drop();
    Turn turn;
    turn.text = written->text;
    turn.finish = "cancelled";
    now.turns.push_back(std::move(turn));
    throw;
  } catch (const Error&) {
    state.forget_model();  // threads end with their first fault
    throw;
  }
  Turn turn;
  const llm::Completion& completion = answer->completion;
  turn.text = completion.text;
  turn.finish = completion.finish;
  turn.tokens = completion.completion_tokens;
  turn.seconds = completion.seconds;
  turn.record.usage = completion;
  now.turns.push_back(std::move(turn));
  return now.turns.back();
}

void Conversation::judge(Turn& turn) {
  State& state = *state_;
  State::Subject& now = state.subject_or_throw();
  llm::Completion completion;
  completion.text = turn.text;
  completion.finish = turn.finish;
  completion.completion_tokens = turn.tokens;
  completion.seconds = turn.seconds;
  const AnswerRequest request{.prompt = now.last_prompt,
                              .form = state.options.prompt,
                              .temperature = state.options.temperature,
                              .top_p = state.options.top_p,
                              .max_tokens = state.options.max_tokens,
                              .seed = std::nullopt,
                              .schema = "",
                              .target = std::string(state.target.name())};
  // A conversation is a run of its own: what is said in it depends on the person.
  const std::string run = sha256_hex(Json{
      {"conversation", kConversationVersion},
      {"problem", now.hash},
      {"model", state.options.model.model},
      {"began", state.began}}.dump());
  const std::string hash = state.archive.add(CompletionRecord{.problem = now.hash,
                                                              .run = run,
                                                              .sample = state.asked - 1,
                                                              .turn = 0,
                                                              .model = state.opened.name,
                                                              .request = to_text(request),
                                                              .text = turn.text,
                                                              .usage = to_text(completion),
                                                              .hash = "",
                                                              .created = ""});
  JudgedAnswer judged;
  {
    const Stage stage(state.progress, "verify");
    judged = now.judge->judge(completion, state.opened.name);
  }
  turn.record = judged.record;
  turn.source = judged.source;
  turn.judged = true;
  now.last_feedback = judged.feedback.what.empty()
                          ? ""
                          : llm::repair_message(judged.feedback.what, judged.feedback.evidence);
  turn.record.seconds = AnswerSeconds{turn.seconds, judged.seconds, std::nullopt};
  state.archive.add(
      JudgementRecord{hash, turn.record.candidate, judged.verdict, turn.record.passed(), to_text(turn.record)});
  if (!turn.record.passed() || state.options.budget_seconds <= 0) return;
  const Stage stage(state.progress, "measure");
  const Report timed = now.judge->time(judged.source, turn.record, state.options.baselines,
                                       state.options.budget_seconds);
  turn.times = timed.timing.measured;
  if (!timed.passed()) return;
  const Feedback said = feedback_on_times(timed.timing);
  if (!said.what.empty()) now.last_feedback = llm::improvement_message(said.what, said.evidence);
}

std::string Conversation::feedback() const { return state_->subject_or_throw().last_feedback; }

Report Conversation::edits(int evaluations) {
  State& state = *state_;
  State::Subject& now = state.subject_or_throw();
  GenerateOptions options = state.options;
  options.edits = true;
  options.problem = now.file.path;
  options.output = state.scratch.folder() + "/edits.py";
  options.min_speedup = 0;
  options.target = state.target.name();
  options.samples = evaluations;
  SamplingThreads& model = state.model();
  GenerateOutcome outcome;
  try {
    outcome = generate(options, state.progress, &model);
  } catch (const Interrupted&) {
    model.drop();
    throw;
  }
  if (outcome.fault) {
    state.forget_model();
    throw *outcome.fault;
  }
  Turn turn;
  turn.finish = "stop";
  turn.judged = true;
  Report& report = outcome.report;
  turn.record.outcome.verdict = report.verdict;
  turn.record.outcome.code = report.code;
  turn.record.outcome.reason = report.reason;
  turn.times = report.timing.measured;
  if (report.passed()) turn.source = read_file(options.output);
  now.turns.push_back(std::move(turn));
  report.candidate.clear();  // nothing the person has asked for was written
  return report;
}

}  // namespace kw
