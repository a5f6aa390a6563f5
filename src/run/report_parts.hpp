// What a worker's replies say, as parts of a report.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "judge/judgement.hpp"
#include "judge/measurement.hpp"
#include "propose/compile.hpp"
#include "run/report.hpp"

namespace kw {

// The verdict and what it rests on; of a candidate that raised also where.
void add_judgement(Report& report, const Judgement& judgement);

// The times, and what was found of timed calls, which may turn the verdict to "fail".
void add_measurement(Report& report, const TimingReply& reply);

// `graph` after the passes: what it reads, writes and computes is the floor's work. A time that no memory could have
// served turns the verdict to "fail". Returns whether the ceilings allow the time.
bool add_roofline(Report& report, const Graph& graph, const Ceilings& ceilings, double cache_bytes);

void add_kernels(Report& report, const Compiled& compiled);

// Of a worker's answer to compile_only.
MachineCode machine_code_of(const nlohmann::ordered_json& reply, int sm);

}  // namespace kw
