// What a worker writes to its pipe, read as docs/worker-protocol.md has it: whatever it is, it is an answer or it is
// not.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kw {

// The length that a frame's first four bytes tell; nullopt where no message may be so long.
std::optional<uint32_t> message_length(std::string_view header);

// A message's body; nullopt where it is no JSON object.
std::optional<nlohmann::ordered_json> message_of(const std::string& body);

struct Answer {
  enum class Kind { kOther /* to a request that was given up */, kEvent, kWait, kResult, kBroken };
  Kind kind = Kind::kBroken;
  std::string stage;  // of an event or a wait
  double fraction = -1;
  double waited = 0;             // seconds, never more than `elapsed`
  nlohmann::ordered_json value;  // an event as a whole, or the result
};

// What a message says to the request `id`, which was sent `elapsed` seconds ago. Throws Error for an error reply.
Answer answer_to(int64_t id, nlohmann::ordered_json message, double elapsed);

// Numbers of the protocol: a number, or the strings "nan", "inf", "-inf".
double number_of(const nlohmann::ordered_json& value);

}  // namespace kw
