#include "support/error.hpp"

#include <utility>

namespace kw {

Error::Error(ErrorKind kind, ErrorText text) : std::runtime_error(text.message), kind_(kind), text_(std::move(text)) {}

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : Error(kind, ErrorText{.message = std::move(message),
                            .where = "",
                            .source = "",
                            .hint = std::move(hint),
                            .detail = "",
                            .code = ""}) {}

int Error::exit_code() const {
  switch (kind_) {
    case ErrorKind::kCandidateFailed: return 1;
    case ErrorKind::kUser: return 2;
    case ErrorKind::kMissing: return 3;
    case ErrorKind::kInternal: return 4;
  }
  return 4;
}

std::string render(const Error& error) {
  const ErrorText& text = error.text();
  std::string out = "error: " + text.message;
  if (!text.where.empty()) out += "\n  at " + text.where;
  if (!text.source.empty()) out += (text.where.empty() ? "\n  " : ": ") + text.source;
  if (!text.hint.empty()) out += "\n  hint: " + text.hint;
  if (error.kind() == ErrorKind::kInternal) out += "\n  This is a fault of Kernelwright, not of your input.";
  return out;
}

void fail_internal(const char* file, int line, const std::string& what) {
  throw Error(ErrorKind::kInternal, std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace kw
