// The contract's verdict on a candidate that kw did not compile: a person's file, or a model's.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "driver/session.hpp"

namespace kw {

// Fills in the report's verdict and returns the worker's figures. `policy` must stand in the report. Throws kUser where the problem itself
// cannot be run, and whatever is not the candidate's fault.
nlohmann::ordered_json judge(Session& session, const VerifyRequest& request, nlohmann::ordered_json& report);

// Per output: eager's largest error over the draws. A network that amplifies rounding moves that far from run to run.
std::map<std::string, double> eager_errors(const nlohmann::ordered_json& report);

}  // namespace kw
