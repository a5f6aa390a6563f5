#include "archive/schema.hpp"

#include <chrono>
#include <thread>
#include <sys/stat.h>

#include <span>
#include <string>

#include "support/error.hpp"

namespace kw {

namespace {

constexpr int64_t kApplicationId = 0x4b574b57;  // "KWKW", so that another program's database is not taken for ours
constexpr int64_t kQuickCheckBytes = 32 << 20;  // above this a full check would cost more than the answer it guards

constexpr const char* kTables = R"sql(
CREATE TABLE problems(
  hash TEXT PRIMARY KEY, name TEXT NOT NULL, path TEXT NOT NULL, source TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
CREATE TABLE candidates(
  hash TEXT PRIMARY KEY, source TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
-- Where a candidate came from. The same source may be proposed more than once.
CREATE TABLE proposals(
  hash TEXT PRIMARY KEY, candidate TEXT NOT NULL REFERENCES candidates(hash), problem TEXT NOT NULL REFERENCES problems(hash),
  target TEXT NOT NULL, proposer TEXT NOT NULL, emitter TEXT NOT NULL, schedule TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
CREATE TABLE environments(
  hash TEXT PRIMARY KEY, description TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
-- What is slow to find out about an environment: the worker's hello, a device's measured ceilings.
CREATE TABLE facts(
  environment TEXT NOT NULL REFERENCES environments(hash), name TEXT NOT NULL, value TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now')));
CREATE INDEX facts_by_name ON facts(environment, name);
CREATE TABLE verdicts(
  hash TEXT PRIMARY KEY, problem TEXT NOT NULL REFERENCES problems(hash), candidate TEXT NOT NULL REFERENCES candidates(hash),
  environment TEXT NOT NULL REFERENCES environments(hash), policy TEXT NOT NULL, passed INTEGER NOT NULL, reason TEXT NOT NULL,
  figures TEXT NOT NULL, created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
CREATE TABLE measurements(
  hash TEXT PRIMARY KEY, problem TEXT NOT NULL REFERENCES problems(hash), candidate TEXT REFERENCES candidates(hash),
  environment TEXT NOT NULL REFERENCES environments(hash), samples TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
-- The outcome of one `optimize`, as it was reported.
CREATE TABLE results(
  id INTEGER PRIMARY KEY, problem TEXT NOT NULL REFERENCES problems(hash), target TEXT NOT NULL,
  policy TEXT NOT NULL, emitter TEXT NOT NULL,
  environment TEXT NOT NULL REFERENCES environments(hash), candidate TEXT NOT NULL REFERENCES candidates(hash),
  verdict TEXT NOT NULL REFERENCES verdicts(hash), measurement TEXT REFERENCES measurements(hash), report TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now')));
CREATE INDEX results_by_key ON results(problem, target, policy, emitter, environment);
)sql";

constexpr const char* kTableNames[] = {"problems", "candidates", "proposals",    "environments",
                                       "facts",    "verdicts",   "measurements", "results"};

// Version 2: what language models wrote, stored before it is judged, so that no completion is paid for twice.
constexpr const char* kModelTables = R"sql(
CREATE TABLE completions(
  hash TEXT PRIMARY KEY, problem TEXT NOT NULL REFERENCES problems(hash), run TEXT NOT NULL, sample INTEGER NOT NULL, turn INTEGER NOT NULL,
  model TEXT NOT NULL, request TEXT NOT NULL, text TEXT NOT NULL, usage TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
CREATE INDEX completions_by_run ON completions(run, sample, turn);
CREATE TABLE judgements(
  completion TEXT PRIMARY KEY REFERENCES completions(hash), candidate TEXT REFERENCES candidates(hash),
  verdict TEXT REFERENCES verdicts(hash), passed INTEGER NOT NULL, record TEXT NOT NULL,
  created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ','now'))) WITHOUT ROWID;
)sql";

constexpr const char* kModelTableNames[] = {"completions", "judgements"};

void create_tables(Database& database, const char* tables, std::span<const char* const> names) {
  database.execute(tables);
  for (const char* table : names)
    for (const char* verb : {"UPDATE", "DELETE"}) {
      const std::string name = table;
      const std::string trigger = "CREATE TRIGGER " + name + "_no_" + verb + " BEFORE " + verb + " ON " + name +
                                  " BEGIN SELECT RAISE(ABORT, 'the archive is append-only'); END";
      database.execute(trigger.c_str());
    }
}

// Brings an archive of version `from` (0: an empty file) to today's.
void upgrade(Database& database, int64_t from) {
  if (from < 1) {
    create_tables(database, kTables, kTableNames);
    database.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
  }
  if (from < 2) create_tables(database, kModelTables, kModelTableNames);
  database.execute(("PRAGMA user_version = " + std::to_string(kArchiveSchemaVersion)).c_str());
}

int64_t pragma(Database& database, const char* sql) {
  Statement statement(database, sql);
  return statement.step() ? statement.integer(0) : 0;
}

void check_undamaged(Database& database) {
  struct stat status{};
  if (stat(database.path().c_str(), &status) != 0 || status.st_size > kQuickCheckBytes) return;
  Statement statement(database, "PRAGMA quick_check(1)");
  if (statement.step() && statement.text(0) != "ok")
    throw Error(
        ErrorKind::kMissing,
        ErrorText{.message = "the archive " + database.path() + " is damaged (" + statement.text(0) + ").",
                  .where = "",
                  .source = "",
                  .hint = "`kw archive move-aside` renames it, so that a new one is started; nothing is deleted.",
                  .detail = "",
                  .code = "archive-corrupt"});
}

// The first switch to WAL needs the file alone, and SQLite does not wait for that: of several processes that start
// together on a new archive all but one are refused at once.
void enter_wal_mode(Database& database) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (true) {
    try {
      return database.execute("PRAGMA journal_mode = WAL");
    } catch (const Error& error) {
      if (error.text().code != "archive-busy" || std::chrono::steady_clock::now() > limit) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void prepare_schema(Database& database) {
  // WAL with synchronous=NORMAL survives a kill at any moment; FULL also keeps the last commit through a power cut, at
  // one fsync a commit.
  enter_wal_mode(database);
  database.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;");
  if (pragma(database, "PRAGMA user_version") == 0) {
    Transaction transaction(database);
    if (pragma(database, "PRAGMA user_version") == 0) {  // another process may have created the tables while this one
                                                         // waited
      if (pragma(database, "SELECT count(*) FROM sqlite_master") != 0)
        throw Error(ErrorKind::kUser, "the file " + database.path() + " is a database of another program.",
                    "Set KW_ARCHIVE to another file; this one was left as it is.");
      upgrade(database, 0);
    }
    transaction.commit();
  }
  if (pragma(database, "PRAGMA application_id") != kApplicationId)
    throw Error(ErrorKind::kUser, "the file " + database.path() + " is a database of another program.",
                "Set KW_ARCHIVE to another file; this one was left as it is.");
  if (const int64_t version = pragma(database, "PRAGMA user_version"); version < kArchiveSchemaVersion) {
    Transaction transaction(database);
    if (const int64_t still = pragma(database, "PRAGMA user_version"); still < kArchiveSchemaVersion)
      upgrade(database, still);
    transaction.commit();
  }
  const int64_t version = pragma(database, "PRAGMA user_version");
  if (version != kArchiveSchemaVersion)
    throw Error(ErrorKind::kMissing,
                "the archive " + database.path() + " has schema version " + std::to_string(version) +
                    "; this kw reads version " + std::to_string(kArchiveSchemaVersion) + ".",
                "Use the kw that wrote it, or set KW_ARCHIVE to another file.");
  check_undamaged(database);
}

}  // namespace kw
