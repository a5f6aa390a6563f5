// An error as JSON, for --json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "support/error.hpp"

namespace kw::cli {

inline constexpr int kJsonVersion = 1;   // of every JSON document that kw writes; docs/json.md

nlohmann::ordered_json error_json(const std::string& command, const Error& error);

}  // namespace kw::cli
