// The parts of a report (docs/json.md) that come from a worker's replies.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "judge/judgement.hpp"
#include "judge/measurement.hpp"
#include "propose/compile.hpp"
#include "run/report.hpp"
#include "run/report_version.hpp"

namespace kw {

// "sandbox": which protections a candidate's process had none of.
nlohmann::ordered_json sandbox_json(const std::vector<std::string>& missing);

// verdict, reason, errors, draws, reference, checks, vacuous and gate; of a candidate that raised also where, source
// and hint.
void add_judgement(nlohmann::ordered_json& report, const Judgement& judgement);

// time_ms, time_interval_ms, speedup, slower_than_eager, wall_ms, memory, share_in_our_kernels, recheck; the roofline
// where work and ceilings are known.
void add_measurement(nlohmann::ordered_json& report, const TimingReply& reply);

// roofline: floor_ms, bound, fraction. `graph` after the passes: what it reads, writes and computes is the floor's
// work. A time that no memory could have served turns the verdict to "fail". Returns whether the ceilings allow the
// time.
bool add_roofline(nlohmann::ordered_json& report, const Graph& graph, const nlohmann::ordered_json& ceilings,
                  double cache_bytes);

// kernels, library_calls, library_ops, of the triton target cuda_graph.
void add_kernels(nlohmann::ordered_json& report, const Compiled& compiled);

// compiled: what a worker's compile_only answered.
MachineCode add_machine_code(nlohmann::ordered_json& report, const nlohmann::ordered_json& reply, int sm);

bool passed(const nlohmann::ordered_json& report);
void add_note(nlohmann::ordered_json& report, const std::string& note);

}  // namespace kw
