// An error as JSON: for --json, for the lines of a bench and for the C API.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "support/error.hpp"

namespace kw {

// {"kind", "code", "message", "where", "source", "hint", "detail"}
nlohmann::ordered_json to_json(const Error& error);

}  // namespace kw
