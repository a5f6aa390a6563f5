// emit_tool GRAPH.json|GRAPH.txt PROBLEM.py|-: plans for triton and prints the module. "-": the graph is of an in-memory module. For tests and for looking.
#include <cstdio>
#include <iostream>

#include "capture/reader.hpp"
#include "emit/module_writer.hpp"
#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

int main(int count, char** arguments) {
  if (count != 3) return std::fputs("usage: emit_tool GRAPH.json|GRAPH.txt PROBLEM.py|-\n", stderr), 2;
  try {
    const std::string path = arguments[1], problem = arguments[2], text = kw::read_file(path);
    kw::Graph graph = path.ends_with(".json") ? kw::read_graph(text) : kw::parse_graph(text);
    kw::run_passes(graph);
    const kw::DeviceDescription device = kw::default_device("triton");
    const kw::Program program = kw::lower(graph, kw::default_schedule(graph, "triton", device), device);
    std::cout << kw::write_module(graph, program, *kw::make_triton_printer(), {"", problem == "-" ? "" : kw::read_file(problem)});
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  }
}
