// Tile programs printed as C++ and compiled: random kernels under random schedules compute what the kernels mean.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

#include "emit/cpu/tile_printer.hpp"
#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/arrange.hpp"
#include "random_kernels.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/interpreter.hpp"
#include "tile/text.hpp"

namespace kw {
namespace {

using lower::Random;

struct Trial {
  uint64_t seed;
  kernel::Kernel kernel;
  tile::Program program;
  std::map<std::string, int64_t> sizes;
  kernel::Memory memory, expected;
};

// What the seed makes, unless its schedule cannot be kept.
std::optional<Trial> trial_of(uint64_t seed) {
  Random random(seed);
  lower::RandomKernel maker(random);
  Trial trial{seed, {}, {}, maker.sizes(), {}, {}};
  trial.kernel = maker.make();
  trial.memory = lower::random_memory(random, trial.kernel, trial.sizes);
  for (auto& [name, numbers] : trial.memory)
    for (double& number : numbers.reals) number = static_cast<float>(number);
  try {
    trial.program = lower::arrange(trial.kernel, lower::random_schedule(random, trial.kernel));
  } catch (const Error&) { return std::nullopt; }
  trial.expected = kernel::evaluate(trial.kernel, trial.memory, trial.sizes);
  return trial;
}

// "extern "C" void run_7(float* const* buffers, const int64_t* sizes)", which calls the printed function.
std::string entry_of(const Trial& trial, const cpu::PrintedTile& printed) {
  std::string arguments;
  const auto add = [&](const std::string& one) { arguments += (arguments.empty() ? "" : ", ") + one; };
  for (size_t i = 0; i < trial.program.buffers.size(); ++i) add(fmt::format("buffers[{}]", i));
  int sizes = 0;
  for (const tile::SymbolInfo& symbol : trial.program.symbols)
    if (symbol.kind == tile::SymbolKind::kSize) add(fmt::format("sizes[{}]", sizes++));
  if (printed.takes_threads) add("2");
  return fmt::format("extern \"C\" void run_{}(float* const* buffers, const int64_t* sizes) {{ {}({}); }}\n",
                     trial.seed, trial.program.name, arguments);
}

// A library of all of them. Optimisation costs more than it finds here.
void* compiled(std::vector<Trial>& trials) {
  cpu::HelperSet helpers;
  std::string functions;
  for (Trial& trial : trials) {
    trial.program.name += "_" + std::to_string(trial.seed);
    const cpu::PrintedTile printed = cpu::print_tile_function(trial.program, helpers);
    functions += printed.text + entry_of(trial, printed);
  }
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("tiles-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string source = folder / "tiles.cpp", library = folder / "tiles.so";
  write_file_atomically(source, cpu::tile_source(functions, helpers));
  const char* compiler = std::getenv("CXX");
  const std::string command = fmt::format("{} -O1 -fopenmp -std=c++17 -shared -fPIC -fwrapv -fno-math-errno {} -o {}",
                                          compiler ? compiler : "g++", source, library);
  if (std::system(command.c_str()) != 0) return nullptr;
  void* loaded = dlopen(library.c_str(), RTLD_NOW);
  std::filesystem::remove_all(folder);
  return loaded;
}

std::map<std::string, std::vector<float>> run(void* library, const Trial& trial) {
  std::map<std::string, std::vector<float>> arrays;
  std::vector<float*> buffers;
  std::vector<int64_t> sizes, values(trial.program.symbols.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (trial.program.symbols[i].kind == tile::SymbolKind::kSize)
      sizes.push_back(values[i] = trial.sizes.at(trial.program.symbols[i].name));
  for (const tile::Buffer& buffer : trial.program.buffers) {
    size_t elements = 1;
    for (const tile::Index& size : buffer.shape) elements *= static_cast<size_t>(kernel::evaluate(size, values));
    std::vector<float>& array = arrays[buffer.name];
    array.assign(elements, 777.0F);
    if (const auto found = trial.memory.find(buffer.name); found != trial.memory.end())
      std::copy(found->second.reals.begin(), found->second.reals.end(), array.begin());
    buffers.push_back(array.data());
  }
  using Function = void (*)(float* const*, const int64_t*);
  void* const symbol = dlsym(library, fmt::format("run_{}", trial.seed).c_str());
  reinterpret_cast<Function>(symbol)(buffers.data(), sizes.data());
  return arrays;
}

// In single precision; NaN is like NaN, infinities like themselves.
bool close(double left, double right, double largest) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (left == right || static_cast<float>(left) == static_cast<float>(right)) return true;
  return std::abs(left - right) <= 2e-4 * std::max({1.0, std::abs(right), largest});
}

TEST(TilesOnCpu, RandomKernelsUnderRandomSchedulesComputeWhatTheyMean) {
  std::vector<Trial> trials;
  for (uint64_t seed = 0; trials.size() < 150; ++seed)
    if (std::optional<Trial> trial = trial_of(seed)) trials.push_back(std::move(*trial));
  void* const library = compiled(trials);
  ASSERT_NE(library, nullptr);
  for (const Trial& trial : trials) {
    const auto found = run(library, trial);
    for (const tile::Buffer& buffer : trial.program.buffers) {
      if (buffer.role != tile::BufferRole::kOutput) continue;
      const std::vector<double>& expected = trial.expected.at(buffer.name).reals;
      double largest = 0;
      for (double one : expected)
        if (std::isfinite(one)) largest = std::max(largest, std::abs(one));
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_TRUE(close(found.at(buffer.name)[i], expected[i], largest))
            << "seed " << trial.seed << ": " << buffer.name << "[" << i << "] is " << found.at(buffer.name)[i]
            << ", not " << expected[i] << "\n"
            << kernel::print_kernel(trial.kernel) << tile::print_program(trial.program) << [&] {
                 cpu::HelperSet helpers;
                 return cpu::print_tile_function(trial.program, helpers).text;
               }();
    }
  }
}

}  // namespace
}  // namespace kw
