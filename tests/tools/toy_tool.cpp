// toy_tool GRAPH.json: the Python file that the toy target of the unit tests makes of a graph.
#include <cstdio>
#include <iostream>

#include "capture/reader.hpp"
#include "propose/compile.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "toy/target.hpp"

int main(int count, char** arguments) {
  if (count != 2) return std::fputs("usage: toy_tool GRAPH.json\n", stderr), 2;
  try {
    const kw::CompileOptions options{
        .device = kw::toy_target().default_device(), .passes = {}, .problem_name = "", .problem_source = ""};
    std::cout << kw::compile(kw::read_graph(kw::read_file(arguments[1])), options).source;
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  }
}
