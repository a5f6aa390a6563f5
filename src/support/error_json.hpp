// An error as JSON: for --json, for the lines of a bench and for the C API.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "support/error.hpp"

namespace kw {

// {"kind", "code", "message", "where", "source", "hint", "detail"}
nlohmann::ordered_json to_json(const Error& error);

// None where it is no object; fields that are missing or of another type are empty.
std::optional<Error> error_from_json(const nlohmann::ordered_json& json);

}  // namespace kw
