#include "archive/database.hpp"

#include <sqlite3.h>

#include <utility>

#include "support/error.hpp"

namespace kw {

namespace {

constexpr int kBusyMilliseconds = 30'000;  // another process may be inside a long export or checkpoint

}  // namespace

void Statement::Finalise::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
  statement_.reset(raw);
  if (code != SQLITE_OK) database.fail(code);
}

Statement& Statement::bind(std::string_view text) {
  const int code = sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                                       SQLITE_UTF8);
  if (code != SQLITE_OK) database_.fail(code);
  return *this;
}

Statement& Statement::bind(int64_t number) {
  if (const int code = sqlite3_bind_int64(statement_.get(), ++bound_, number); code != SQLITE_OK) database_.fail(code);
  return *this;
}

Statement& Statement::bind(double number) {
  if (const int code = sqlite3_bind_double(statement_.get(), ++bound_, number); code != SQLITE_OK) database_.fail(code);
  return *this;
}

Statement& Statement::bind_null() {
  if (const int code = sqlite3_bind_null(statement_.get(), ++bound_); code != SQLITE_OK) database_.fail(code);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail(code);
  return false;
}

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(statement_.get(), column);
  if (bytes == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(bytes),
                     static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::number(int column) const { return sqlite3_column_double(statement_.get(), column); }
bool Statement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

Database::Database(std::string path) : path_(std::move(path)) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path_.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  handle_.reset(raw);
  if (code != SQLITE_OK) fail(code);
  // SQLite opens a file it may only read without complaint; the first write would fail long after the work was done.
  if (sqlite3_db_readonly(raw, "main") == 1) fail(SQLITE_READONLY);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyMilliseconds);
}

void Database::execute(const char* sql) {
  if (const int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr); code != SQLITE_OK) fail(code);
}

void Database::fail_as_damaged(const std::string& how) const {
  ErrorText text;
  text.code = "archive-corrupt";
  text.message = "the archive " + path_ + " is damaged (" + how + ").";
  text.hint = "`kw archive move-aside` renames it, so that a new one is started; nothing is deleted.";
  text.detail = how;
  throw Error(ErrorKind::kMissing, std::move(text));
}

void Database::fail(int code) const {
  const std::string said = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  ErrorText text;
  text.detail = said;
  switch (code & 0xff) {
    case SQLITE_READONLY:
    case SQLITE_PERM:
      text.code = "archive-read-only";
      text.message = "the archive " + path_ + " cannot be written.";
      text.hint = "Make the file and its folder writable, or set KW_ARCHIVE to another file.";
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: fail_as_damaged(said);
    case SQLITE_FULL:
      text.code = "disk-full";
      text.message = "the disk that holds the archive " + path_ + " is full.";
      text.hint =
          "Free some space, or set KW_ARCHIVE to a file on another disk. The archive holds all that was stored before.";
      break;
    case SQLITE_CANTOPEN:
      text.code = "archive-unopenable";
      text.message = "the archive " + path_ + " cannot be opened (" + said + ").";
      text.hint = "Make its folder writable, or set KW_ARCHIVE to another file.";
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      text.code = "archive-busy";
      text.message = "the archive " + path_ + " was locked by another process for 30 seconds.";
      text.hint = "Try again when the other process is done, or set KW_ARCHIVE to another file.";
      break;
    case SQLITE_IOERR:
      text.code = "archive-io";
      text.message = "reading or writing the archive " + path_ + " failed (" + said + ").";
      text.hint = "Check the disk and its free space, or set KW_ARCHIVE to a file on another disk.";
      break;
    default: throw Error(ErrorKind::kInternal, "archive " + path_ + ": " + said);
  }
  throw Error(ErrorKind::kMissing, std::move(text));
}

// IMMEDIATE takes the write lock at once: a transaction that reads first and upgrades later can fail with BUSY without
// waiting.
Transaction::Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace kw
