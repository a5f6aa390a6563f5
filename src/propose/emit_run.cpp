#include "propose/emit_run.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "propose/emitted_sources.hpp"
#include "support/interrupt.hpp"
#include "target/target.hpp"

namespace kw {

using Json = nlohmann::ordered_json;
using search::Candidate;
using search::Outcome;

namespace {

class EmitRun : public search::Evaluator {
 public:
  EmitRun(const EmitRequest& request, const Compiled& first, Session& session, Archive& archive, Scratch& scratch)
      : request_(request),
        first_(first),
        session_(session),
        archive_(archive),
        scratch_(scratch),
        catalogue_(first.graph, request.compile.device),
        sources_(first, request.compile),
        began_(seconds_now()) {}

  SearchOutcome run() {
    search::SearchResult result;
    archive_.add_candidate(first_.source);
    if (request_.proposer) {
      const EditContext context{catalogue_, first_.schedule, archive_, request_.problem_hash, request_.environment_hash,
                                0};
      const std::unique_ptr<search::Proposer> proposer = (*request_.proposer)(context);
      result = search::evaluate_proposals(first_.schedule, *proposer, *this, request_.evaluations);
    } else {
      search::SearchOptions options;
      options.seed = request_.search_seed;
      options.most = request_.evaluations;
      result = search::search(catalogue_, first_.schedule, {}, *this, options);
    }
    return outcome_of(result, request_.evaluations, seconds());
  }

  std::string identity(const Schedule& schedule) override { return sources_.identity(schedule); }
  bool verifies() const override { return true; }  // as far as it goes: they compile
  std::string unfit() const override { return sources_.unfit(); }

  bool has_time() override {
    throw_if_interrupted();
    return true;
  }

  void prepare(const std::vector<Candidate>&) override {}

  std::vector<Outcome> measure(const std::vector<Candidate>& batch, const Candidate*) override {
    std::vector<Outcome> outcomes;
    for (const Candidate& one : batch) {
      archive_.add_candidate(sources_.at(one.identity));
      // Not known to be faster than anything: the interval reaches everywhere.
      outcomes.push_back({Outcome::State::kMeasured,
                          catalogue_.seconds(one.schedule) / catalogue_.seconds(first_.schedule), 0,
                          std::numeric_limits<double>::infinity(), false, ""});
      if (std::string fault = compiler_fault(one); !fault.empty())
        outcomes.back() = {Outcome::State::kFailed, 0, 0, 0, false, fault};
    }
    return outcomes;
  }

  Verdict confirm(const Candidate&, double, bool) override { return Verdict::kFailed; }
  void report(const search::Standing&) override {}
  double seconds() override { return seconds_now() - began_; }

 private:
  std::string compiler_fault(const Candidate& candidate) {
    if (request_.capability == 0) return "";
    session_.be_quiet(true);
    const Json reply = session_.compile_only(
        scratch_.write("emit_" + candidate.identity.substr(0, 16) + ".py", sources_.at(candidate.identity)),
        target_of(request_.compile.device), request_.capability);
    session_.be_quiet(false);
    for (const Json& kernel : reply["kernels"])
      if (!kernel.value("ok", false))
        return kernel.value("name", "") + " does not compile: " + kernel.value("error", "");
    return "";
  }

  const EmitRequest& request_;
  const Compiled& first_;
  Session& session_;
  Archive& archive_;
  Scratch& scratch_;
  search::Catalogue catalogue_;
  EmittedSources sources_;
  double began_;
};

}  // namespace

SearchOutcome emit_schedules(const EmitRequest& request, const Compiled& first, Session& session, Archive& archive,
                             Scratch& scratch) {
  return EmitRun(request, first, session, archive, scratch).run();
}

}  // namespace kw
