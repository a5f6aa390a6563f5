// Errors of Kernelwright: one exception type with a kind that decides the process's exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace kw {

enum class ErrorKind {
  kCandidateFailed,  // exit 1: the answer is no
  kUser,             // exit 2: the user's input is wrong
  kMissing,          // exit 3: something is missing on this machine
  kInternal,         // exit 4: our own fault; a user can never trigger it
};

// What a person reads: the message says what is wrong, `where` the place in their file, `hint` what to do.
struct ErrorText {
  std::string message;
  std::string where;   // "model.py:12", or empty
  std::string source;  // the text of that line, or empty
  std::string hint;    // what to do, or empty
  std::string detail;  // a compiler's output; for the log, shown only where it is the message
  std::string code;    // stable slug, "no-model"
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, ErrorText text);
  Error(ErrorKind kind, std::string message, std::string hint = "");

  ErrorKind kind() const { return kind_; }
  const ErrorText& text() const { return text_; }
  int exit_code() const;

 private:
  ErrorKind kind_;
  ErrorText text_;
};

// The paragraph shown to a person: "error: message (where)", the source line, the hint.
std::string render(const Error& error);

[[noreturn]] void fail_internal(const char* file, int line, const std::string& what);

// An invariant of ours. Not for anything that input can break.
#define KW_ASSERT(condition, what)                                   \
  do {                                                               \
    if (!(condition)) ::kw::fail_internal(__FILE__, __LINE__, what); \
  } while (false)

}  // namespace kw
