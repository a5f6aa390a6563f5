#include "run/optimize.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/judgement.hpp"
#include "judge/problem_file.hpp"
#include "judge/session.hpp"
#include "targets/targets.hpp"
#include "plan/cost.hpp"
#include "plan/schedule_json.hpp"
#include "propose/captured.hpp"
#include "propose/compile.hpp"
#include "propose/compiler.hpp"
#include "propose/device_facts.hpp"
#include "propose/emit_run.hpp"
#include "propose/search_run.hpp"
#include "run/output_file.hpp"
#include "run/output_files.hpp"
#include "run/report_parts.hpp"
#include "run/stored_answer.hpp"
#include "run/worth.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kFewSpills = 16;         // bytes: cost less than the seconds that it takes to find out
constexpr double kReliefSeconds = 30;  // for schedules that spill less, where no search was asked for; a few seconds
                                       // will do, and several must be judged in them

// One run of optimize(): its parts in the order in which it needs them.
class Optimisation {
 public:
  Optimisation(const OptimizeOptions& options, Progress& progress, Session* shared)
      : options_(options),
        progress_(progress),
        began_(seconds_now()),
        file_(read_problem_file(options.problem)),
        output_(resolve_output(options.output, options.problem, options.force)),
        environment_(find_environment()),
        target_(resolve_target(options.target, environment_, !options.emit_only)),
        given_(options.schedule.empty() ? std::nullopt : std::optional(schedule_from_file(options.schedule))),
        shared_(shared) {
    file_ = read_problem_file(options.problem, options.size, target_);
  }

  Report run() {
    Archive archive;  // before the work: a broken archive must not cost minutes
    environment_hash_ = archive.add_environment(environment_.description_json());
    key_ = {file_.hash(), std::string(target_.name()), options_.policy, emitter_version(), environment_hash_};
    if (std::optional<Report> answer = from_archive(archive)) return *answer;
    if (!shared_)
      own_ = std::make_unique<Session>(environment_, progress_, options_.timeout_seconds,
                                       options_.emit_only ? Session::Workers::kOne : Session::Workers::kTwo);
    waited_before_ = session().waited_seconds();
    session().start();
    if (!options_.emit_only) session().prepare(verify_request());
    capture();
    device_ = known_device(archive, environment_, environment_hash_, target_, session().card());
    begin_report();
    if (options_.emit_only) return emit(archive);
    propose_until_verified(archive);
    session().end_tracing();
    if (report_.passed()) {
      output_.write(compiled_.source);
      report_.candidate = output_.absolute_path();
      try {
        search(archive);
        measure(archive);
        improve(archive);
      } catch (const Interrupted&) {
        if (too_slow(measured(), options_.min_speedup)) {
          output_.put_back();
          throw Interrupted{"what was verified is slower than asked for and was not written"};
        }
        throw Interrupted{"the verified candidate is in " + output_.path()};
      }
    } else {
      keep_rejected();
    }
    finish();
    if (report_.passed() && !given_) store_result(archive);
    if (report_.passed() && !decide(report_, options_.min_speedup, advice_for(options_, report_.searches)))
      output_.put_back();
    return report_;
  }

 private:
  Session& session() { return shared_ ? *shared_ : *own_; }
  std::string device() const { return std::string(target_.tensors()); }

  std::optional<Report> from_archive(Archive& archive) {
    if (!may_come_from_archive(options_)) return std::nullopt;
    const auto found = archive.find(key_);
    if (!found) return std::nullopt;
    const Json stored = Json::parse(found->report, nullptr, false);
    if (!stored.is_object()) return std::nullopt;
    Report report = report_from_json(stored);
    if (!answers(report, options_)) return std::nullopt;
    report.problem = file_.path;
    report.candidate = output_.absolute_path();
    if (decide(report, options_.min_speedup, advice_for(options_, report.searches)))
      output_.write(archive.candidate_source(found->candidate));
    report.from_archive = true;
    report.created = found->created;
    report.seconds = {.stages = {}, .total = seconds_now() - began_};
    return report;
  }

  // Of the present answer.
  const Measurement& measured() const { return report_.timing.measured; }

  void capture() {
    const double began = seconds_now();
    graph_ = captured_graph(session(), file_.path, file_.size, device());
    allow_tf32_under(options_.policy, target_.tensors(), graph_);
    add_seconds("capture", began);
  }

  void begin_report() {
    report_ = report_on("optimize", file_, std::string(target_.name()));
    report_.problem_hash = key_.problem;
    report_.policy = options_.policy;
    report_.verdict = "fail";
    if (target_.has_cuda_graphs()) report_.graphs = options_.graphs;
  }

  CompileOptions compile_options(Caution caution, std::optional<GraphUse> graphs = std::nullopt) const {
    CompileOptions result{.device = device_,
                          .graphs = graphs.value_or(graph_use_of(options_.graphs)),
                          .caution = caution,
                          .passes = {},
                          .problem_name = file_.title(),
                          .problem_source = file_.source};
    result.passes.disabled = options_.disabled_passes;
    return result;
  }

  Compiled compile_at(Caution caution, std::optional<GraphUse> graphs = std::nullopt) {
    const Stage stage(progress_, "compile");
    const double began = seconds_now();
    Compiled compiled = compile(graph_, compile_options(caution, graphs));
    if (given_) compiled = with_schedule(compiled, *given_, compile_options(caution, graphs));
    add_seconds("compile", began);
    return compiled;
  }

  // Nothing, and a note, where a schedule that is not the last resort is more than the compiler can do.
  std::optional<Compiled> try_compile_at(Caution caution) {
    try {
      return compile_at(caution);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInternal || caution == Caution::kLibrary || given_) throw;
      report_.add_note("The " + name_of(caution) + " schedule could not be compiled: " + error.text().message);
      return std::nullopt;
    }
  }

  Report emit(Archive& archive) {
    for (const Caution caution : kCautions) {
      std::optional<Compiled> compiled = try_compile_at(caution);
      if (!compiled) continue;
      compiled_ = std::move(*compiled);
      break;
    }
    report_.verdict = "emitted";
    add_kernels(report_, compiled_);
    output_.write(compiled_.source);
    report_.candidate = output_.absolute_path();
    if (target_.absent_capability(environment_) > 0 && !compiled_.kernels.empty()) compile_for_absent_device();
    if (options_.evaluations > 0) report_.searches.search = emit_edits(archive);
    finish();
    return report_;
  }

  // Schedules that are proposed, as far as they can be looked at without the device.
  SearchOutcome emit_edits(Archive& archive) {
    const EmitRequest request{
        .evaluations = options_.evaluations,
        .proposer = options_.proposer,
        .search_seed = options_.search_seed,
        .compile = compile_options(Caution::kNone),
        .problem_hash = archive.add(ProblemRecord{file_.name, file_.path, file_.source_with_imports}),
        .environment_hash = environment_hash_,
        .capability = target_.absent_capability(environment_)};
    return emit_schedules(request, compiled_, session(), archive, scratch_);
  }

  void compile_for_absent_device() {
    const double began = seconds_now();
    const int capability = target_.absent_capability(environment_);
    const Json reply = session().compile_only(output_.path(), target_, capability);
    add_seconds("machine_code", began);
    const MachineCode& code = report_.compiled.emplace(machine_code_of(reply, capability));
    const auto broken = std::ranges::find_if(code.each, [](const CompiledKernel& kernel) { return !kernel.ok; });
    if (broken == code.each.end()) return;
    report_.verdict = "fail";
    report_.reason = fmt::format("{} does not compile for sm_{}: {}", broken->name, capability, broken->error);
  }

  // From the boldest schedule to plain library calls, until one passes.
  void propose_until_verified(Archive& archive) {
    std::set<std::string> tried;
    for (const Caution caution : kCautions) {
      Report attempt = report_;
      std::optional<Compiled> made = try_compile_at(caution);
      if (!made || !tried.insert(made->source).second) continue;  // more caution changed nothing
      Compiled& compiled = *made;
      if (target_.build_command().needs_compiler && !compiled.kernels.empty()) need_compiler();
      const std::string path = scratch_.write(file_.name + "_kw.py", compiled.source);
      double began = seconds_now();
      if (!compiled.kernels.empty()) {
        session().build(path, target_);
        add_seconds("build", began);
        began = seconds_now();
      }
      Judgement judgement = judged(path, compiled);
      add_judgement(attempt, judgement);
      add_seconds("verify", began);
      // What was made ahead of this one, later ones will have to wait for.
      verify_seconds_ = seconds_now() - began + (judgement.figures ? judgement.figures->prepared_seconds : 0);
      compiled_ = std::move(compiled);
      std::tie(candidate_hash_, verdict_) = store_attempt(archive, compiled_, judgement);
      eager_errors_ = eager_errors(judgement.verdict);
      if (!judgement.passed() && caution != Caution::kLibrary && !given_) {
        const std::string note = "The " + name_of(caution) + " candidate failed (" + judgement.verdict.reason +
                                 "); a more cautious one was tried.";
        report_.add_note(note);
        progress_.note(note);
        continue;
      }
      attempt.archive_error = report_.archive_error;
      report_ = std::move(attempt);
      break;
    }
    add_kernels(report_, compiled_);
    if (options_.policy == "relaxed") report_.add_note("policy relaxed: TF32 and 16-bit products were allowed");
    if (!file_.imports.empty())
      report_.add_note("the file imports modules from its own folder; the candidate needs them beside it, too");
  }

  VerifyRequest verify_request() const {
    return {.problem = file_.path,
            .size = file_.size,
            .candidate = "",
            .device = device(),
            .policy = options_.policy,
            .seed = options_.seed,
            .draws = options_.draws,
            .input_bytes = 0,
            .baselines = options_.budget_seconds > 0 ? options_.baselines : std::vector<std::string>(),
            .is_ours = true};
  }

  Judgement judged(const std::string& candidate, const Compiled& compiled) {
    VerifyRequest request = verify_request();
    request.candidate = candidate;
    request.input_bytes = bytes_in_work(compiled.graph);
    return judge(session(), request);
  }

  // Registers and spills of the verified candidate's kernels, which are in Triton's cache by now, into the report; the
  // groups whose kernels spill, but for those that rare inputs alone need.
  std::vector<size_t> spilling_groups() {
    if (target_.absent_capability(environment_) == 0 || compiled_.kernels.empty()) return {};
    try {
      const Json devices = session().hello()["cuda"];
      const int sm = devices.is_array() && !devices.empty() && devices[0]["sm"].is_number()
                         ? devices[0]["sm"].get<int>()
                         : target_.absent_capability(environment_);
      const std::string path = scratch_.write(file_.name + "_kw.py", compiled_.source);
      report_.compiled = machine_code_of(session().compile_only(path, target_, sm), sm);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      report_.add_note("spilled registers were not looked for: " + error.text().message);
      return {};
    }
    std::set<std::string> spilling;
    for (const CompiledKernel& kernel : report_.compiled->each)
      if (kernel.spills.value_or(0) > kFewSpills) spilling.insert(kernel.name);
    return spilling.empty() ? std::vector<size_t>{} : groups_at_work(compiled_, spilling);
  }

  SearchRequest search_request(double seconds) const {
    return {.problem = file_.path,
            .size = file_.size,
            .problem_hash = key_.problem,
            .environment_hash = environment_hash_,
            .policy = options_.policy,
            .device = device(),
            .budget_seconds = seconds,
            .evaluations = 0,
            .proposer = nullptr,
            .proposed_by = "search",
            .verify_seconds = verify_seconds_,
            .last_try = options_.try_seconds > 0 ? began_ + options_.try_seconds : 0,
            .seed = options_.seed.value_or(options_.search_seed),
            .input_bytes = bytes_in_work(compiled_.graph),
            .eager_errors = eager_errors_,
            .compile = compile_options(Caution::kNone),
            .spilling = {},
            .only_relief = false,
            .accept = {},
            .check = {}};
  }

  // Other schedules of the verified candidate's graph, for as long as was asked for; each better one that passes takes
  // its place. Where a kernel spills registers, those that ask for fewer are tried whether or not a search was asked
  // for: which of them is faster is measured. Then, or instead, those that are evaluated by count.
  void search(Archive& archive) {
    if ((options_.budget_seconds <= 0 && options_.evaluations <= 0) || compiled_.kernels.empty()) return;
    const double began = seconds_now();
    const bool by_time = options_.search_seconds() > 0, by_count = options_.evaluations > 0;
    const std::vector<size_t> spilling = spilling_groups();
    SearchRequest request = search_request(by_time ? options_.search_seconds() : kReliefSeconds);
    request.spilling = spilling;
    const std::string first = compiled_.source;
    const bool relieves = !spilling.empty() && (!by_count || options_.search_first) &&
                          verify_seconds_ < kReliefSeconds / 2;
    if (by_time || relieves) {
      request.only_relief = !by_time;
      run_search(archive, request, by_time ? &Searches::search : &Searches::relief);
      add_seconds("search", began);
    }
    if (by_count) {
      const double counted = seconds_now();
      request.only_relief = false;
      if (compiled_.source != first) request.spilling.clear();  // they were the groups of another schedule
      request.evaluations = options_.evaluations;
      request.proposer = options_.proposer;
      request.proposed_by = options_.proposed_by;
      run_search(archive, request, options_.search_first ? &Searches::proposed : &Searches::search);
      add_seconds(options_.search_first ? "proposed" : "search", counted);
    }
    if (!spilling.empty() && compiled_.source != first) spilling_groups();
  }

  // Where the timed candidate is too slow: the same without a CUDA graph, where it has one; other schedules for as long
  // as timing may take, and PyTorch's operators called one by one, which nothing that is written may be slower than.
  // The better one is timed beside all baselines and is the answer.
  void improve(Archive& archive) {
    if (!report_.passed() || given_ || options_.evaluations > 0 ||
        !too_slow(measured(), std::max(kEven, options_.min_speedup)))
      return;
    const double began = seconds_now();
    if (compiled_.program.graphs && has_time_to_try() &&
        try_instead(archive, compile_at(Caution::kNone, GraphUse::kOff))) {
      report_.add_note("launched one by one, the same kernels were faster than in a CUDA graph");
      if (!too_slow(measured(), std::max(kEven, options_.min_speedup))) return add_seconds("rescue", began);
    }
    progress_.note(fmt::format("{:.2f}x eager's speed: other schedules are tried", speedup_over_eager(measured())));
    if (options_.search_seconds() <= 0 && !compiled_.kernels.empty()) {
      const std::string first = compiled_.source;
      SearchRequest request = search_request(options_.timing_seconds());
      run_search(archive, request, &Searches::rescue);
      if (compiled_.source != first) measure(archive);
    }
    if (report_.passed() && too_slow(measured(), kEven) && has_time_to_try()) {
      const Speedup ours = *measured().speedup_over(Contender::kEager);
      if (try_instead(archive, compile_at(Caution::kLibrary))) report_.worth.lost = ours;
    }
    add_seconds("rescue", began);
  }

  bool has_time_to_try() const {
    return options_.try_seconds <= 0 || seconds_now() + verify_seconds_ < began_ + options_.try_seconds;
  }

  // Verified and timed, and the answer where it is faster than the present one. Returns whether it is.
  bool try_instead(Archive& archive, Compiled other) {
    if (other.source == compiled_.source) return false;
    const Answer ours{compiled_, report_, candidate_hash_, verdict_, measurement_, eager_errors_};
    if (!accept(archive, report_, std::move(other))) return false;
    measure(archive);
    if (report_.passed() && speedup_over_eager(measured()) > speedup_over_eager(ours.report.timing.measured))
      return true;
    compiled_ = ours.compiled;
    report_ = ours.report;
    candidate_hash_ = ours.candidate;
    verdict_ = ours.verdict;
    measurement_ = ours.measurement;
    eager_errors_ = ours.eager_errors;
    output_.write(compiled_.source);
    return false;
  }

  void run_search(Archive& archive, SearchRequest& request, std::optional<SearchOutcome> Searches::* which) {
    const Compiled first = compiled_;
    const Report verified = report_;
    request.accept = [&](Compiled better) { return accept(archive, verified, std::move(better)); };
    // What came after a search need not be right unless it is faster; what is there to be counted has to be.
    if (request.proposer && !options_.search_first)
      request.check = [&](const Compiled& other) -> std::string {
        const Judgement& judgement = check(archive, other).judgement;
        return judgement.passed() ? "" : judgement.verdict.reason;
      };
    SearchOutcome outcome = search_schedules(request, first, session(), environment_, archive, scratch_, progress_);
    report_.searches.*which = std::move(outcome);
  }

  struct Checked {
    Judgement judgement;
    std::string candidate, verdict;  // hashes
  };

  // Verified, once for each source.
  const Checked& check(Archive& archive, const Compiled& other) {
    const auto known = checked_.find(other.source);
    if (known != checked_.end()) return known->second;
    Checked checked{.judgement = judged(scratch_.write(file_.name + "_kw.py", other.source), other),
                    .candidate = "",
                    .verdict = ""};
    std::tie(checked.candidate, checked.verdict) = store_attempt(archive, other, checked.judgement);
    return checked_[other.source] = std::move(checked);
  }

  // Is `better` right? Then it is the answer from here on; `verified` is the report of the first one that was.
  bool accept(Archive& archive, const Report& verified, Compiled better) {
    const Checked& checked = check(archive, better);
    if (!checked.judgement.passed()) return false;
    const std::optional<std::string> error = report_.archive_error;
    report_ = verified;
    add_judgement(report_, checked.judgement);
    eager_errors_ = eager_errors(checked.judgement.verdict);
    if (error) report_.archive_error = error;
    candidate_hash_ = checked.candidate;
    verdict_ = checked.verdict;
    compiled_ = std::move(better);
    add_kernels(report_, compiled_);
    output_.write(compiled_.source);
    return true;
  }

  void measure(Archive& archive) {
    if (options_.budget_seconds <= 0) return;
    const double began = seconds_now();
    Json reply;
    try {
      reply = timed_samples();
      add_measurement(report_, timing_reply_from_json(reply));
      const Report timed = report_;
      if (!add_roofline(report_, compiled_.graph, device_ceilings(session(), archive, environment_hash_, device()),
                        cache_bytes(session(), target_))) {
        // Above the roofline: most likely the ceilings were measured while the machine was busy.
        report_ = timed;
        add_roofline(report_, compiled_.graph, measure_ceilings(session(), archive, environment_hash_, device()),
                     cache_bytes(session(), target_));
      }
    } catch (const Error& error) {
      // It is verified all the same: say what is missing from the report and go on.
      if (error.kind() == ErrorKind::kInternal) throw;
      if (error.text().code == kLackedMemory) report_.lacked_memory = true;
      return report_.add_note("not measured: " + error.text().message);
    } catch (const WorkerFailure& failure) { return report_.add_note("not measured: the process " + failure.what); }
    add_seconds("measure", began);
    store([&] {
      measurement_ = archive.add(MeasurementRecord{key_.problem, candidate_hash_, environment_hash_, reply.dump()});
    });
    if (!report_.passed()) {  // what was re-checked after timing did not hold
      output_.put_back();
      keep_rejected();
    }
  }

  Json timed_samples() {
    // Not the output itself: another command may write there meanwhile.
    const std::string timed = scratch_.write(file_.name + "_kw.py", compiled_.source);
    MeasureRequest request{.problem = file_.path,
                           .size = file_.size,
                           .candidate = timed,
                           .device = device(),
                           .policy = options_.policy,
                           .baselines = options_.baselines,
                           .kernels = compiled_.kernels,
                           .budget_seconds = options_.timing_seconds(),
                           .input_bytes = bytes_in_work(compiled_.graph),
                           .eager_errors = eager_errors_,
                           .is_ours = true};
    try {
      return session().measure(request);
    } catch (const WorkerFailure& failure) {
      // torch.compile is the only part of it that has not run yet.
      if (std::erase(request.baselines, "compile") == 0) throw;
      Json reply = session().measure(request);
      reply["baseline_errors"]["compile"] = "The process " + failure.what + ".";
      return reply;
    }
  }

  // An archive that fails now must not cost the candidate that has been found: the report says so, and the exit code.
  void store(const std::function<void()>& body) {
    if (report_.archive_error) return;
    try {
      body();
    } catch (const Error& error) { report_.archive_error = error.text().message + " " + error.text().hint; }
  }

  // The hashes of candidate and verdict.
  std::pair<std::string, std::string> store_attempt(Archive& archive, const Compiled& compiled,
                                                    const Judgement& judgement) {
    std::string candidate, verdict;
    store([&] {
      archive.together([&] {
        archive.add(ProblemRecord{file_.name, file_.path, file_.source_with_imports});
        candidate = archive.add_candidate(compiled.source);
        archive.add(ProposalRecord{key_.problem, candidate, std::string(target_.name()), "scheduler", key_.emitter,
                                   whole_schedule(compiled)});
        verdict = archive.add(VerdictRecord{key_.problem, candidate, environment_hash_, options_.policy,
                                            judgement.passed(), judgement.verdict.reason, judgement.reply});
      });
    });
    return {candidate, verdict};
  }

  void store_result(Archive& archive) {
    store([&] {
      ResultRecord result;
      result.key = key_;
      result.candidate = candidate_hash_;
      result.verdict = verdict_;
      result.measurement = measurement_;
      result.report = to_json(report_).dump(-1, ' ', false, Json::error_handler_t::replace);
      archive.add(result);
    });
  }

  void keep_rejected() {
    const std::string path = rejected_path(output_.path());
    write_file_atomically(path, compiled_.source);
    report_.candidate = fs::absolute(path).lexically_normal().string();
  }

  void add_seconds(const char* stage, double began) { seconds_.add(stage, seconds_now() - began); }

  void finish() {
    if (const double waited = session().waited_seconds() - waited_before_; waited > kShortWait)
      seconds_.add("waiting", waited);
    seconds_.total = seconds_now() - began_;
    report_.from_archive = false;
    report_.seconds = seconds_;
  }

  struct Answer {
    Compiled compiled;
    Report report;
    std::string candidate, verdict, measurement;  // hashes
    std::map<std::string, double> eager_errors;
  };

  const OptimizeOptions& options_;
  Progress& progress_;
  double began_, verify_seconds_ = 0, waited_before_ = 0;
  ProblemFile file_;
  OutputFile output_;
  Environment environment_;
  const Target& target_;
  DeviceDescription device_;
  std::optional<Schedule> given_;  // a person's: it is the answer, or none is
  Session* shared_;
  std::unique_ptr<Session> own_;
  Scratch scratch_;
  std::string environment_hash_, candidate_hash_, verdict_, measurement_;
  ResultKey key_;
  Graph graph_;
  Compiled compiled_;
  Report report_;
  StageSeconds seconds_;                        // of the whole run, whichever report becomes the answer's
  std::map<std::string, Checked> checked_;      // by source
  std::map<std::string, double> eager_errors_;  // of the answer's verdict
};

}  // namespace

Report optimize(const OptimizeOptions& options, Progress& progress, Session* shared) {
  return Optimisation(options, progress, shared).run();
}

}  // namespace kw
