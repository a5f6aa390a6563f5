// Options that several commands share, worded once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kw::cli {

CLI::Option* add_problem(CLI::App& app, std::string& problem);
void add_target(CLI::App& app, std::string& target);
void add_size(CLI::App& app, std::string& size);
void add_policy(CLI::App& app, std::string& policy);
void add_min_speedup(CLI::App& app, double& min_speedup);
void add_baselines(CLI::App& app, std::vector<std::string>& baselines);
// What an option's text must be; empty where it is, else what is wrong with it. CLI11's own take "nan" and name bounds
// of 300 digits.
std::string zero_or_more(const std::string& text);
std::string more_than_zero(const std::string& text);
std::string zero_to_one(const std::string& text);
std::string zero_to_ten(const std::string& text);
std::string a_name(const std::string& text);  // a file's, say: not empty
std::string name_of_pass(const std::string& text);
std::string number_of_gpu(const std::string& text);
std::string a_seed(const std::string& text);
std::optional<uint64_t> seed_of(const std::string& text);

void add_force(CLI::App& app, bool& force);
void add_draws(CLI::App& app, int& draws);
void add_seed(CLI::App& app, std::optional<uint64_t>& seed);
void add_budget(CLI::App& app, double& seconds, const std::string& text);  // 0 is allowed
void add_timeout(CLI::App& app, double& seconds, const std::string& text);
void add_graphs(CLI::App& app, std::string& graphs);
void add_schedule(CLI::App& app, std::string& schedule);
void add_disabled_passes(CLI::App& app, std::vector<std::string>& passes);

}  // namespace kw::cli
