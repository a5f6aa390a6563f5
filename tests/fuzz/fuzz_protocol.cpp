// The frames of a worker that is out of its mind, as the worker's client reads them: every message is an answer, none,
// or an error in words, and no wait makes the limit's end move away for ever. A result is read as a verification's
// figures and judged.
#include "judge/contract.hpp"
#include "measure/worker_answers.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  constexpr double kElapsed = 2.0;
  for (int count = 0; rest.size() >= 4 && count < 16; ++count) {
    const auto length = kw::message_length(rest.substr(0, 4));
    if (!length) return 0;
    const std::string body(rest.substr(4, *length));
    rest.remove_prefix(4 + body.size());
    auto message = kw::message_of(body);
    if (!message) continue;
    try {
      const kw::Answer answer = kw::answer_to(1, std::move(*message), kElapsed);
      kw::require(answer.waited >= 0 && answer.waited <= kElapsed, "a wait is longer than there was time");
      const bool is_event = answer.kind == kw::Answer::Kind::kEvent || answer.kind == kw::Answer::Kind::kWait;
      kw::require(!is_event || answer.value.is_object(), "an event is no object");
      if (answer.kind == kw::Answer::Kind::kResult)
        kw::judge(kw::figures_from_json(answer.value), kw::Policy::kReference);
    } catch (const kw::Error& error) {
      kw::require(error.exit_code() >= 1 && error.exit_code() <= 4, "an error has no exit code");
    }
  }
  return 0;
}
