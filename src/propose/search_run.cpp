#include "propose/search_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/statistics.hpp"
#include "plan/schedule_json.hpp"
#include "propose/emitted_sources.hpp"
#include "search/relief.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "target/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;
using search::Candidate;
using search::Outcome;

namespace {

constexpr double kRaceSecondsEach = 0.4;  // of timing, per candidate of a race
constexpr double kVerifyShare = 4;  // better candidates are verified on the way when this many verifications' time has
                                    // passed
constexpr int kMostJobs = 8;
constexpr int kMostReliefs = 5;  // with what the archive knows, one batch

class SearchRun : public search::Evaluator {
 public:
  SearchRun(const SearchRequest& request, const Compiled& first, Session& session, const Environment& environment,
            Archive& archive, Scratch& scratch, Progress& progress)
      : request_(request),
        first_(first),
        session_(session),
        environment_(environment),
        archive_(archive),
        scratch_(scratch),
        progress_(progress),
        catalogue_(first.graph, request.compile.device),
        memory_(archive, request.environment_hash, emitter_version(), request.policy),
        sources_(first, request.compile) {}

  SearchOutcome run() {
    const Stage stage(progress_, "search");
    began_ = last_confirmed_ = seconds_now();
    waited_before_ = session_.waited_seconds();
    anchor_ = scratch_.write("search_first.py", first_.source);
    session_.be_quiet(true);
    search::SearchResult result;
    try {
      result = propose();
      give_back();
    } catch (...) {
      session_.be_quiet(false);
      throw;
    }
    session_.be_quiet(false);
    if (result.ratio < 1) memory_.learn(catalogue_, first_.schedule, result.schedule, result.ratio);
    return describe(result);
  }

  search::SearchResult propose() {
    if (request_.proposer) {
      const EditContext context{
          catalogue_, first_.schedule, archive_, request_.problem_hash, request_.environment_hash, request_.last_try};
      const std::unique_ptr<search::Proposer> proposer = (*request_.proposer)(context);
      return search::evaluate_proposals(first_.schedule, *proposer, *this, request_.evaluations);
    }
    std::vector<Candidate> given;
    search::SearchOptions options;
    options.seed = request_.seed;
    options.most = request_.evaluations;
    options.only_given = request_.only_relief;
    if (auto known = request_.evaluations ? std::nullopt : memory_.best_known(catalogue_, first_.schedule))
      given.push_back({std::move(*known), "as known from the archive", "", 0});
    for (const std::string& refused : memory_.refused()) progress_.note(refused);
    for (search::Move& move : search::relief_moves(catalogue_, first_.schedule, request_.spilling, kMostReliefs))
      given.push_back({std::move(move.schedule), std::move(move.change), "", 0});
    return search::search(catalogue_, first_.schedule, std::move(given), *this, options);
  }

  std::string identity(const Schedule& schedule) override { return sources_.identity(schedule); }
  bool verifies() const override { return request_.check != nullptr; }
  std::string unfit() const override { return sources_.unfit(); }

  bool has_time() override {
    throw_if_interrupted();
    if (request_.last_try > 0 &&
        seconds_now() - session_.waited_seconds() + request_.verify_seconds > request_.last_try)
      return false;
    return request_.evaluations > 0 || seconds() + (pending_ ? request_.verify_seconds : 0) < request_.budget_seconds;
  }

  void prepare(const std::vector<Candidate>& batch) override {
    std::vector<std::string> paths;
    for (const Candidate& one : batch) {
      if (memory_.find(first_.graph, one.schedule)) continue;
      paths.push_back(scratch_.write(name_of(one), sources_.at(one.identity)));
    }
    if (paths.empty()) return;
    if (!builder_) {
      const int jobs = std::clamp(is_host() ? environment_.cpu_threads : environment_.cpu_threads - 2, 1, kMostJobs);
      builder_ = std::make_unique<Builder>(environment_, jobs, is_host() ? 0 : compute_capability());
    }
    builder_->start(std::move(paths));
  }

  std::vector<Outcome> measure(const std::vector<Candidate>& batch, const Candidate* best) override {
    std::vector<Outcome> outcomes(batch.size());
    std::vector<size_t> racing;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (auto known = memory_.find(first_.graph, batch[i].schedule)) outcomes[i] = *known;
      else if (std::string fault = builder_ ? builder_->fault(scratch_.folder() + "/" + name_of(batch[i])) : "";
               !fault.empty())
        outcomes[i] = failed(fault);
      else racing.push_back(i);
    }
    if (request_.check) check(batch, racing, outcomes);
    // Compilers take the very cores that CPU candidates are timed on; a GPU is timed meanwhile.
    if (builder_ && is_host()) builder_->wait_for_all();
    if (!racing.empty()) race(batch, best, racing, outcomes);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!outcomes[i].reused) remember(batch[i], outcomes[i]);
      // Known under the name of another file: as a candidate of this one it is new.
      else if (request_.proposer) archive_.add_candidate(sources_.at(batch[i].identity));
    }
    return outcomes;
  }

  Verdict confirm(const Candidate& candidate, double ratio, bool last) override {
    const double now = seconds_now();
    if (!last && now - last_confirmed_ < kVerifyShare * request_.verify_seconds) {
      pending_ = true;
      return Verdict::kLater;
    }
    give_back();
    progress_.update(fmt::format("verifying {:.2f}x", 1 / ratio), -1);
    const bool good = request_.accept(with_schedule(first_, candidate.schedule, request_.compile));
    last_confirmed_ = seconds_now();
    pending_ = false;
    progress_.note(fmt::format("search: {:.3f}x the first candidate's speed after {:.0f} s ({}){}", 1 / ratio,
                               seconds(), candidate.change, good ? "" : ", but it failed its verification"));
    return good ? Verdict::kPassed : Verdict::kFailed;
  }

  void report(const search::Standing& standing) override {
    if (request_.evaluations > 0)
      return progress_.update(
          fmt::format("{} of {} tried, best {:.2f}x", standing.tried, request_.evaluations, 1 / standing.best),
          static_cast<double>(standing.tried) / request_.evaluations);
    progress_.update(fmt::format("{} tried, best {:.2f}x, {:.0f} s left", standing.tried, 1 / standing.best,
                                 std::max(0.0, request_.budget_seconds - seconds())),
                     std::min(1.0, seconds() / request_.budget_seconds));
  }

  // Without what went by while others had the device.
  double seconds() override { return seconds_now() - began_ - (session_.waited_seconds() - waited_before_); }

 private:
  static std::string name_of(const Candidate& candidate) {
    return "search_" + candidate.identity.substr(0, 16) + ".py";
  }

  static Outcome failed(const std::string& reason) { return {Outcome::State::kFailed, 0, 0, 0, false, reason}; }

  bool is_host() const { return target_of(request_.compile.device).is_host(); }

  int compute_capability() {
    const Json hello = session_.hello();
    if (!hello["cuda"].is_array() || hello["cuda"].empty()) return 90;
    const Json& sm = hello["cuda"][0]["sm"];
    return sm.is_number() ? sm.get<int>() : 90;
  }

  // Takes those that are wrong out of `racing`.
  void check(const std::vector<Candidate>& batch, std::vector<size_t>& racing, std::vector<Outcome>& outcomes) {
    if (racing.empty()) return;
    give_back();
    std::erase_if(racing, [&](size_t i) {
      progress_.update("verifying " + batch[i].change, -1);
      const std::string fault = request_.check(with_schedule(first_, batch[i].schedule, request_.compile));
      if (!fault.empty()) outcomes[i] = failed(fault);
      return !fault.empty();
    });
  }

  // What races keep loaded makes room for a verification.
  void give_back() {
    if (!loaded_) return;
    loaded_ = false;
    try {
      session_.race({.problem = request_.problem,
                     .size = request_.size,
                     .device = request_.device,
                     .runners = {},
                     .seed = request_.seed,
                     .input_bytes = 0,
                     .eager_errors = {}});
    } catch (const WorkerFailure&) {
      // Gone altogether: nothing is loaded any more.
    }
  }

  void race(const std::vector<Candidate>& batch, const Candidate* best, const std::vector<size_t>& racing,
            std::vector<Outcome>& outcomes) {
    RaceRequest request{.problem = request_.problem,
                        .size = request_.size,
                        .device = request_.device,
                        .policy = request_.policy,
                        .runners = {{anchor_, true}},
                        .seed = request_.seed,
                        .budget_seconds = kRaceSecondsEach * static_cast<double>(racing.size() + 1),
                        .limit_seconds = 120 + 4 * request_.verify_seconds,
                        .input_bytes = request_.input_bytes,
                        .eager_errors = request_.eager_errors};
    for (const size_t i : racing) request.runners.push_back({scratch_.folder() + "/" + name_of(batch[i]), false});
    // The best so far is on the track as the one to beat; its samples count for nothing else.
    if (best) request.runners.push_back({scratch_.folder() + "/" + name_of(*best), true});
    std::string fault;
    try {
      loaded_ = true;
      const Json reply = session_.race(request);
      const Json& rows = reply["results"];
      for (size_t k = 0; k < racing.size(); ++k) outcomes[racing[k]] = outcome_of(rows[0], rows[k + 1]);
      return;
    } catch (const WorkerFailure& failure) { fault = "the process " + failure.what; } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      fault = error.text().message;
    }
    // One of them took the process, or the device, along. Which one shows when each runs alone.
    loaded_ = false;
    if (racing.size() == 1) outcomes[racing[0]] = failed(fault);
    else
      for (const size_t i : racing) race(batch, best, {i}, outcomes);
  }

  Outcome outcome_of(const Json& anchor, const Json& row) const {
    if (row["error"].is_string()) return failed(row["error"]);
    std::vector<double> first = anchor["samples_ms"], ours = row["samples_ms"];
    first.resize(std::min(first.size(), ours.size()));  // rounds before it was stopped
    if (ours.empty() || first.size() < ours.size()) return failed("was not timed");
    const Estimate faster = speedup(first, ours).ratio;
    Outcome outcome{row.value("stopped", false) ? Outcome::State::kPruned : Outcome::State::kMeasured,
                    1 / faster.value,
                    1 / faster.high,
                    1 / faster.low,
                    false,
                    ""};
    return outcome;
  }

  // At once: a search that is killed has lost nothing that it measured.
  void remember(const Candidate& candidate, const Outcome& outcome) {
    memory_.add(first_.graph, candidate.schedule, outcome);
    if (!memory_.fault().empty()) return;
    try {
      archive_.together([&] {
        const std::string hash = archive_.add_candidate(sources_.at(candidate.identity));
        archive_.add(ProposalRecord{request_.problem_hash, hash, std::string(target_of(request_.compile.device).name()),
                                    request_.proposed_by, emitter_version(), sources_.schedule_of(candidate.identity)});
      });
    } catch (const Error&) {
      // The report tells of the archive's fault when the result is stored.
    }
  }

  SearchOutcome describe(const search::SearchResult& result) const {
    SearchOutcome outcome = kw::outcome_of(result, request_.evaluations, seconds_now() - began_);
    outcome.budget_seconds = request_.budget_seconds;
    outcome.seed = request_.seed;
    return outcome;
  }

  const SearchRequest& request_;
  const Compiled& first_;
  Session& session_;
  const Environment& environment_;
  Archive& archive_;
  Scratch& scratch_;
  Progress& progress_;
  search::Catalogue catalogue_;
  search::Memory memory_;
  std::unique_ptr<Builder> builder_;
  EmittedSources sources_;
  std::string anchor_;
  double began_ = 0, last_confirmed_ = 0, waited_before_ = 0;
  bool pending_ = false, loaded_ = false;
};

}  // namespace

SearchOutcome search_schedules(const SearchRequest& request, const Compiled& first, Session& session,
                               const Environment& environment, Archive& archive, Scratch& scratch, Progress& progress) {
  return SearchRun(request, first, session, environment, archive, scratch, progress).run();
}

}  // namespace kw
