#include "run/generate.hpp"
#include "run/output_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/judges.hpp"
#include "judge/problem_file.hpp"
#include "targets/targets.hpp"
#include "llm/extract.hpp"
#include "llm/host.hpp"
#include "llm/tokens.hpp"
#include "propose/captured.hpp"
#include "propose/device_facts.hpp"
#include "propose/prompt_facts.hpp"
#include "propose/sample_log.hpp"
#include "propose/sampling.hpp"
#include "run/answer_judge.hpp"
#include "run/edits.hpp"
#include "run/optimize.hpp"
#include "run/output_file.hpp"
#include "run/report_version.hpp"
#include "run/worth.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/interrupt.hpp"
#include "support/text.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kLeastTiming = 1.0;  // seconds a candidate, where several share the budget
constexpr int kRunVersion = 1;        // of what a run's name rests on

std::string seeds_text(const GenerateOptions& options) { return options.seed ? std::to_string(*options.seed) : "0"; }

// One run of generate(): its parts in the order in which it needs them.
class Generation {
 public:
  Generation(const GenerateOptions& options, Progress& progress, SamplingThreads* shared)
      : options_(options),
        progress_(progress),
        threads_(shared),
        began_(seconds_now()),
        problem_(read_problem_file(options.problem)),
        form_(llm::load_template(options.prompt)),
        output_(resolve_output(options.output, options.problem, options.force)),
        environment_(find_environment()),
        target_(resolve_target(options.target, environment_, true)),
        facts_(llm::HostOptions{environment_.python, environment_.module_path}) {
    llm::place_of(options.model.model);  // what is wrong with its name comes before any work
    problem_ = read_problem_file(options.problem, options.size, target_);
  }

  Report run() {
    Archive archive;
    archive_ = &archive;
    facts_.start();
    environment_hash_ = archive.add_environment(environment_.description_json());
    problem_hash_ = archive.add(ProblemRecord{problem_.name, problem_.path, problem_.source_with_imports});
    std::optional<SamplingThreads> own;
    if (!threads_)
      threads_ = &own.emplace(llm::open_backends(options_.model, {environment_.python, environment_.module_path}));
    const double busy_before = threads_->busy_seconds();
    look_up_earlier_samples();
    // A model of some gigabytes loads while PyTorch does.
    const bool asks = asks_the_model();
    if (asks) threads_->open();
    look_at_the_problem();
    Judges judges(environment_, progress_,
                  {.problem = problem_.path,
                   .size = problem_.size,
                   .candidate = "",
                   .device = device(),
                   .policy = options_.policy,
                   .seed = std::nullopt,
                   .draws = options_.draws,
                   .input_bytes = input_bytes_,
                   .secrets = {options_.model.key_variable}},
                  options_.timeout_seconds);
    judges_ = &judges;
    answers_.emplace(JudgeContext{.archive = archive,
                                  .facts = facts_,
                                  .judges = judges,
                                  .environment = environment_,
                                  .progress = progress_,
                                  .problem = problem_,
                                  .problem_hash = problem_hash_,
                                  .environment_hash = environment_hash_,
                                  .target = target_,
                                  .policy = options_.policy,
                                  .timeout_seconds = options_.timeout_seconds,
                                  .input_bytes = input_bytes_,
                                  .graph = &graph_});
    try {
      sample(asks);
    } catch (const Interrupted&) {
      judges.stop();
      interrupted_ = true;
    } catch (const Error& error) {
      // What was found until then stands, and is in the archive.
      fault_ = error;
    }
    generating_seconds_ = threads_->busy_seconds() - busy_before;
    own.reset();  // a model in this machine's memory makes room for what is timed
    if (!interrupted_) measure_all();
    return finish();
  }

  // What ended the run before its last sample, for the exit code.
  const std::optional<Error>& fault() const { return fault_; }
  bool was_interrupted() const { return interrupted_; }
  std::string kept() const {
    std::string text = fmt::format("{} of {} samples are in the archive", log_.judged(), options_.samples);
    if (!best_hash_.empty()) text += ", and the best that was verified is in " + output_.path();
    return text + "; the same command goes on from here";
  }

 private:
  std::string device() const { return std::string(target_.tensors()); }

  // Does it load and trace? Also gives the graph that the roofline rests on.
  void look_at_the_problem() {
    Session session(environment_, progress_, options_.timeout_seconds);
    graph_ = captured_graph(session, problem_.path, problem_.size, device());
    allow_tf32_under(options_.policy, target_.tensors(), graph_);
    for (const GraphInput& input : graph_.inputs) input_bytes_ += graph_.type(input.value).bytes();
  }

  // What samples of one kind share: the archive knows them by it.
  std::string run_name() const {
    Json settings = {{"version", kRunVersion},        {"problem", problem_hash_},
                     {"target", target_.name()},      {"policy", options_.policy},
                     {"model", options_.model.model}, {"api", options_.model.api},
                     {"template", form_.hash()},      {"shots", options_.shots},
                     {"repair", options_.repair},     {"temperature", options_.temperature},
                     {"top_p", options_.top_p},       {"max_tokens", options_.max_tokens},
                     {"seed", seeds_text(options_)}};
    if (options_.improve > 0) settings["improve"] = options_.improve;
    return sha256_hex(settings.dump());
  }

  // Different for every sample and turn, the same in every run.
  uint64_t seed_of(int sample, int turn) const {
    return std::stoull(
        sha256_hex(seeds_text(options_) + "/" + std::to_string(sample) + "/" + std::to_string(turn)).substr(0, 8),
        nullptr, 16);
  }

  // Samples of an earlier run of the same settings.
  void look_up_earlier_samples() {
    run_name_ = run_name();
    if (options_.fresh) return;
    for (JudgedCompletion& one : archive_->completions(run_name_))
      if (one.completion.sample < options_.samples) earlier_[one.completion.sample].push_back(std::move(one));
    for (auto& [sample, turns] : earlier_) take_up(turns);
  }

  bool asks_the_model() const {
    return static_cast<int>(earlier_.size()) < options_.samples || !continued_.empty() ||
           (!unjudged_.empty() && options_.repair + options_.improve > 0);
  }

  void sample(bool asks) {
    thread_count_ = static_cast<double>(threads_->threads());
    const Stage stage(progress_, "generate");
    if (asks) {
      progress_.update("loading the model", -1);
      const SamplingThreads::Opened opened = threads_->opened();
      model_ = opened.name;
      context_ = opened.context;
      prepare_prompt(threads_->front());
    }
    if (asks || open_ > 0) judges_->get_ready();
    for (int sample = 0; sample < options_.samples; ++sample)
      if (!earlier_.count(sample)) ask(sample, 0, prompt_.prompt);
    for (auto& [sample, turn, prompt] : continued_) ask(sample, turn, std::move(prompt));
    for (const SampleAnswer& answer : unjudged_) take(answer, false);
    while (open_ > 0) {
      throw_if_interrupted();
      show();
      if (options_.ask_seconds > 0 && stage.seconds() > options_.ask_seconds) {
        while (const std::optional<SampleAnswer> answer = threads_->next(0)) take(*answer, true);
        threads_->drop();
        out_of_time_ = open_ > 0;
        break;
      }
      const double waiting = seconds_now();
      const std::optional<SampleAnswer> answer = threads_->next(kLookSeconds);
      idle_seconds_ += seconds_now() - waiting;
      if (answer) take(*answer, true);
    }
    sampling_wall_ = stage.seconds();
  }

  // A sample of an earlier run: what was judged is not judged again; a conversation goes on where it was.
  void take_up(const std::vector<JudgedCompletion>& turns) {
    for (const JudgedCompletion& one : turns) {
      const CompletionRecord& completion = one.completion;
      std::optional<AnswerRecord> record = one.judged ? answer_record_from_text(one.judgement.record) : std::nullopt;
      if (!record) {
        SampleAnswer answer{.task = {completion.sample, completion.turn, prompt_from_text(completion.request), {}},
                            .completion = {}};
        answer.completion.text = completion.text;
        answer.completion.finish = usage_from_text(completion.usage).finish;
        ++open_;
        unjudged_.push_back(std::move(answer));
        return;
      }
      record->reused = true;
      log_.add(completion.sample, completion.turn, *record);
      if (record->passed()) keep(one.judgement.candidate, archive_->candidate_source(one.judgement.candidate), *record);
      if (&one != &turns.back() || record->is_last.value_or(true)) continue;
      continued_.push_back({completion.sample, completion.turn + 1,
                            next_prompt(prompt_from_text(completion.request), completion.text, record->feedback)});
      ++open_;
    }
  }

  void prepare_prompt(llm::Backend& backend) {
    const int context = context_, budget = context > 0 ? context - options_.max_tokens : 0;
    if (context > 0 && budget < 1)
      throw Error(
          ErrorKind::kUser,
          ErrorText{.message = fmt::format(
                        "--max-tokens {} leaves nothing for the prompt: the model reads and writes {} tokens together.",
                        options_.max_tokens, context),
                    .where = "",
                    .source = "",
                    .hint = "Give a smaller --max-tokens.",
                    .detail = "",
                    .code = "context-too-long"});
    prompt_ = llm::fill(form_,
                        prompt_facts(*archive_, environment_, environment_hash_, problem_, target_, options_.shots),
                        budget, [&](const llm::Prompt& prompt) { return backend.count_tokens(prompt); });
    if (!prompt_.fits)
      throw Error(
          ErrorKind::kUser,
          ErrorText{.message = fmt::format(
                        "The prompt is {} tokens long; with --max-tokens {} the model's context of {} has room for {}.",
                        prompt_.tokens, options_.max_tokens, context, budget),
                    .where = "",
                    .source = "",
                    .hint = "Give a smaller --max-tokens, --shots 0, or a longer --context where the model allows it.",
                    .detail = "",
                    .code = "context-too-long"});
  }

  void ask(int sample, int turn, llm::Prompt prompt) {
    if (turn == 0) ++open_;
    threads_->ask({sample,
                   turn,
                   std::move(prompt),
                   {.temperature = options_.temperature,
                    .top_p = options_.top_p,
                    .max_tokens = options_.max_tokens,
                    .seed = seed_of(sample, turn),
                    .stop = {},
                    .grammar = "",
                    .schema = ""}},
                  turn > 0);
  }

  void show() const {
    progress_.update(fmt::format("{} of {} judged, {} passed, {} pieces written", log_.judged(), options_.samples,
                                 log_.passed(), threads_->tokens_so_far()),
                     static_cast<double>(log_.judged()) / std::max(1, options_.samples));
  }

  AnswerRequest request_of(const SampleTask& task) const {
    return {.prompt = task.prompt,
            .form = form_.name,
            .temperature = task.sampling.temperature,
            .top_p = task.sampling.top_p,
            .max_tokens = task.sampling.max_tokens,
            .seed = task.sampling.seed,
            .schema = "",
            .target = options_.target};
  }

  // An answer: stored, looked at, judged, stored again; then its sample is done or goes on.
  void take(const SampleAnswer& answer, bool is_new) {
    const double began = seconds_now();
    const llm::Completion& completion = answer.completion;
    const CompletionRecord stored{.problem = problem_hash_,
                                  .run = run_name_,
                                  .sample = answer.task.sample,
                                  .turn = answer.task.turn,
                                  .model = completion.model.empty() ? model_ : completion.model,
                                  .request = to_text(request_of(answer.task)),
                                  .text = completion.text,
                                  .usage = to_text(completion),
                                  .hash = "",
                                  .created = ""};
    std::string hash;
    if (is_new) hash = archive_->add(stored);
    else
      for (const JudgedCompletion& one : archive_->completions(run_name_))
        if (one.completion.sample == stored.sample && one.completion.turn == stored.turn) hash = one.completion.hash;

    const JudgedAnswer judged = answers_->judge(completion, stored.model);
    AnswerRecord record = judged.record;
    judging_seconds_ += judged.seconds;
    if (record.passed()) keep(record.candidate, judged.source, record);
    const double timed = seconds_now();
    const std::string message = message_after(answer, judged, record);
    const double timing = record.times ? seconds_now() - timed : 0;
    judging_seconds_ += timing;
    record.is_last = message.empty();
    record.feedback = message;
    record.seconds = AnswerSeconds{completion.seconds, judged.seconds, seconds_now() - began - judged.seconds - timing};
    archive_->add(JudgementRecord{hash, record.candidate, judged.verdict, record.passed(), to_text(record)});
    log_.add(answer.task.sample, answer.task.turn, std::move(record));
    --open_;
    if (message.empty()) return;
    ++open_;
    ask(answer.task.sample, answer.task.turn + 1, next_prompt(answer.task.prompt, completion.text, message));
  }

  // What the model is told next in this conversation; empty: it ends.
  std::string message_after(const SampleAnswer& answer, const JudgedAnswer& judged, AnswerRecord& record) {
    // A model that gives the same answer twice will give it again.
    if (record.same_as_before && answer.task.turn > 0) return "";
    if (!record.passed())
      return judged.feedback.what.empty() || log_.turns(answer.task.sample, false) >= options_.repair
                 ? ""
                 : llm::repair_message(judged.feedback.what, judged.feedback.evidence);
    if (log_.turns(answer.task.sample, true) >= options_.improve) return "";
    const Report timed = answers_->time(judged.source, record, {"eager"}, kLeastTiming);
    judges_->get_ready();
    record.times = timed.timing;
    const Feedback said = timed.passed() ? feedback_on_times(timed.timing) : Feedback{};
    return said.what.empty() ? "" : llm::improvement_message(said.what, said.evidence);
  }

  // Only the last answer: a conversation that carries all of them outgrows small contexts, and what was wrong before is
  // no example.
  llm::Prompt next_prompt(const llm::Prompt& before, const std::string& answer, const std::string& message) const {
    llm::Prompt next = before;
    if (next.messages.empty()) {
      next.raw += "\n" + answer + "\n\n" + message + "\n";
      return next;
    }
    const auto first_answer = std::find_if(next.messages.begin(), next.messages.end(),
                                           [](const llm::Message& one) { return one.role == "assistant"; });
    next.messages.erase(first_answer, next.messages.end());
    next.messages.push_back({"assistant", answer});
    next.messages.push_back({"user", message});
    return next;
  }

  // The first that passed is written at once; which of several is the best shows when they are timed.
  void keep(const std::string& hash, const std::string& source, const AnswerRecord& record) {
    if (std::any_of(good_.begin(), good_.end(), [&](const Good& one) { return one.hash == hash; })) return;
    good_.push_back({hash, source, record, std::nullopt});
    if (!best_hash_.empty()) return;
    best_hash_ = hash;
    output_.write(source);
  }

  // While nothing is written any more: on the CPU a model would take the cores that are timed.
  void measure_all() {
    if (options_.budget_seconds <= 0 || good_.empty()) return;
    const Stage stage(progress_, "measure");
    const double each = std::max(kLeastTiming,
                                 options_.budget_seconds / static_cast<double>(good_.size() + (good_.size() > 1)));
    const bool only = good_.size() == 1;
    try {
      for (size_t i = 0; i < good_.size(); ++i) {
        progress_.update(fmt::format("{} of {} that passed", i + 1, good_.size()),
                         static_cast<double>(i) / static_cast<double>(good_.size()));
        time(good_[i], only ? options_.baselines : std::vector<std::string>{"eager"}, each);
      }
      if (!only && choose()) time(*chosen(), options_.baselines, each);
    } catch (const Interrupted&) { interrupted_ = true; }
    choose();
  }

  struct Good {
    std::string hash, source;
    AnswerRecord record;
    std::optional<Report> timed;  // of the times alone, with verdict "fail" where it did not hold
  };

  void time(Good& one, const std::vector<std::string>& baselines, double seconds) {
    one.timed = answers_->time(one.source, one.record, baselines, seconds);
  }

  Good* chosen() {
    const auto found = std::find_if(good_.begin(), good_.end(),
                                    [&](const Good& one) { return one.hash == best_hash_; });
    return found == good_.end() ? nullptr : &*found;
  }

  // Over eager, of those that passed and were timed.
  std::map<std::string, double> speedups() const {
    std::map<std::string, double> found;
    for (const Good& one : good_)
      if (one.timed && one.timed->passed())
        if (const auto& speedup = one.timed->timing.measured.speedup_over(Contender::kEager))
          found[one.hash] = speedup->ratio.value;
    return found;
  }

  // The fastest of those that still hold; false when there is none.
  bool choose() {
    const Good* best = nullptr;
    double fastest = 0;
    for (const Good& one : good_) {
      if (one.timed && !one.timed->passed()) continue;
      const auto time = one.timed ? one.timed->timing.measured.time_ms(Contender::kOurs) : std::nullopt;
      const double ours = time ? time->value : 1e30;
      if (!best || ours < fastest) best = &one, fastest = ours;
    }
    if (!best) {
      output_.put_back();
      best_hash_.clear();
      return false;
    }
    if (best->hash != best_hash_) output_.write(best->source);
    best_hash_ = best->hash;
    return true;
  }

  Report finish() {
    Report report = report_on("generate", problem_, std::string(target_.name()));
    report.problem_hash = problem_hash_;
    report.policy = options_.policy;
    report.verdict = best_hash_.empty() ? "fail" : "pass";
    report.code = best_hash_.empty() ? "none-passed" : "pass";
    if (best_hash_.empty())
      report.reason = log_.judged() == 0 ? "No sample was judged."
                                         : fmt::format("None of {} samples passed; most often: {}", log_.judged(),
                                                       log_.commonest_fault());
    report.model = model_run();
    report.sampling = log_.sampling(options_.model);
    if (options_.budget_seconds > 0 && !interrupted_) report.sampling.best_at_k = log_.best_at_k(speedups());
    report.missing_protections = interrupted_ ? std::vector<std::string>{} : judges_->missing_protections();
    report.overlap = overlap();
    if (const Good* best = chosen()) describe_best(report, *best);
    if (report.passed() && !decide(report, options_.min_speedup, advice_for(options_))) output_.put_back();
    report.interrupted = interrupted_;
    if (out_of_time_)
      report.add_note(
          fmt::format("The time for asking was over when {} of {} answers were judged; with a longer "
                      "--ask-seconds, or none, the same command goes on.",
                      log_.judged(), options_.samples));
    report.seconds.total = seconds_now() - began_;
    return report;
  }

  ModelRun model_run() const {
    return {.asked = options_.model.model,
            .name = model_,
            .template_name = form_.name,
            .template_hash = form_.hash(),
            .run = run_name_,
            .temperature = options_.temperature,
            .top_p = options_.top_p,
            .seed = seeds_text(options_),
            .max_tokens = options_.max_tokens,
            .shots = options_.shots,
            .repair = options_.repair,
            .improve = options_.improve,
            .prompt_tokens = prompt_.tokens};
  }

  Overlap overlap() const {
    Overlap overlap{.wall_seconds = sampling_wall_,
                    .writing_seconds = generating_seconds_,
                    .judging_seconds = judging_seconds_,
                    .waiting_seconds = idle_seconds_,
                    .slower_side = std::nullopt};
    if (sampling_wall_ > 0)
      overlap.slower_side = std::min(1.0,
                                     std::max(generating_seconds_ / thread_count_, judging_seconds_) / sampling_wall_);
    return overlap;
  }

  void describe_best(Report& report, const Good& best) const {
    if (best.timed) {
      report.timing = best.timed->timing;
      report.runs_original = best.timed->runs_original;
      report.worth.beside_eager = best.timed->worth.beside_eager;
      report.notes = best.timed->notes;
    }
    report.errors = best.record.outcome.errors;
    report.repairs = best.record.repairs;
    report.candidate_hash = best.hash;
    report.candidate = output_.absolute_path();
  }

  const GenerateOptions& options_;
  Progress& progress_;
  SamplingThreads* threads_;
  double began_;
  ProblemFile problem_;
  llm::Template form_;
  OutputFile output_;
  Environment environment_;
  const Target& target_;
  llm::Host facts_;
  Archive* archive_ = nullptr;
  Judges* judges_ = nullptr;
  std::optional<AnswerJudge> answers_;
  std::string environment_hash_, problem_hash_, run_name_, model_, best_hash_;
  Graph graph_;
  int64_t input_bytes_ = 0;
  llm::FilledPrompt prompt_;
  SampleLog log_;
  struct Continued {
    int sample, turn;
    llm::Prompt prompt;
  };
  std::vector<Continued> continued_;
  std::map<int, std::vector<JudgedCompletion>> earlier_;  // by sample
  std::vector<SampleAnswer> unjudged_;
  int context_ = 0;
  std::vector<Good> good_;
  int open_ = 0;  // samples that are being written, or wait to be judged
  double judging_seconds_ = 0, generating_seconds_ = 0, idle_seconds_ = 0, sampling_wall_ = 0, thread_count_ = 1;
  std::optional<Error> fault_;
  bool interrupted_ = false, out_of_time_ = false;
};

}  // namespace

GenerateOutcome generate(const GenerateOptions& options, Progress& progress, SamplingThreads* shared) {
  if (options.edits) return generate_edits(options, progress, shared);
  Generation generation(options, progress, shared);
  GenerateOutcome outcome;
  outcome.report = generation.run();
  outcome.fault = generation.fault();
  outcome.interrupted = generation.was_interrupted();
  outcome.kept = generation.kept();
  return outcome;
}

Json prompt_for(const GenerateOptions& options, Progress& progress) {
  if (options.edits) return edit_prompt_for(options, progress);
  const Environment environment = find_environment();
  const Target& target = resolve_target(options.target, environment, false);
  const ProblemFile problem = read_problem_file(options.problem, options.size, target);
  Archive archive;
  const llm::FilledPrompt filled = llm::fill(
      llm::load_template(options.prompt),
      prompt_facts(archive, environment, archive.add_environment(environment.description_json()), problem, target,
                   options.shots),
      0, [](const llm::Prompt& prompt) { return llm::estimate_tokens(prompt.text()); });
  return {{"version", kReportVersion},
          {"command", "generate"},
          {"prompt", llm::shown(filled.prompt) + fmt::format("=== about {} tokens, {} examples of the archive\n",
                                                             filled.tokens, filled.examples)}};
}

}  // namespace kw
