#include "cli/options.hpp"

#include <CLI/CLI.hpp>

namespace kw::cli {

void add_target(CLI::App& app, std::string& target) {
  app.add_option("--target", target, "auto: the GPU where there is one")->capture_default_str()->check(CLI::IsMember({"auto", "cpu", "triton"}))->type_name("auto|cpu|triton");
}

void add_size(CLI::App& app, std::string& size) {
  app.add_option("--size", size, "Of a problem with SIZES: which  [cpu on the CPU, full on a GPU]")->type_name("NAME");
}

void add_policy(CLI::App& app, std::string& policy) {
  app.add_option("--policy", policy, "How exact: docs/contract.md")->capture_default_str()->check(CLI::IsMember({"reference", "ieee", "relaxed"}))->type_name("reference|ieee|relaxed");
}

void add_baselines(CLI::App& app, std::vector<std::string>& baselines) {
  app.add_option("--baseline", baselines, "What to time beside it  [eager,compile]")->delimiter(',')->check(CLI::IsMember({"eager", "compile"}))->type_name("eager,compile");
}

void add_draws(CLI::App& app, int& draws, std::optional<uint64_t>& seed) {
  app.add_option("--draws", draws, "Draws of inputs and weights  [one of each of the five kinds]")->check(CLI::Range(1, 10000))->type_name("N");
  app.add_option_function<uint64_t>("--seed", [&seed](const uint64_t& value) { seed = value; }, "Seed of the draws, and of a search; that of the draws is secret when left out")->type_name("S");
}

}  // namespace kw::cli
