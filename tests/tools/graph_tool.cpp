// graph_tool GRAPH.json|GRAPH.txt [triton|cpu PASS…]: prints the graph after the named passes for that target ("all":
// the pipeline; none: as read). For tests and for looking.
#include <cstdio>
#include <iostream>

#include "capture/reader.hpp"
#include "ir/text.hpp"
#include "ir/verifier.hpp"
#include "passes/pipeline.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

int main(int count, char** arguments) {
  if (count < 2) return std::fputs("usage: graph_tool GRAPH.json|GRAPH.txt [triton|cpu PASS…]\n", stderr), 2;
  try {
    const std::string path = arguments[1], text = kw::read_file(path);
    kw::Graph graph = path.ends_with(".json") ? kw::read_graph(text) : kw::parse_graph(text);
    kw::verify(graph, "reading");
    const kw::GraphForms forms = count > 2 ? kw::target_named(arguments[2]).graph_forms() : kw::GraphForms{};
    for (int i = 3; i < count; ++i) {
      if (std::string_view(arguments[i]) != "all") {
        kw::run_pass(graph, forms, arguments[i]);
        continue;
      }
      for (const auto& pass : kw::run_passes(graph, forms).passes)
        std::fprintf(stderr, "%-13s %8.4f s  %7lld nodes  %6lld rewrites, %s\n", pass.name.c_str(), pass.seconds,
                     static_cast<long long>(pass.nodes), static_cast<long long>(pass.rewrites.total()),
                     std::string(kw::name_of(pass.rewrites.worst())).c_str());
    }
    const std::string printed = kw::print(graph);
    if (kw::print(kw::parse_graph(printed)) != printed)
      throw kw::Error(kw::ErrorKind::kInternal, "the graph's text does not read back as the same text");
    std::cout << printed;
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  }
}
