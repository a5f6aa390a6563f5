#include "run/report.hpp"

#include <algorithm>

namespace kw {

void StageSeconds::add(const std::string& stage, double seconds) {
  const auto known = std::ranges::find_if(stages, [&](const auto& one) { return one.first == stage; });
  if (known == stages.end()) stages.emplace_back(stage, seconds);
  else known->second += seconds;
}

double StageSeconds::of(const std::string& stage) const {
  const auto known = std::ranges::find_if(stages, [&](const auto& one) { return one.first == stage; });
  return known == stages.end() ? 0.0 : known->second;
}

void Report::fail(const std::string& with_code, const std::string& because) {
  verdict = "fail";
  code = with_code;
  reason = because;
}

Report report_on(const char* command, const ProblemFile& problem, const std::string& target) {
  Report report;
  report.command = command;
  report.problem = problem.path;
  report.name = problem.name;
  report.size = problem.size;
  report.target = target;
  return report;
}

void Report::add_note(const std::string& note) {
  if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
}

}  // namespace kw
