#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "driver/optimize.hpp"

namespace kw::cli {

void define_optimize(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<OptimizeOptions>();
  app.add_option("PROBLEM", options->problem, "Python file with Model, get_inputs() and get_init_inputs()")->required();
  app.add_option("-o,--output", options->output, "Where the candidate goes  [STEM_kw.py in the current folder]")->type_name("FILE");
  add_target(app, options->target);
  add_size(app, options->size);
  add_policy(app, options->policy);
  app.add_option("--budget", options->budget_seconds, "Seconds spent on speed: up to 10 of timing, the rest of searching other schedules; 0: verify only")->capture_default_str()->check(CLI::NonNegativeNumber)->type_name("SECONDS");
  app.add_option("--timeout", options->timeout_seconds, "Seconds after which the model, or a candidate, counts as hung")->capture_default_str()->check(CLI::PositiveNumber)->type_name("SECONDS");
  add_baselines(app, options->baselines);
  add_draws(app, options->draws, options->seed);
  app.add_option("--disable-pass", options->disabled_passes, "Leave out a pass, by name, or all")->type_name("NAME")->delimiter(',');
  app.add_flag("--emit-only", options->emit_only, "Write the candidate without running it");
  app.add_flag("--fresh", options->fresh, "Do the work again, whatever the archive holds");
  invocation.run = [options](Console& console) {
    const auto report = optimize(*options, console);
    console.print(optimize_text(report));
    console.write_json(report);
    if (report.value("verdict", "") == "fail") return kAnswerIsNo;
    return report.contains("archive_error") ? kMissing : kGood;
  };
}

}  // namespace kw::cli
