// The archive: everything that was ever proposed, verified and measured on this machine, in one SQLite file.
// Append-only and content-addressed: adding the same thing twice stores it once. Safe for many processes and for kill
// −9. Every function may throw kMissing when the file cannot be used (full disk, damage, permissions), with what to do.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "archive/database.hpp"
#include "archive/records.hpp"

namespace kw {

class Archive {
 public:
  // $KW_ARCHIVE, or kernelwright/archive.db under $XDG_DATA_HOME or ~/.local/share.
  static std::string default_path();

  // Opens or creates, with the folders above it.
  explicit Archive(const std::string& path = default_path());

  const std::string& path() const { return database_.path(); }

  // Each returns the content hash.
  std::string add(const ProblemRecord& record);
  std::string add_candidate(std::string_view source);
  std::string add_environment(std::string_view description_json);
  std::string add(const ProposalRecord& record);
  std::string add(const VerdictRecord& record);
  std::string add(const MeasurementRecord& record);
  void add(const ResultRecord& record);
  std::string add(const CompletionRecord& record);
  void add(const JudgementRecord& record);  // the first of a completion stands
  void add_fact(std::string_view environment, std::string_view name, std::string_view value_json);

  // Runs `body` in one transaction: all of it is stored, or none.
  void together(const std::function<void()>& body);

  std::optional<ResultRecord> find(const ResultKey& key);                                     // the latest
  std::optional<std::string> find_fact(std::string_view environment, std::string_view name);  // the latest
  std::vector<ResultRecord> results(std::string_view name_part = "", int64_t limit = 1000);   // newest first
  std::optional<ResultRecord> result(std::string_view id_or_hash_prefix);  // result id, or start of a candidate's or
                                                                           // problem's hash
  std::vector<JudgedCompletion> completions(std::string_view run);         // by sample and turn
  void each_completion(const std::function<void(const JudgedCompletion&)>& body);  // of all runs
  // Hashes of (problem, candidate) that passed a verification for a target, whoever proposed them; newest first, each
  // problem's latest only.
  std::vector<std::pair<std::string, std::string>> passed(std::string_view target, int64_t limit);
  std::string candidate_source(std::string_view hash);  // throws kMissing where it is not what was stored
  std::string problem_source(std::string_view hash);
  std::string verdict_figures(std::string_view hash);
  std::string measurement_samples(std::string_view hash);
  std::string environment_description(std::string_view hash);

 private:
  std::string text_of(std::string_view sql, std::string_view key);
  Database database_;
};

// Renames a damaged archive (and its -wal and -shm) to a free name beside it; returns that name. Nothing is deleted.
std::string move_archive_aside(const std::string& path);

}  // namespace kw
