#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "driver/optimize.hpp"

namespace kw::cli {

void define_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<VerifyOptions>();
  app.add_option("PROBLEM", options->problem, "Python file with Model, get_inputs() and get_init_inputs()")->required();
  app.add_option("CANDIDATE", options->candidate, "Python file with ModelNew")->required();
  add_target(app, options->target);
  add_size(app, options->size);
  add_policy(app, options->policy);
  add_draws(app, options->draws, options->seed);
  app.add_option("--timeout", options->timeout_seconds, "Seconds after which the candidate counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  invocation.run = [options](Console& console) {
    const auto report = verify_candidate(*options, console);
    console.print(verify_text(report));
    console.write_json(report);
    return report.value("verdict", "") == "pass" ? kGood : kAnswerIsNo;
  };
}

}  // namespace kw::cli
