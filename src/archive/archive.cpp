#include "archive/archive.hpp"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "archive/schema.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

std::string prepare_folder(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::kMissing,
                "the archive's folder " + folder.string() + " cannot be created: " + error.message() + ".",
                "Set KW_ARCHIVE to a file in a folder you can write.");
  if (fs::is_directory(path, error))
    throw Error(ErrorKind::kUser, "the archive's path " + path + " is a folder.",
                "Set KW_ARCHIVE to a file, for example " + path + "/archive.db.");
  return path;
}

constexpr const char* kResultColumns =
    "SELECT r.id, r.problem, r.target, r.policy, r.emitter, r.environment, p.name, r.candidate, r.verdict, "
    "r.measurement, r.report, r.created "
    "FROM results r JOIN problems p ON p.hash = r.problem ";

ResultRecord read_result(const Statement& row) {
  ResultRecord record;
  record.id = row.integer(0);
  record.key = {row.text(1), row.text(2), row.text(3), row.text(4), row.text(5)};
  record.problem_name = row.text(6);
  record.candidate = row.text(7);
  record.verdict = row.text(8);
  record.measurement = row.text(9);
  record.report = row.text(10);
  record.created = row.text(11);
  return record;
}

constexpr const char* kCompletionColumns =
    "SELECT c.hash, c.problem, c.run, c.sample, c.turn, c.model, c.request, c.text, c.usage, c.created, j.completion, "
    "j.candidate, j.verdict, j.passed, j.record "
    "FROM completions c LEFT JOIN judgements j ON j.completion = c.hash ";

JudgedCompletion read_completion(const Statement& row) {
  JudgedCompletion one;
  CompletionRecord& completion = one.completion;
  completion.hash = row.text(0);
  completion.problem = row.text(1);
  completion.run = row.text(2);
  completion.sample = static_cast<int>(row.integer(3));
  completion.turn = static_cast<int>(row.integer(4));
  completion.model = row.text(5);
  completion.request = row.text(6);
  completion.text = row.text(7);
  completion.usage = row.text(8);
  completion.created = row.text(9);
  one.judged = !row.is_null(10);
  one.judgement = {completion.hash, row.text(11), row.text(12), row.integer(13) != 0, row.text(14)};
  return one;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string Archive::default_path() {
  if (const char* path = std::getenv("KW_ARCHIVE"); path && *path) return path;
  if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data)
    return std::string(data) + "/kernelwright/archive.db";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    throw Error(ErrorKind::kMissing, "there is no place for the archive: neither KW_ARCHIVE nor HOME is set.",
                "Set KW_ARCHIVE to a file.");
  return std::string(home) + "/.local/share/kernelwright/archive.db";
}

Archive::Archive(const std::string& path) : database_(prepare_folder(path)) { prepare_schema(database_); }

void Archive::together(const std::function<void()>& body) {
  Transaction transaction(database_);
  body();
  transaction.commit();
}

std::string Archive::add(const ProblemRecord& record) {
  const std::string hash = hash_of(record);
  Statement(database_, "INSERT OR IGNORE INTO problems(hash, name, path, source) VALUES (?,?,?,?)")
      .bind(hash)
      .bind(record.name)
      .bind(record.path)
      .bind(record.source)
      .run();
  return hash;
}

std::string Archive::add_candidate(std::string_view source) {
  const std::string hash = sha256_hex(source);
  Statement(database_, "INSERT OR IGNORE INTO candidates(hash, source) VALUES (?,?)").bind(hash).bind(source).run();
  return hash;
}

std::string Archive::add_environment(std::string_view description_json) {
  const std::string hash = sha256_hex(description_json);
  Statement(database_, "INSERT OR IGNORE INTO environments(hash, description) VALUES (?,?)")
      .bind(hash)
      .bind(description_json)
      .run();
  return hash;
}

std::string Archive::add(const ProposalRecord& record) {
  const std::string hash = hash_of(record);
  Statement(database_,
            "INSERT OR IGNORE INTO proposals(hash, candidate, problem, target, proposer, emitter, schedule) VALUES "
            "(?,?,?,?,?,?,?)")
      .bind(hash)
      .bind(record.candidate)
      .bind(record.problem)
      .bind(record.target)
      .bind(record.proposer)
      .bind(record.emitter)
      .bind(record.schedule)
      .run();
  return hash;
}

std::string Archive::add(const VerdictRecord& record) {
  const std::string hash = hash_of(record);
  Statement(database_,
            "INSERT OR IGNORE INTO verdicts(hash, problem, candidate, environment, policy, passed, reason, figures) "
            "VALUES (?,?,?,?,?,?,?,?)")
      .bind(hash)
      .bind(record.problem)
      .bind(record.candidate)
      .bind(record.environment)
      .bind(record.policy)
      .bind(int64_t{record.passed})
      .bind(record.reason)
      .bind(record.figures)
      .run();
  return hash;
}

std::string Archive::add(const MeasurementRecord& record) {
  const std::string hash = hash_of(record);
  Statement statement(
      database_,
      "INSERT OR IGNORE INTO measurements(hash, problem, candidate, environment, samples) VALUES (?,?,?,?,?)");
  statement.bind(hash).bind(record.problem);
  if (record.candidate.empty()) statement.bind_null();
  else statement.bind(record.candidate);
  statement.bind(record.environment).bind(record.samples).run();
  return hash;
}

void Archive::add(const ResultRecord& record) {
  Statement statement(
      database_,
      "INSERT INTO results(problem, target, policy, emitter, environment, candidate, verdict, measurement, report) "
      "VALUES (?,?,?,?,?,?,?,?,?)");
  statement.bind(record.key.problem)
      .bind(record.key.target)
      .bind(record.key.policy)
      .bind(record.key.emitter)
      .bind(record.key.environment)
      .bind(record.candidate)
      .bind(record.verdict);
  if (record.measurement.empty()) statement.bind_null();
  else statement.bind(record.measurement);
  statement.bind(record.report).run();
}

std::string Archive::add(const CompletionRecord& record) {
  const std::string hash = hash_of(record);
  Statement(database_,
            "INSERT OR IGNORE INTO completions(hash, problem, run, sample, turn, model, request, text, usage) VALUES "
            "(?,?,?,?,?,?,?,?,?)")
      .bind(hash)
      .bind(record.problem)
      .bind(record.run)
      .bind(int64_t{record.sample})
      .bind(int64_t{record.turn})
      .bind(record.model)
      .bind(record.request)
      .bind(record.text)
      .bind(record.usage)
      .run();
  return hash;
}

void Archive::add(const JudgementRecord& record) {
  Statement statement(
      database_, "INSERT OR IGNORE INTO judgements(completion, candidate, verdict, passed, record) VALUES (?,?,?,?,?)");
  statement.bind(record.completion);
  for (const std::string& hash : {record.candidate, record.verdict}) {
    if (hash.empty()) statement.bind_null();
    else statement.bind(hash);
  }
  statement.bind(int64_t{record.passed}).bind(record.record).run();
}

void Archive::add_fact(std::string_view environment, std::string_view name, std::string_view value_json) {
  Statement(database_, "INSERT INTO facts(environment, name, value) VALUES (?,?,?)")
      .bind(environment)
      .bind(name)
      .bind(value_json)
      .run();
}

std::optional<ResultRecord> Archive::find(const ResultKey& key) {
  Statement statement(database_, std::string(kResultColumns) +
                                     "WHERE r.problem=? AND r.target=? AND r.policy=? AND r.emitter=? AND "
                                     "r.environment=? ORDER BY r.id DESC LIMIT 1");
  statement.bind(key.problem).bind(key.target).bind(key.policy).bind(key.emitter).bind(key.environment);
  if (!statement.step()) return std::nullopt;
  return read_result(statement);
}

std::optional<std::string> Archive::find_fact(std::string_view environment, std::string_view name) {
  Statement statement(database_, "SELECT value FROM facts WHERE environment=? AND name=? ORDER BY rowid DESC LIMIT 1");
  statement.bind(environment).bind(name);
  if (!statement.step()) return std::nullopt;
  return statement.text(0);
}

std::vector<ResultRecord> Archive::results(std::string_view name_part, int64_t limit) {
  Statement statement(database_, std::string(kResultColumns) +
                                     "WHERE instr(lower(p.name), lower(?)) > 0 OR ?='' ORDER BY r.id DESC LIMIT ?");
  statement.bind(name_part).bind(name_part).bind(limit);
  std::vector<ResultRecord> records;
  while (statement.step()) records.push_back(read_result(statement));
  return records;
}

std::optional<ResultRecord> Archive::result(std::string_view id_or_hash_prefix) {
  if (is_number(id_or_hash_prefix) && id_or_hash_prefix.size() < 12) {
    Statement statement(database_, std::string(kResultColumns) + "WHERE r.id=?");
    statement.bind(int64_t{std::stoll(std::string(id_or_hash_prefix))});
    if (statement.step()) return read_result(statement);
  }
  Statement statement(database_,
                      std::string(kResultColumns) +
                          "WHERE substr(r.candidate,1,?1)=?2 OR substr(r.problem,1,?1)=?2 ORDER BY r.id DESC LIMIT 1");
  statement.bind(static_cast<int64_t>(id_or_hash_prefix.size())).bind(id_or_hash_prefix);
  if (id_or_hash_prefix.empty() || !statement.step()) return std::nullopt;
  return read_result(statement);
}

std::vector<JudgedCompletion> Archive::completions(std::string_view run) {
  Statement statement(database_,
                      std::string(kCompletionColumns) + "WHERE c.run=? ORDER BY c.sample, c.turn, c.created");
  statement.bind(run);
  std::vector<JudgedCompletion> records;
  while (statement.step()) records.push_back(read_completion(statement));
  return records;
}

void Archive::each_completion(const std::function<void(const JudgedCompletion&)>& body) {
  Statement statement(database_, std::string(kCompletionColumns) + "ORDER BY c.created, c.run, c.sample, c.turn");
  while (statement.step()) body(read_completion(statement));
}

std::vector<std::pair<std::string, std::string>> Archive::passed(std::string_view target, int64_t limit) {
  Statement statement(database_,
                      "SELECT p.problem, p.candidate, max(v.created) AS latest FROM proposals p JOIN verdicts v ON "
                      "v.problem = p.problem AND v.candidate = p.candidate "
                      "WHERE p.target=? AND v.passed=1 GROUP BY p.problem ORDER BY latest DESC LIMIT ?");
  statement.bind(target).bind(limit);
  std::vector<std::pair<std::string, std::string>> found;
  while (statement.step()) found.emplace_back(statement.text(0), statement.text(1));
  return found;
}

std::string Archive::text_of(std::string_view sql, std::string_view key) {
  Statement statement(database_, sql);
  statement.bind(key);
  return statement.step() ? statement.text(0) : "";
}

std::string Archive::candidate_source(std::string_view hash) {
  std::string source = text_of("SELECT source FROM candidates WHERE hash=?", hash);
  // SQLite does not see that bytes inside a text are others; what goes out as verified has to be what was verified.
  if (sha256_hex(source) != hash)
    database_.fail_as_damaged("the source of candidate " + std::string(hash.substr(0, 12)) +
                              " is not the one that was stored");
  return source;
}

std::string Archive::problem_source(std::string_view hash) {
  return text_of("SELECT source FROM problems WHERE hash=?", hash);
}
std::string Archive::verdict_figures(std::string_view hash) {
  return text_of("SELECT figures FROM verdicts WHERE hash=?", hash);
}
std::string Archive::measurement_samples(std::string_view hash) {
  return text_of("SELECT samples FROM measurements WHERE hash=?", hash);
}
std::string Archive::environment_description(std::string_view hash) {
  return text_of("SELECT description FROM environments WHERE hash=?", hash);
}

std::string move_archive_aside(const std::string& path) {
  if (!fs::exists(path)) throw Error(ErrorKind::kUser, "there is no archive at " + path + ".");
  char stamp[32];
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  std::string target = path + ".aside-" + stamp;
  for (int copy = 2; fs::exists(target); ++copy) target = path + ".aside-" + stamp + "-" + std::to_string(copy);
  // The write-ahead log holds committed work that is not yet in the main file: it has to travel along.
  for (const char* suffix : {"-wal", "-shm", ""}) {
    std::error_code error;
    if (!fs::exists(path + suffix)) continue;
    fs::rename(path + suffix, target + suffix, error);
    if (error)
      throw Error(ErrorKind::kMissing, "cannot rename " + path + suffix + ": " + error.message() + ".",
                  "Make its folder writable.");
  }
  return target;
}

}  // namespace kw
