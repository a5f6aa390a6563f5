// Numbers in reports, where NaN and infinities are strings as in the worker's protocol (measure/worker_answers.hpp
// reads them).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kw {

nlohmann::ordered_json write_number(double value);

}  // namespace kw
