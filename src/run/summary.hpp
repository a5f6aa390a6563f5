// What a suite's results say together. Metrics as KernelBench defines them (Ouyang et al. 2025): fast_p is the share of
// all problems that are correct and more than p times as fast as the baseline, so that fast_0 is the share that is
// correct.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kw {

// Over the lines of results.jsonl (docs/json.md). Failures stand apart: the geometric means are over what is correct
// and measured.
nlohmann::ordered_json summarise(const std::vector<nlohmann::ordered_json>& lines);

// The same for people.
std::string summary_text(const nlohmann::ordered_json& summary);

}  // namespace kw
