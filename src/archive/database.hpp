// SQLite with ownership in the types, and with errors a person can act on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace kw {

class Database;

// A prepared statement. Parameters are bound in order, columns are read by index after step() returned true.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);

  Statement& bind(std::string_view text);
  Statement& bind(int64_t number);
  Statement& bind(double number);
  Statement& bind_null();
  bool step();  // true: a row is there
  void run() {
    while (step()) {}
  }

  std::string text(int column) const;  // empty for NULL
  int64_t integer(int column) const;
  double number(int column) const;
  bool is_null(int column) const;

 private:
  struct Finalise {
    void operator()(sqlite3_stmt* statement) const;
  };
  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalise> statement_;
  int bound_ = 0;
};

class Database {
 public:
  // Opens or creates. Throws kMissing when the file cannot be opened, is read-only, or is no database.
  explicit Database(std::string path);

  void execute(const char* sql);
  const std::string& path() const { return path_; }
  sqlite3* handle() const { return handle_.get(); }
  [[noreturn]] void fail_as_damaged(const std::string& how) const;  // throws kMissing, with what to do
  [[noreturn]] void fail(int code) const;                           // the kw::Error for a SQLite result code

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

// Rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace kw
