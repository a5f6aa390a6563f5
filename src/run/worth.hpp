// Is a verified candidate worth having? What a report says where it is slower than eager, or than the user asked for,
// and what would help.
#pragma once

#include <string>
#include <vector>

#include "run/report.hpp"

namespace kw {

struct OptimizeOptions;
struct GenerateOptions;

// Below it other candidates are tried.
inline constexpr double kEven = 1;

// Does the whole 95 % interval of the speed-up over eager lie below `least`? False where eager was not timed.
bool too_slow(const Measurement& made, double least);

// The speed-up over eager; 0 where it was not timed.
double speedup_over_eager(const Measurement& made);

// For an answer that is too slow, by what was tried already.
std::vector<Advice> advice_for(const OptimizeOptions& options, const Searches& searches);
std::vector<Advice> advice_for(const GenerateOptions& options);

// Is it slower beyond the noise of timing?
Worth::BesideEager beside_eager(const Measurement& made);

// Of a report whose candidate passed, timed or not: its worth, with `advice` where it is too slow or slower than eager.
// What is not written has no `candidate`. Returns whether it is written.
bool decide(Report& report, double min_speedup, const std::vector<Advice>& advice);

}  // namespace kw
