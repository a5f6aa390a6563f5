// plan_tool GRAPH.json|GRAPH.txt [triton|cpu [quiet|MULTIPROCESSORS]]: runs the passes, plans, and prints groups, steps
// and kernels. For tests and for looking. On a device of few multiprocessors little work is much.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "capture/reader.hpp"
#include "ir/text.hpp"
#include "passes/pipeline.hpp"
#include "plan/plan.hpp"
#include "plan/program_text.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"

int main(int count, char** arguments) {
  if (count < 2)
    return std::fputs("usage: plan_tool GRAPH.json|GRAPH.txt [triton|cpu [quiet|MULTIPROCESSORS]]\n", stderr), 2;
  try {
    const std::string path = arguments[1], target = count > 2 ? arguments[2] : "triton", text = kw::read_file(path);
    const std::string third = count > 3 ? arguments[3] : "";
    const bool quiet = third == "quiet";
    kw::Graph graph = path.ends_with(".json") ? kw::read_graph(text) : kw::parse_graph(text);
    auto clock = std::chrono::steady_clock::now();
    auto lap = [&] {
      const auto now = std::chrono::steady_clock::now();
      const double seconds = std::chrono::duration<double>(now - clock).count();
      clock = now;
      return seconds;
    };
    auto device = kw::default_device(target);
    double fusion = 0;
    for (const auto& pass : kw::run_passes(graph, device.target->graph_forms()).passes)
      if (pass.name == "fusion") fusion = pass.seconds;
    const double passes = lap();
    if (!third.empty() && !quiet) device.units = std::stoi(third);
    const kw::Schedule schedule = kw::default_schedule(graph, device);
    const double planning = lap();
    const kw::Program program = kw::make_program(graph, schedule, device);
    const double lowering = lap();
    if (!quiet) std::cout << kw::print(graph);
    std::cout << kw::print(graph, schedule) << kw::print(graph, program);
    if (!quiet)
      for (const auto& tiles : program.tiles) std::cout << kw::tile::print_program(tiles);
    std::fprintf(stderr,
                 "%zu nodes, %zu groups, %zu kernels: passes %.3f s (fusion %.3f), schedule %.3f s, lower %.3f s\n",
                 graph.nodes.size(), schedule.groups.size(), program.tiles.size(), passes, fusion, planning, lowering);
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  }
}
