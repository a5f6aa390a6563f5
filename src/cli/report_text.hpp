// A report (docs/json.md) in words, for people.
#pragma once

#include <string>

#include "run/report.hpp"

namespace kw::cli {

std::string optimize_text(const Report& report);
std::string generate_text(const Report& report);
std::string edits_text(const Report& report);
std::string verify_text(const Report& report);
std::string measure_text(const Report& report);
std::string device_text(const DeviceReport& report);

}  // namespace kw::cli
