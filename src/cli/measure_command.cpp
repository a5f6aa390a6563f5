#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"

namespace kw::cli {

void define_measure(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<MeasureOptions>();
  add_problem(app, options->problem)->required();
  app.add_option("CANDIDATE", options->candidate, "Python file with class ModelNew, to time beside the baselines")
      ->default_str("none");
  add_target(app, options->target);
  add_size(app, options->size);
  add_baselines(app, options->baselines);
  app.add_option("--budget", options->budget_seconds, "Seconds of timing, all together")
      ->capture_default_str()
      ->check(more_than_zero)
      ->type_name("SECONDS")
      ->group(kSearchAndTime);
  add_timeout(app, options->timeout_seconds, "Seconds after which what is timed counts as hung");
  invocation.files = [options](CommandFiles& files) {
    files.reads_problem(options->problem);
    files.reads(options->candidate, "the candidate");
  };
  invocation.run = [options](Console& console) {
    const Report report = measure_problem(*options, console);
    console.print(measure_text(report));
    console.write_json(to_json(report));
    return kGood;
  };
}

}  // namespace kw::cli
