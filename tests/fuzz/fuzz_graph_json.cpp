// The JSON of a captured graph, which another process writes.
#include "capture/reader.hpp"
#include "ir/text.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) { kw::print(kw::read_graph(std::string(text))); }, true);
}
