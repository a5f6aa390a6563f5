#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "driver/optimize.hpp"

namespace kw::cli {

void define_measure(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<MeasureOptions>();
  app.add_option("PROBLEM", options->problem, "Python file with Model, get_inputs() and get_init_inputs()")->required();
  app.add_option("CANDIDATE", options->candidate, "Python file with ModelNew, timed beside the baselines");
  add_target(app, options->target);
  add_size(app, options->size);
  add_baselines(app, options->baselines);
  app.add_option("--budget", options->budget_seconds, "Seconds of timing")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  app.add_option("--timeout", options->timeout_seconds, "Seconds after which it counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  invocation.run = [options](Console& console) {
    const auto report = measure_problem(*options, console);
    console.print(measure_text(report));
    console.write_json(report);
    return kGood;
  };
}

}  // namespace kw::cli
