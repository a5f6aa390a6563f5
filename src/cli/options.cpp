#include "cli/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ranges>

#include "cli/help_text.hpp"
#include "passes/pipeline.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

namespace kw::cli {

namespace {

constexpr double kMost = 1e9;                            // seconds are 30 years
constexpr uint64_t kLastSeed = (uint64_t{1} << 62) - 1;  // Python and C++ both hold it in a signed 64-bit integer

std::string number_within(const std::string& text, double low, bool low_too, double high, const char* what) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && std::isfinite(value) && (low_too ? value >= low : value > low) && value <= high)
    return "";
  return "\"" + text + "\" is not " + what;
}

bool is_whole(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string zero_or_more(const std::string& text) {
  return number_within(text, 0, true, kMost, "a number from 0 to a billion");
}
std::string more_than_zero(const std::string& text) {
  return number_within(text, 0, false, kMost, "a number above 0, up to a billion");
}
std::string zero_to_one(const std::string& text) { return number_within(text, 0, true, 1, "a number from 0 to 1"); }
std::string zero_to_ten(const std::string& text) { return number_within(text, 0, true, 10, "a number from 0 to 10"); }
std::string a_name(const std::string& text) { return text.empty() ? "the name is empty" : ""; }
std::string number_of_gpu(const std::string& text) {
  return is_whole(text) ? "" : "\"" + text + "\" is not the number of a GPU, such as 0";
}

std::string a_seed(const std::string& text) {
  if (is_whole(text) && text.size() < 20 && *seed_of(text) <= kLastSeed) return "";
  return "\"" + text + "\" is not a whole number from 0 to " + std::to_string(kLastSeed);
}

std::optional<uint64_t> seed_of(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

std::string name_of_pass(const std::string& text) {
  const std::vector<std::string> names = pass_names();
  if (text == "all" || std::find(names.begin(), names.end(), text) != names.end()) return "";
  const std::string near = nearest(text, names);
  return "there is no pass \"" + text + "\"" +
         (near.empty() ? "; `kw inspect PROBLEM --stage passes` lists them" : ", did you mean " + near + "?");
}

void add_force(CLI::App& app, bool& force) {
  app.add_flag("--force", force, "Overwrite the output even if kw did not write it, or if it was edited since")
      ->group(kInputOutput);
}

CLI::Option* add_problem(CLI::App& app, std::string& problem) {
  return app.add_option("PROBLEM", problem, "Python file with class Model, get_inputs() and get_init_inputs()");
}

void add_target(CLI::App& app, std::string& target) {
  std::vector<std::string> choices = {"auto"}, described;
  for (const Target* one : targets() | std::views::reverse) {
    const std::string device(one->description());
    choices.emplace_back(one->name());
    described.push_back(choices.back() + (device.empty() ? "" : " for " + device));
  }
  app.add_option("--target", target,
                 "Where the kernels run: " + join(described, ", or ") + "; auto takes the GPU where there is one")
      ->capture_default_str()
      ->check(CLI::IsMember(choices))
      ->type_name(join(choices, "|"))
      ->group(kInputOutput);
}

void add_size(CLI::App& app, std::string& size) {
  app.add_option("--size", size, "For a problem that has a table SIZES: the name of the size to use")
      ->default_str("cpu on the CPU, full on a GPU")
      ->type_name("NAME")
      ->group(kInputOutput);
}

void add_policy(CLI::App& app, std::string& policy) {
  app.add_option("--policy", policy,
                 "How exact results have to be. reference: within twice PyTorch's own error; ieee: the same, without "
                 "reduced precision in any product; relaxed: TF32 and 16-bit products are allowed")
      ->capture_default_str()
      ->check(CLI::IsMember({"reference", "ieee", "relaxed"}))
      ->type_name("POLICY")
      ->group(kVerification);
}

void add_baselines(CLI::App& app, std::vector<std::string>& baselines) {
  app.add_option("--baseline", baselines,
                 "What to time for comparison: plain PyTorch (eager), torch.compile "
                 "(compile), or both")
      ->delimiter(',')
      ->default_str("eager,compile")
      ->check(CLI::IsMember({"eager", "compile"}))
      ->type_name("NAME,...")
      ->group(kSearchAndTime);
}

void add_min_speedup(CLI::App& app, double& min_speedup) {
  app.add_option("--min-speedup", min_speedup,
                 "Over eager: a candidate whose whole 95% interval lies below is not written "
                 "(two runs of one kernel may be 3% apart); 0 writes whatever is right")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("X")
      ->group(kSearchAndTime);
}

void add_draws(CLI::App& app, int& draws) {
  app.add_option("--draws", draws,
                 "How many sets of inputs and weights are drawn for the check; docs/contract.md has "
                 "the kinds")
      ->default_str("5, one of each kind")
      ->check(CLI::Range(1, 10000))
      ->type_name("N")
      ->group(kVerification);
}

void add_seed(CLI::App& app, std::optional<uint64_t>& seed) {
  app.add_option_function<std::string>(
         "--seed", [&seed](const std::string& text) { seed = seed_of(text); },
         "Draw the inputs and weights from this seed, so that the run can be repeated; a "
         "search follows it too")
      ->default_str("secret and new each time")
      ->check(a_seed)
      ->type_name("S")
      ->group(kVerification);
}

void add_budget(CLI::App& app, double& seconds, const std::string& text) {
  app.add_option("--budget", seconds, text)
      ->capture_default_str()
      ->check(zero_or_more)
      ->type_name("SECONDS")
      ->group(kSearchAndTime);
}

void add_timeout(CLI::App& app, double& seconds, const std::string& text) {
  app.add_option("--timeout", seconds, text)
      ->capture_default_str()
      ->check(more_than_zero)
      ->type_name("SECONDS")
      ->group(kSearchAndTime);
}

void add_graphs(CLI::App& app, std::string& graphs) {
  app.add_option(
         "--graphs", graphs,
         "Whether a GPU's kernels run as a CUDA graph, from the third call on: auto, where launches are expected "
         "to take longer than the kernels; on, wherever a graph can be made; off")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->type_name("auto|on|off")
      ->group(kSearchAndTime);
}

void add_schedule(CLI::App& app, std::string& schedule) {
  app.add_option("--schedule", schedule,
                 "A file with the schedule to compile by, in place of the compiler's own: `kw inspect --stage "
                 "schedule --json FILE` writes one to change")
      ->default_str("none")
      ->type_name("FILE")
      ->check(a_name)
      ->group(kCompiler);
}

void add_disabled_passes(CLI::App& app, std::vector<std::string>& passes) {
  app.add_option("--disable-pass", passes,
                 "Leave out passes of the compiler, by name (`kw inspect --stage passes` "
                 "lists them), or all")
      ->delimiter(',')
      ->check(name_of_pass)
      ->default_str("none")
      ->type_name("NAME,...")
      ->group(kCompiler);
}

}  // namespace kw::cli
