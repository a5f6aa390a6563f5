// tile_tool COMMAND FILE [SCHEDULE]: works on a tile program's text (src/tile/text.hpp), or, with a schedule, on that
// of a kernel (src/kernel/text.hpp), which is lowered first. For tests and for looking.
//
//   print FILE   parses, verifies, and prints the program again
//   triton FILE  prints a Python file with the kernel, and a function that launches it
//   cpu FILE     prints a C++ file with the kernel
//   run FILE     interprets the program. Reads from standard input
//                  {"buffers": {"x": [1.5, "nan", "-inf"]}, "sizes": {"rows": 7}, "arithmetic": "typed"}
//                where every part may be missing; elements are in the order of memory, whole numbers for integral types
//                and b1; "arithmetic" is "typed" (every result is rounded to its type; the default) or "double". Writes
//                {"buffers": {…}}: the outputs and in-out buffers. Numbers that JSON has not are "nan", "inf", "-inf".
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "emit/cpu/tile_printer.hpp"
#include "emit/triton/tile_printer.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "support/error.hpp"
#include "support/json_numbers.hpp"
#include "support/text.hpp"
#include "targets/cpu/lowering.hpp"
#include "targets/triton/target.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& message) { throw kw::Error(kw::ErrorKind::kUser, message); }

double real_of(const Json& number, const std::string& buffer) {
  if (number.is_number()) return number.get<double>();
  if (number == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (number == "inf") return std::numeric_limits<double>::infinity();
  if (number == "-inf") return -std::numeric_limits<double>::infinity();
  refuse("buffer '" + buffer + "' has an element that is no number: " + number.dump());
}

Json json_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

kw::kernel::Numbers numbers_of(const Json& list, const kw::tile::Buffer& buffer) {
  kw::kernel::Numbers numbers;
  if (!list.is_array()) refuse("buffer '" + buffer.name + "' is no list");
  for (const Json& one : list) {
    if (kw::kernel::is_real(buffer.dtype)) {
      numbers.reals.push_back(real_of(one, buffer.name));
      continue;
    }
    const auto whole = one.is_boolean() ? std::optional<int64_t>(one.get<bool>()) : kw::whole_number<int64_t>(one);
    if (!whole) refuse("buffer '" + buffer.name + "' has an element that is no whole number: " + one.dump());
    numbers.wholes.push_back(*whole);
  }
  return numbers;
}

kw::tile::Memory memory_of(const Json& given, const kw::tile::Program& program) {
  kw::tile::Memory memory;
  for (const auto& [name, list] : given.items()) {
    const kw::tile::Buffer* found = nullptr;
    for (const kw::tile::Buffer& buffer : program.buffers)
      if (buffer.name == name) found = &buffer;
    if (!found) refuse("no buffer is called '" + name + "'");
    memory[name] = numbers_of(list, *found);
  }
  return memory;
}

kw::tile::Arithmetic arithmetic_of(const std::string& name) {
  if (name == "typed") return kw::tile::Arithmetic::kAsTyped;
  if (name == "double") return kw::tile::Arithmetic::kDouble;
  refuse("there is no arithmetic '" + name + "', only typed and double");
}

void print(const kw::tile::Program& program) { std::cout << kw::tile::print_program(program); }

void run(const kw::tile::Program& program) {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const Json input = Json::parse(text);
  const auto arithmetic = arithmetic_of(input.value("arithmetic", "typed"));
  const auto sizes = input.value("sizes", std::map<std::string, int64_t>());
  const auto memory = kw::tile::interpret(program, memory_of(input.value("buffers", Json::object()), program), sizes,
                                          arithmetic);
  Json buffers = Json::object();
  for (const auto& [name, numbers] : memory) {
    Json list = Json::array();
    for (const double number : numbers.reals) list.push_back(json_of(number));
    for (const int64_t number : numbers.wholes) list.push_back(number);
    buffers[name] = std::move(list);
  }
  std::cout << Json{{"buffers", std::move(buffers)}}.dump() << '\n';
}

struct Command {
  std::string_view name;
  void (*run)(const kw::tile::Program& program);
};
void print_triton(const kw::tile::Program& program) {
  const auto lowered = kw::lower::lowered_by(kw::triton_target().lowering_steps(), program);
  std::cout << kw::triton::print_tile_module(lowered->program);
}

void print_cpu(const kw::tile::Program& program) {
  kw::cpu::HelperSet helpers;
  const std::string function =
      kw::cpu::print_tile_function(*kw::lower::lowered_by(kw::cpu::lowering_steps(), program), helpers).text;
  std::cout << kw::cpu::cpp_file(function, helpers);
}

constexpr Command kCommands[] = {{"print", print}, {"triton", print_triton}, {"cpu", print_cpu}, {"run", run}};

// The program of a file, lowered where there is a schedule.
kw::tile::Program read_program(const std::string& file, const char* schedule) {
  const std::string text = kw::read_file(file);
  if (!schedule) return kw::tile::parse_program(text);
  const kw::kernel::Kernel kernel = kw::kernel::parse_kernel(text);
  return kw::lower::to_tiles(kernel, kw::lower::parse_schedule(std::string_view(schedule), kernel));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 3 || count == 4)
      for (const Command& command : kCommands)
        if (command.name == arguments[1])
          return command.run(read_program(arguments[2], count == 4 ? arguments[3] : nullptr)), 0;
    std::fputs("usage: tile_tool COMMAND FILE [SCHEDULE], with a COMMAND of", stderr);
    for (const Command& command : kCommands) std::fprintf(stderr, " %s", std::string(command.name).c_str());
    std::fputs("\n", stderr);
    return 2;
  } catch (const kw::Error& error) {
    std::cerr << kw::render(error) << '\n';
    return error.exit_code();
  } catch (const Json::exception& error) {
    std::cerr << "error: standard input: " << error.what() << '\n';
    return 2;
  }
}
