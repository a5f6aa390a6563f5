#include "propose/edit_proposer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "judge/environment.hpp"
#include "llm/choices.hpp"
#include "llm/tokens.hpp"
#include "plan/schedule_json.hpp"
#include "search/edit_space.hpp"
#include "support/hash.hpp"
#include "target/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr int kSpareAnswers = 7;  // for each evaluation: models repeat themselves
constexpr size_t kBestShown = 6, kLastShown = 6;
constexpr int kTokensBeside = 16;    // of an answer, beside its text
constexpr double kBelievable = 1.3;  // times the fastest so far: what an answer changes beyond that is left out
constexpr int kEditsVersion = 2;     // of what a run's name rests on

llm::ChoiceSpace choices_of(const std::vector<search::EditedGroup>& space) {
  llm::ChoiceSpace choices;
  for (const search::EditedGroup& group : space) {
    choices.push_back({group.name, {}});
    for (size_t range = 0; range < group.ranges.size(); ++range)
      choices.back().choices.push_back({group.ranges[range].name, group.ranges[range].values, group.defaults[range]});
  }
  return choices;
}

llm::Picked defaults_of(const std::vector<search::EditedGroup>& space) {
  llm::Picked picked;
  for (const search::EditedGroup& group : space) picked.push_back(group.defaults);
  return picked;
}

std::string values_text(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

// The groups with their values, and below what each parameter decides.
std::string space_text(const std::vector<search::EditedGroup>& space, const Target& target) {
  std::string text = "Kernels, the most expensive first, and the values that their parameters may take:\n";
  std::map<std::string, std::string> meanings;
  for (const search::EditedGroup& group : space) {
    text += fmt::format("- \"{}\"{}: {} ({}, expected to take {:.3g} us)\n", group.name,
                        group.groups.size() > 1 ? fmt::format(" ({} times)", group.groups.size()) : "", group.work,
                        group.scheduler, group.seconds * 1e6);
    for (const plan::ParameterRange& range : group.ranges) {
      text += fmt::format("  \"{}\": {}\n", range.name, values_text(range.values));
      meanings.emplace(range.name, target.meaning_of(range.name));
    }
  }
  text += "Parameters:\n";
  for (const auto& [name, meaning] : meanings)
    if (!meaning.empty()) text += "- " + name + ": " + meaning + "\n";
  if (!target.on_values().empty()) text += std::string(target.on_values()) + "\n";
  text.pop_back();
  return text;
}

class ModelEdits : public search::Proposer {
 public:
  ModelEdits(const EditContext& context, const GenerateOptions& options, std::string hardware, SamplingThreads& threads,
             EditLog& log)
      : context_(context),
        options_(options),
        hardware_(std::move(hardware)),
        threads_(threads),
        log_(log),
        form_(llm::load_template(options.template_name())),
        space_(search::edit_space(context.catalogue, context.first)),
        choices_(choices_of(space_)) {
    log_.groups = static_cast<int>(space_.size());
    log_.combinations = space_.empty() ? 0 : search::combinations(space_);
    const Json settings = {{"edits", kEditsVersion},
                           {"problem", context.problem_hash},
                           {"schedule", schedule_to_json(context.first)},
                           {"emitter", emitter_version()},
                           {"policy", options.policy},
                           {"model", options.model.model},
                           {"api", options.model.api},
                           {"template", form_.hash()},
                           {"temperature", options.temperature},
                           {"top_p", options.top_p},
                           {"answers", options.answers},
                           {"seed", options.seed.value_or(0)}};
    log_.run = sha256_hex(settings.dump());
    if (!options.fresh)
      for (JudgedCompletion& one : context.archive.completions(log_.run))
        earlier_[one.completion.sample] = std::move(one.completion);
  }

  int batch() const override { return static_cast<int>(threads_.threads()); }

  std::vector<search::Proposal> propose(int count) override {
    batch_.clear();
    if (space_.empty() || log_.fault) return {};
    begin_from_the_fastest();
    const llm::ChoiceSpace open = without_tired();
    if (!llm::has_choice(open)) return {};
    try {
      answer(count * options_.answers, open);
    } catch (const Error& error) {
      log_.fault = error;  // what was found until then stands
      batch_.clear();
      return {};
    }
    std::vector<search::Proposal> proposals;
    for (Answer& one : batch_) {
      const llm::PickedAnswer read = llm::read_picked(choices_, one.completion.text);
      one.code = read.code;
      if (!read.picked) {
        proposals.push_back({std::nullopt, "", read.fault});
        continue;
      }
      one.picked = believable(*read.picked);
      one.text = llm::changes_text(own_choices_, one.picked);
      one.change = search::change_text(space_, one.picked);
      proposals.push_back({search::edited(space_, context_.first, one.picked), one.change, "", expected(one.picked)});
    }
    return proposals;
  }

  void told(const std::vector<search::Told>& outcomes) override {
    try {
      for (size_t i = 0; i < outcomes.size(); ++i) record(batch_[i], outcomes[i]);
      tire(outcomes);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      log_.fault = error;  // an archive that is full: the next call ends it
    }
  }

 private:
  struct Answer {
    int sample = 0;
    llm::Completion completion;
    bool reused = false;
    std::string hash;  // of the completion, in the archive
    llm::Picked picked;
    std::string code, text, change;
  };
  struct Tried {
    std::string text;
    llm::Picked picked;
    double ratio = 0;  // 0: failed
  };
  struct Place {
    size_t group = 0, range = 0;
  };

  static std::vector<Place> differences(const llm::Picked& one, const llm::Picked& other) {
    std::vector<Place> places;
    for (size_t group = 0; group < one.size(); ++group)
      for (size_t range = 0; range < one[group].size(); ++range)
        if (one[group][range] != other[group][range]) places.push_back({group, range});
    return places;
  }

  double seconds_of(const llm::Picked& picked) {
    return context_.catalogue.seconds(search::edited(space_, context_.first, picked));
  }

  // The measured time of what was tried and differs in the fewest values, changed as the cost model says. Relative to
  // the first's.
  double expected(const llm::Picked& picked) {
    const Tried* nearest = &own_;
    size_t fewest = differences(picked, own_.picked).size();
    for (const Tried& one : tried_)
      if (const size_t count = differences(picked, one.picked).size(); one.ratio > 0 && count <= fewest)
        nearest = &one, fewest = count;
    return nearest->ratio * seconds_of(picked) / seconds_of(nearest->picked);
  }

  const Tried& fastest() const {
    const Tried* best = &own_;
    for (const Tried& one : tried_)
      if (one.ratio > 0 && one.ratio < best->ratio) best = &one;
    return *best;
  }

  // What an answer leaves out is as it is there.
  void begin_from_the_fastest() {
    if (base_ != fastest().picked) tired_.clear();
    base_ = fastest().picked;
    for (size_t group = 0; group < choices_.size(); ++group)
      for (size_t choice = 0; choice < choices_[group].choices.size(); ++choice)
        choices_[group].choices[choice].own = base_[group][choice];
  }

  // A model that only says what is known already is not allowed to, until another schedule is the fastest: those values
  // are left out of the grammar.
  void tire(const std::vector<search::Told>& outcomes) {
    const auto is_new = [](const search::Told& one) { return one.kind == search::Told::Kind::kEvaluated; };
    if (std::any_of(outcomes.begin(), outcomes.end(), is_new)) return;
    for (const Answer& one : batch_)
      if (!one.picked.empty())
        for (const Place& place : differences(one.picked, base_))
          tired_.insert({place.group, place.range, one.picked[place.group][place.range]});
  }

  llm::ChoiceSpace without_tired() const {
    llm::ChoiceSpace open = choices_;
    for (const auto& [group, range, value] : tired_) std::erase(open[group].choices[range].values, value);
    return open;
  }

  // One bad value of several spoils an answer. So what it changes of the fastest so far is taken over one by one, the
  // most promising first, as long as the whole is believable; at least one is.
  llm::Picked believable(const llm::Picked& wish) {
    const Tried& base = fastest();
    std::vector<Place> left = differences(wish, base.picked);
    llm::Picked taken = base.picked;
    for (bool first = true; !left.empty(); first = false) {
      size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < left.size(); ++i) {
        llm::Picked with = taken;
        with[left[i].group][left[i].range] = wish[left[i].group][left[i].range];
        if (const double time = expected(with); time < least) best = i, least = time;
      }
      if (!first && !(least <= kBelievable * base.ratio)) break;
      taken[left[best].group][left[best].range] = wish[left[best].group][left[best].range];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    }
    return taken;
  }

  // The next `count` answers, from an earlier run of the same settings as far as it went.
  void answer(int count, const llm::ChoiceSpace& open) {
    if (out_of_time()) return;
    std::vector<int> asked;
    const int most = (kSpareAnswers + options_.answers) * std::max(1, options_.samples - 1);
    for (; count > 0 && next_ < most; --count, ++next_) {
      const auto known = earlier_.find(next_);
      if (known != earlier_.end()) {
        Answer one{.sample = next_,
                   .completion = {},
                   .reused = true,
                   .hash = known->second.hash,
                   .picked = {},
                   .code = "",
                   .text = "",
                   .change = ""};
        one.completion.text = known->second.text;
        one.completion.model = log_.model = known->second.model;
        const llm::Usage usage = usage_from_text(known->second.usage);
        one.completion.finish = usage.finish;
        one.completion.completion_tokens = usage.completion_tokens;
        one.completion.prompt_tokens = usage.prompt_tokens;
        one.completion.seconds = usage.seconds;
        batch_.push_back(std::move(one));
      } else {
        asked.push_back(next_);
      }
    }
    if (asked.empty()) return;
    threads_.open();
    const SamplingThreads::Opened opened = threads_.opened();
    log_.model = opened.name;
    const int longest = static_cast<int>(llm::longest_text(open)) + kTokensBeside;
    const llm::Prompt prompt = prompt_within(opened.context > 0 ? opened.context - longest : 0);
    const std::string grammar = llm::grammar_of(open);
    schema_ = llm::schema_of(open).dump();
    for (const int sample : asked)
      threads_.ask({sample,
                    0,
                    prompt,
                    {.temperature = options_.temperature,
                     .top_p = options_.top_p,
                     .max_tokens = longest,
                     .seed = seed_of(sample),
                     .stop = {},
                     .grammar = grammar,
                     .schema = schema_}});
    for (size_t missing = asked.size(); missing > 0;) {
      throw_if_interrupted();
      std::optional<SampleAnswer> came = threads_.next(kLookSeconds);
      if (!came && out_of_time()) {
        threads_.drop();
        break;
      }
      if (!came) continue;
      --missing;
      log_.writing_seconds += came->completion.seconds;
      Answer one{.sample = came->task.sample,
                 .completion = std::move(came->completion),
                 .reused = false,
                 .hash = "",
                 .picked = {},
                 .code = "",
                 .text = "",
                 .change = ""};
      one.hash = store(one, prompt);
      batch_.push_back(std::move(one));
    }
    // Answers come in any order; what is made of them must not depend on it.
    std::sort(batch_.begin(), batch_.end(),
              [](const Answer& left, const Answer& right) { return left.sample < right.sample; });
  }

  bool out_of_time() const {
    const double now = seconds_now();
    return (options_.ask_seconds > 0 && now - began_ > options_.ask_seconds) ||
           (context_.last_try > 0 && now > context_.last_try);
  }

  uint64_t seed_of(int sample) const {
    return std::stoull(
        sha256_hex("edits " + std::to_string(options_.seed.value_or(0)) + "/" + std::to_string(sample)).substr(0, 8),
        nullptr, 16);
  }

  std::string store(const Answer& one, const llm::Prompt& prompt) {
    const AnswerRequest request{.prompt = prompt,
                                .form = form_.name,
                                .temperature = options_.temperature,
                                .top_p = options_.top_p,
                                .max_tokens = std::nullopt,
                                .seed = seed_of(one.sample),
                                .schema = schema_,
                                .target = context_.first.target};
    return context_.archive.add(
        CompletionRecord{.problem = context_.problem_hash,
                         .run = log_.run,
                         .sample = one.sample,
                         .turn = 0,
                         .model = one.completion.model.empty() ? log_.model : one.completion.model,
                         .request = to_text(request),
                         .text = one.completion.text,
                         .usage = to_text(one.completion),
                         .hash = "",
                         .created = ""});
  }

  // With as much of what was tried as there is room for: the best, and the last.
  llm::Prompt prompt_within(int budget) {
    for (size_t best = kBestShown, last = kLastShown;; best /= 2, last /= 2) {
      const llm::Prompt prompt = llm::rendered(form_,
                                               {{"hardware", hardware_.empty() ? "" : " for " + hardware_},
                                                {"space", space_text(space_, target_of(context_.catalogue.device()))},
                                                {"fastest", llm::picked_text(choices_, fastest().picked)},
                                                {"time", fmt::format("{:.3f}", fastest().ratio)},
                                                {"trials", trials_text(best, last)}});
      const int tokens = threads_.front().count_tokens(prompt);
      log_.prompt_tokens = std::max(log_.prompt_tokens, tokens);
      if (budget <= 0 || tokens <= budget) return prompt;
      if (best == 0)
        throw Error(
            ErrorKind::kUser,
            ErrorText{.message = fmt::format(
                          "The kernels and their parameters take {} tokens, and the model's context has room for {}.",
                          tokens, budget),
                      .where = "",
                      .source = "",
                      .hint = "Give a longer --context where the model allows it, or a shorter template.",
                      .detail = "",
                      .code = "context-too-long"});
    }
  }

  std::string trials_text(size_t best, size_t last) const {
    std::vector<size_t> shown(tried_.size());
    for (size_t i = 0; i < shown.size(); ++i) shown[i] = i;
    const auto rank = [&](size_t i) { return tried_[i].ratio > 0 ? tried_[i].ratio : 1e9; };
    std::stable_sort(shown.begin(), shown.end(), [&](size_t left, size_t right) { return rank(left) < rank(right); });
    std::vector<size_t> kept(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(std::min(best, shown.size())));
    for (size_t i = tried_.size() - std::min(last, tried_.size()); i < tried_.size(); ++i)
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) kept.push_back(i);
    if (kept.empty()) return "";
    std::stable_sort(kept.begin(), kept.end(), [&](size_t left, size_t right) { return rank(left) < rank(right); });
    std::string text =
        "\nTried so far, as changes of the compiler's own choice, the fastest first, each with its time relative to "
        "that:\n";
    for (const size_t i : kept)
      text += (tried_[i].ratio > 0 ? fmt::format("{:.3f} ", tried_[i].ratio) : std::string("failed ")) +
              tried_[i].text + "\n";
    return text;
  }

  void record(const Answer& one, const search::Told& told) {
    using State = search::Outcome::State;
    const bool known = told.kind == search::Told::Kind::kEvaluated || told.kind == search::Told::Kind::kRepeated,
               ran = known && told.outcome.state != State::kFailed;
    const bool good = told.verified,
               judged = good || told.refused || told.kind == search::Told::Kind::kUnfit || (known && !ran);
    const std::string code = good                                           ? "pass"
                             : told.refused                                 ? "failed-verification"
                             : ran                                          ? "not-faster"
                             : known                                        ? "failed"
                             : told.kind == search::Told::Kind::kPassedOver ? "passed-over"
                             : one.code.empty()                             ? "does-not-fit"
                                                                            : one.code;
    log_.answers.push_back({.answer = one.sample,
                            .change = one.change,
                            .code = code,
                            .is_evaluated = told.kind == search::Told::Kind::kEvaluated,
                            .ratio = ran ? std::optional(told.outcome.ratio) : std::nullopt,
                            .reason = std::nullopt});
    if (judged && !good) log_.answers.back().reason = known ? told.outcome.reason : told.reason;
    if (told.kind == search::Told::Kind::kEvaluated)
      tried_.push_back({one.text, one.picked, ran && !told.refused ? told.outcome.ratio : 0});
    if (!judged) return log_.samples.add_unjudged(one.completion);
    AnswerRecord record;
    record.model = one.completion.model;
    record.usage = one.completion;
    record.outcome.verdict = good ? "pass" : "fail";
    record.outcome.code = code;
    record.outcome.reason = known ? told.outcome.reason : told.reason;
    record.ran = told.kind == search::Told::Kind::kEvaluated;
    record.same_as_before = told.kind == search::Told::Kind::kRepeated;
    record.reused = one.reused;
    record.candidate = known ? told.identity : "";
    record.pick = AnswerPick{one.change,
                             known && told.outcome.ratio > 0 ? std::optional(told.outcome.ratio) : std::nullopt};
    record.is_last = true;
    context_.archive.add(JudgementRecord{one.hash, record.candidate, "", good, to_text(record)});
    log_.samples.add(one.sample, 0, std::move(record));
  }

  EditContext context_;
  const GenerateOptions& options_;
  std::string hardware_;
  SamplingThreads& threads_;
  EditLog& log_;
  llm::Template form_;
  std::vector<search::EditedGroup> space_;
  llm::ChoiceSpace choices_;  // `own` is the fastest so far
  const llm::ChoiceSpace own_choices_ = choices_of(space_);
  std::string schema_;                       // of the last question
  std::map<int, CompletionRecord> earlier_;  // by sample
  std::vector<Answer> batch_;
  double began_ = seconds_now();
  Tried own_{.text = "", .picked = defaults_of(space_), .ratio = 1};
  std::vector<Tried> tried_;
  llm::Picked base_;                                     // of the last question
  std::set<std::tuple<size_t, size_t, int64_t>> tired_;  // group, range, value
  int next_ = 0;
};

}  // namespace

std::unique_ptr<search::Proposer> edit_proposer(const EditContext& context, const GenerateOptions& options,
                                                const std::string& hardware, SamplingThreads& threads, EditLog& log) {
  return std::make_unique<ModelEdits>(context, options, hardware, threads, log);
}

Json edit_prompt(const llm::Template& form, search::Catalogue& catalogue, const Schedule& first,
                 const std::string& hardware) {
  const auto space = search::edit_space(catalogue, first);
  const llm::ChoiceSpace choices = choices_of(space);
  const llm::Prompt prompt = llm::rendered(form, {{"hardware", hardware.empty() ? "" : " for " + hardware},
                                                  {"space", space_text(space, target_of(catalogue.device()))},
                                                  {"fastest", llm::picked_text(choices, defaults_of(space))},
                                                  {"time", "1.000"},
                                                  {"trials", ""}});
  return {{"prompt", llm::shown(prompt) + fmt::format("=== about {} tokens\n", llm::estimate_tokens(prompt.text()))},
          {"grammar", llm::grammar_of(choices)},
          {"schema", llm::schema_of(choices)}};
}

}  // namespace kw
