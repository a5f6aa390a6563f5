// The JSON of a schedule, which the archive and language models hand in.
#include "plan/schedule_json.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const std::string json = kw::schedule_to_json(kw::schedule_from_json(text));
    kw::require(kw::schedule_to_json(kw::schedule_from_json(json)) == json, "a written schedule reads back as another");
  });
}
