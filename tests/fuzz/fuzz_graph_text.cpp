// The text of a graph: what is read prints as a text that reads back to the same graph.
#include "ir/text.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const kw::Graph graph = kw::parse_graph(text);
    kw::require(kw::parse_graph(kw::print(graph)) == graph, "a printed graph reads back as another");
  });
}
