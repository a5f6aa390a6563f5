#include "archive/records.hpp"

#include <initializer_list>
#include <string_view>

#include "support/hash.hpp"

namespace kw {

namespace {

// Each part is preceded by its length, so that no two lists of parts give the same bytes.
std::string hash_parts(std::string_view kind, std::initializer_list<std::string_view> parts) {
  std::string bytes(kind);
  for (const std::string_view part : parts) {
    bytes += '\n' + std::to_string(part.size()) + ' ';
    bytes += part;
  }
  return sha256_hex(bytes);
}

}  // namespace

// Name and path are left out: the same source under another name is the same problem.
std::string hash_of(const ProblemRecord& record) { return hash_parts("problem", {record.source}); }

std::string hash_of(const CompletionRecord& record) {
  return hash_parts("completion", {record.problem, record.run, std::to_string(record.sample),
                                   std::to_string(record.turn), record.model, record.request, record.text});
}

std::string hash_of(const ProposalRecord& record) {
  return hash_parts(
      "proposal", {record.problem, record.candidate, record.target, record.proposer, record.emitter, record.schedule});
}

std::string hash_of(const VerdictRecord& record) {
  return hash_parts("verdict", {record.problem, record.candidate, record.environment, record.policy,
                                record.passed ? "pass" : "fail", record.reason, record.figures});
}

std::string hash_of(const MeasurementRecord& record) {
  return hash_parts("measurement", {record.problem, record.candidate, record.environment, record.samples});
}

}  // namespace kw
