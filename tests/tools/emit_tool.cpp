// emit_tool GRAPH.json|GRAPH.txt PROBLEM.py|- [cpu]: plans for triton, or for the cpu, and prints the module. "-": the
// graph is of an in-memory module. For tests and for looking.
#include <cstdio>
#include <iostream>

#include "capture/reader.hpp"
#include "emit/module_writer.hpp"
#include "emit/target_printer.hpp"
#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"

int main(int count, char** arguments) {
  if (count != 3 && count != 4)
    return std::fputs("usage: emit_tool GRAPH.json|GRAPH.txt PROBLEM.py|- [cpu]\n", stderr), 2;
  try {
    const std::string path = arguments[1], problem = arguments[2], text = kw::read_file(path);
    kw::Graph graph = path.ends_with(".json") ? kw::read_graph(text) : kw::parse_graph(text);
    const std::string target = count == 4 ? arguments[3] : "triton";
    const kw::DeviceDescription device = kw::default_device(target);
    kw::run_passes(graph, device.target->graph_forms());
    const kw::Program program = kw::make_program(graph, kw::default_schedule(graph, device), device);
    const auto printer = device.target->printer();
    std::cout << kw::write_module(graph, program, *printer, {"", problem == "-" ? "" : kw::read_file(problem)});
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  }
}
