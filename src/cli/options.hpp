// Options that several commands share, worded once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI { class App; }

namespace kw::cli {

void add_target(CLI::App& app, std::string& target);
void add_size(CLI::App& app, std::string& size);
void add_policy(CLI::App& app, std::string& policy);
void add_baselines(CLI::App& app, std::vector<std::string>& baselines);
void add_draws(CLI::App& app, int& draws, std::optional<uint64_t>& seed);

}  // namespace kw::cli
