#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "cli/report_text.hpp"
#include "run/optimize.hpp"

namespace kw::cli {

namespace {

struct DeviceArguments {
  std::string target = "auto";
  bool fresh = false, calibrate = false;
};

}  // namespace

void define_device(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<DeviceArguments>();
  add_target(app, options->target);
  app.add_flag("--fresh", options->fresh, "Measure again, even if the archive has the figures")->group(kInputOutput);
  app.add_flag("--calibrate", options->calibrate,
               "Also measure strided and scattered reads, caches and "
               "synchronisation, for the cost model of the search")
      ->group(kSearchAndTime);
  invocation.run = [options](Console& console) {
    const DeviceReport report = measure_device(options->target, options->fresh, options->calibrate, console);
    console.print(device_text(report));
    console.write_json(to_json(report));
    return kGood;
  };
}

}  // namespace kw::cli
