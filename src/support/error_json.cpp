#include "support/error_json.hpp"

#include <nlohmann/json.hpp>

namespace kw {

namespace {

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kCandidateFailed: return "candidate";
    case ErrorKind::kUser: return "user";
    case ErrorKind::kMissing: return "missing";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

}  // namespace

nlohmann::ordered_json to_json(const Error& error) {
  const ErrorText& text = error.text();
  return {{"kind", name_of(error.kind())}, {"code", text.code}, {"message", text.message}, {"where", text.where},
          {"source", text.source},         {"hint", text.hint}, {"detail", text.detail}};
}

}  // namespace kw
