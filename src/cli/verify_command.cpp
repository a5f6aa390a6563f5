#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"

namespace kw::cli {

void define_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<VerifyOptions>();
  add_problem(app, options->problem)->required();
  app.add_option("CANDIDATE", options->candidate, "Python file with class ModelNew, the candidate to check")
      ->required();
  add_target(app, options->target);
  add_size(app, options->size);
  add_timeout(app, options->timeout_seconds, "Seconds after which the candidate counts as hung");
  add_policy(app, options->policy);
  add_draws(app, options->draws);
  add_seed(app, options->seed);
  invocation.files = [options](CommandFiles& files) {
    files.reads_problem(options->problem);
    files.reads(options->candidate, "the candidate");
  };
  invocation.run = [options](Console& console) {
    const Report report = verify_candidate(*options, console);
    console.print(verify_text(report));
    console.write_json(to_json(report));
    return report.passed() ? kGood : kAnswerIsNo;
  };
}

}  // namespace kw::cli
