// Numbers in the JSON of the worker protocol and of reports, where NaN and infinities are strings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kw {

double read_number(const nlohmann::ordered_json& value);
nlohmann::ordered_json write_number(double value);
std::string number_text(const nlohmann::ordered_json& value);   // for a sentence: six digits

}  // namespace kw
