#include "measure/worker_answers.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "support/error.hpp"
#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr uint32_t kLargestMessage = 1u << 30;

[[noreturn]] void throw_reply(const Json& error) {
  const std::string kind = text_of(error, "kind");
  const ErrorKind mapped = kind == "user"        ? ErrorKind::kUser
                           : kind == "candidate" ? ErrorKind::kCandidateFailed
                           : kind == "missing"   ? ErrorKind::kMissing
                                                 : ErrorKind::kInternal;
  throw Error(mapped, ErrorText{.message = text_of(error, "message"),
                                .where = text_of(error, "where"),
                                .source = text_of(error, "source"),
                                .hint = text_of(error, "hint"),
                                .detail = text_of(error, "detail"),
                                .code = text_of(error, "code")});
}

}  // namespace

std::optional<uint32_t> message_length(std::string_view header) {
  uint32_t length = 0;
  for (size_t byte = 0; byte < 4; ++byte)
    length |= static_cast<uint32_t>(static_cast<unsigned char>(header[byte])) << (8 * byte);
  return length <= kLargestMessage ? std::optional(length) : std::nullopt;
}

std::optional<Json> message_of(const std::string& body) {
  Json message = Json::parse(body, nullptr, false);
  return message.is_object() ? std::optional(std::move(message)) : std::nullopt;
}

double number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

Answer answer_to(int64_t id, Json message, double elapsed) {
  Answer answer;
  if (!message.contains("id") || message["id"] != id) {
    answer.kind = Answer::Kind::kOther;
  } else if (message.contains("event")) {
    Json& event = message["event"];
    if (!event.is_object()) return answer;
    answer.stage = text_of(event, "stage");
    if (event.contains("fraction")) answer.fraction = number_of(event["fraction"]);
    answer.kind = event.contains("waited") ? Answer::Kind::kWait : Answer::Kind::kEvent;
    // Not a number, or more time than there was: then the limit would never be over.
    const double waited = event.contains("waited") ? number_of(event["waited"]) : 0;
    if (waited > 0) answer.waited = std::min(waited, elapsed);
    answer.value = std::move(event);
  } else if (message.contains("error")) {
    throw_reply(message["error"]);
  } else if (message.contains("result")) {
    answer.kind = Answer::Kind::kResult;
    answer.value = std::move(message["result"]);
  }
  return answer;
}

}  // namespace kw
