#include "support/error_json.hpp"

#include <nlohmann/json.hpp>

#include "support/json_fields.hpp"

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

std::optional<Error> error_from_json(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return std::nullopt;
  ErrorKind kind = ErrorKind::kInternal;
  for (const ErrorKind one : {ErrorKind::kCandidateFailed, ErrorKind::kUser, ErrorKind::kMissing})
    if (text_of(json, "kind") == name_of(one)) kind = one;
  return Error(kind, ErrorText{.message = text_of(json, "message"),
                               .where = text_of(json, "where"),
                               .source = text_of(json, "source"),
                               .hint = text_of(json, "hint"),
                               .detail = text_of(json, "detail"),
                               .code = text_of(json, "code")});
}

}  // namespace kw
