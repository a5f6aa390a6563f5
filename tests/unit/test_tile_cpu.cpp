// Tile programs printed as C++ and compiled: random kernels under random schedules compute what the kernels mean.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/tile_printer.hpp"
#include "kernel/evaluate.hpp"
#include "kernel/text.hpp"
#include "lower/pipeline.hpp"
#include "random_recurrences.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/cpu/lowering.hpp"
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

// Running products may be so large that the last place of a sine of them is a matter of order.
bool multiplies_on(const tile::Program& program) {
  bool found = false;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    found = found || (one.kind == tile::Kind::kScan && one.reduce == tile::ReduceOp::kProd);
  });
  return found;
}

// What the seed makes, unless its schedule cannot be kept.
std::optional<Trial> trial_of(uint64_t seed) {
  Random random(seed);
  lower::RandomKernel maker(random, {.scans = seed % 3 == 0, .types = seed % 2 == 0});
  lower::RandomRecurrence recurrence(random);
  const bool recurs = seed % 5 == 0;
  Trial trial{seed, {}, {}, recurs ? std::map<std::string, int64_t>{} : maker.sizes(), {}, {}};
  trial.kernel = recurs ? recurrence.make() : maker.make();
  trial.memory = lower::random_memory(random, trial.kernel, trial.sizes);
  try {
    trial.program = lower::to_tiles(
        trial.kernel, recurs ? recurrence.schedule(trial.kernel) : lower::random_schedule(random, trial.kernel));
  } catch (const Error&) { return std::nullopt; }
  if (multiplies_on(trial.program)) return std::nullopt;
  trial.expected = kernel::evaluate(trial.kernel, trial.memory, trial.sizes);
  return trial;
}

// "extern "C" void run_7(void* const* buffers, const int64_t* sizes)", which calls the printed function.
std::string entry_of(const Trial& trial, const cpu::PrintedTile& printed) {
  std::string arguments;
  const auto add = [&](const std::string& one) { arguments += (arguments.empty() ? "" : ", ") + one; };
  for (size_t i = 0; i < trial.program.buffers.size(); ++i)
    if (trial.program.buffers[i].space == tile::Space::kGlobal)
      add(fmt::format("static_cast<{}*>(buffers[{}])", cpu::storage_type(trial.program.buffers[i].dtype), i));
  int sizes = 0;
  for (const tile::SymbolInfo& symbol : trial.program.symbols)
    if (symbol.kind == tile::SymbolKind::kSize) add(fmt::format("sizes[{}]", sizes++));
  if (printed.takes_threads) add("2");
  return fmt::format("extern \"C\" void run_{}(void* const* buffers, const int64_t* sizes) {{ {}({}); }}\n", trial.seed,
                     trial.program.name, arguments);
}

// A library of all of them, which has to have a path of its own. Optimisation costs more than it finds here.
void* compiled(std::vector<Trial>& trials) {
  cpu::HelperSet helpers;
  std::string functions;
  for (Trial& trial : trials) {
    trial.program.name += "_" + std::to_string(trial.seed);
    const cpu::PrintedTile printed = cpu::print_tile_function(*lower::lowered_by(cpu::lowering_steps(), trial.program),
                                                              helpers);
    functions += printed.text + entry_of(trial, printed);
  }
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       fmt::format("tiles-{}-{}", getpid(), trials.size());
  std::filesystem::create_directories(folder);
  const std::string source = folder / "tiles.cpp", library = folder / "tiles.so";
  write_file_atomically(source, cpu::cpp_file(functions, helpers));
  const char* compiler = std::getenv("CXX");
  const std::string command = fmt::format("{} -O0 -fopenmp -std=c++17 -shared -fPIC -fwrapv -fno-math-errno {} -o {}",
                                          compiler ? compiler : "g++", source, library);
  if (std::system(command.c_str()) != 0) return nullptr;
  void* loaded = dlopen(library.c_str(), RTLD_NOW);
  std::filesystem::remove_all(folder);
  return loaded;
}

template <typename Type>
std::vector<std::byte> bytes_of(size_t count, const auto& element) {
  std::vector<std::byte> bytes(count * sizeof(Type));
  for (size_t i = 0; i < count; ++i) {
    const Type one = element(i);
    std::memcpy(bytes.data() + i * sizeof(Type), &one, sizeof(Type));
  }
  return bytes;
}

uint16_t upper_half(double number) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(number)) >> 16);
}

// As they lie in memory; 777 where there is none.
std::vector<std::byte> bytes_of(DType dtype, const kernel::Numbers& numbers, size_t count) {
  const auto real = [&](size_t i) { return i < numbers.reals.size() ? numbers.reals[i] : 777.0; };
  const auto whole = [&](size_t i) { return i < numbers.wholes.size() ? numbers.wholes[i] : 77; };
  switch (dtype) {
    case DType::f64: return bytes_of<double>(count, real);
    case DType::f32: return bytes_of<float>(count, [&](size_t i) { return static_cast<float>(real(i)); });
    case DType::f16: return bytes_of<_Float16>(count, [&](size_t i) { return static_cast<_Float16>(real(i)); });
    case DType::bf16: return bytes_of<uint16_t>(count, [&](size_t i) { return upper_half(real(i)); });
    case DType::i64: return bytes_of<int64_t>(count, whole);
    case DType::i32: return bytes_of<int32_t>(count, [&](size_t i) { return static_cast<int32_t>(whole(i)); });
    default: return bytes_of<int8_t>(count, [&](size_t i) { return static_cast<int8_t>(whole(i)); });
  }
}

std::vector<double> reals_of(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> reals(bytes.size() / static_cast<size_t>(size_of(dtype)));
  for (size_t i = 0; i < reals.size(); ++i) {
    const auto element = [&]<typename Type>(Type one) {
      std::memcpy(&one, bytes.data() + i * sizeof(Type), sizeof(Type));
      return one;
    };
    if (dtype == DType::f64) reals[i] = element(double{});
    else if (dtype == DType::f32) reals[i] = element(float{});
    else if (dtype == DType::f16) reals[i] = static_cast<double>(element(_Float16{}));
    else reals[i] = std::bit_cast<float>(static_cast<uint32_t>(element(uint16_t{})) << 16);
  }
  return reals;
}

// What the printed function leaves in each buffer of floating type.
std::map<std::string, std::vector<double>> run(void* library, const Trial& trial) {
  std::vector<std::vector<std::byte>> arrays;
  std::vector<void*> buffers;
  std::vector<int64_t> sizes, values(trial.program.symbols.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (trial.program.symbols[i].kind == tile::SymbolKind::kSize)
      sizes.push_back(values[i] = trial.sizes.at(trial.program.symbols[i].name));
  for (const tile::Buffer& buffer : trial.program.buffers) {
    size_t elements = 1;
    for (const tile::Index& size : buffer.shape) elements *= static_cast<size_t>(kernel::evaluate(size, values));
    const auto found = trial.memory.find(buffer.name);
    arrays.push_back(bytes_of(buffer.dtype, found == trial.memory.end() ? kernel::Numbers{} : found->second, elements));
  }
  for (std::vector<std::byte>& array : arrays) buffers.push_back(array.data());
  using Function = void (*)(void* const*, const int64_t*);
  void* const symbol = dlsym(library, fmt::format("run_{}", trial.seed).c_str());
  reinterpret_cast<Function>(symbol)(buffers.data(), sizes.data());
  std::map<std::string, std::vector<double>> found;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (const tile::Buffer& buffer = trial.program.buffers[i]; kernel::is_real(buffer.dtype))
      found[buffer.name] = reals_of(buffer.dtype, arrays[i]);
  return found;
}

// In single precision, or the type's if that is coarser; NaN is like NaN, infinities like themselves.
bool close(DType dtype, double left, double right, double largest) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  if (left == right || kernel::round_to(dtype, left) == kernel::round_to(dtype, right)) return true;
  const double share = dtype == DType::bf16 ? 1e-2 : dtype == DType::f16 ? 2e-3 : 2e-4;
  return std::abs(left - right) <= share * std::max({1.0, std::abs(right), largest});
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
        ASSERT_TRUE(close(buffer.dtype, found.at(buffer.name)[i], expected[i], largest))
            << "seed " << trial.seed << ": " << buffer.name << "[" << i << "] is " << found.at(buffer.name)[i]
            << ", not " << expected[i] << "\n"
            << kernel::print_kernel(trial.kernel) << tile::print_program(trial.program) <<
            [&] {
              cpu::HelperSet helpers;
              return cpu::print_tile_function(*lower::lowered_by(cpu::lowering_steps(), trial.program), helpers).text;
            }();
    }
  }
}

// --- Every instruction, against the interpreter ---

// What is done with x[4, 16] and w[16], which gives y[4, 16] or z[4].
constexpr const char* kSnippets[] = {
    // folds
    "%found: i64[row] = fold arg_max %x_tile over column\n%r: f32[row] = cast %found\nstore z[row] <- %r\n",
    "%found: i32 = fold arg_min %x_tile over row, column\n%r: f32 = cast %found\nstore z[0] <- %r\n",
    "%found: i64[column] = fold arg_min %x_tile over row\n%r: f32[column] = cast %found\n%s: f32[row] = fold sum "
    "%x_tile over column\nstore y[1, column] <- %r\nstore z[row] <- %s\n",
    "%zero: f32 = constant 0.0\n%up: b1[row, column] = greater %x_tile, %zero\n%found: i32[row] = fold arg_max %up "
    "over "
    "column\n%r: f32[row] = cast %found\nstore z[row] <- %r\n",
    "%whole: i32[row, column] = cast %x_tile\n%found: i64 = fold arg_max %whole over column, row\n%r: f32 = cast "
    "%found\n"
    "store z[2] <- %r\n",
    "%root: f32[row, column] = sqrt %x_tile\n%found: i64[row] = fold arg_max %root over column\n"
    "%last: i64 = fold arg_min %root over column, row\n%r: f32[row] = cast %found\n%t: f32 = cast %last\n"
    "%u: f32[row] = add %r, %t\nstore z[row] <- %u\n",
    "%at: i32[column] = index column % 5\n%yes: b1[row, column] = constant true\n%no: i32 = constant 0\n"
    "%places: i32[row, column] = select %yes, %at, %no\n%whole: i8[row, column] = cast %x_tile\n"
    "%most: i8[row], %p: i32[row] = fold max %whole, %places over column\n%least: f32[column], %q: i32[column] = fold "
    "min %x_tile, %places over row\n%a: f32[row] = cast %most\n%b: f32[row] = cast %p\n%c: f32[row] = add %a, %b\n"
    "%d: f32[column] = cast %q\n%e: f32[column] = mul %d, %least\nstore z[row] <- %c\nstore y[3, column] <- %e\n",
    "%narrow: bf16[row, column] = cast %x_tile\n%s: bf16[row] = fold sum %narrow over column\n%r: f32[row] = cast %s\n"
    "store z[row] <- %r\n",
    "%whole: i32[row, column] = cast %x_tile\n%s: i32[row] = fold prod %whole over column\n%r: f32[row] = cast %s\n"
    "store z[row] <- %r\n",
    "%p: f32[row] = fold prod %x_tile over column\nstore z[row] <- %p\n",
    "%none: f32 = constant 1.5\n%large: b1[row, column] = greater %x_tile, %none\n%some: b1[row] = fold any %large "
    "over column\n"
    "%all: b1[column] = fold all %large over row\n%r: f32[row] = cast %some\n%r2: f32[column] = cast %all\n"
    "store z[row] <- %r\nstore y[0, column] <- %r2\n",
    "%low: f32[column] = fold min %x_tile over row\n%r: f32[row, column] = sub %x_tile, %low\nstore y[row, column] <- "
    "%r\n",
    "%wide: f64[row, column] = cast %x_tile\n%s: f64[row] = fold extended_sum %wide over column\n"
    "%t: f64[column] = fold extended_sum %wide over row\nfor i = 0 to 2 carry %a: f64[column] = %t -> %b {\n"
    "  %n: f64[column] = add %a, %t\n  yield %n\n}\n%r: f32[row] = cast %s\n%r2: f32[column] = cast %b\n"
    "store z[row] <- %r\nstore y[0, column] <- %r2\n",
    // scans
    "%s: f32[row, column] = scan sum %x_tile along column reversed\nstore y[row, column] <- %s\n",
    "%s: f32[row, column] = scan max %x_tile along row\nstore y[row, column] <- %s\n",
    "%s: f32[row, column] = scan log_sum_exp %x_tile along column\nstore y[row, column] <- %s\n",
    "%at: i32[column] = index column\n%yes: b1[row, column] = constant true\n%no: i32 = constant 0\n"
    "%places: i32[row, column] = select %yes, %at, %no\n"
    "%s: f32[row, column], %p: i32[row, column] = scan max %x_tile, %places along column reversed\n"
    "%r: f32[row, column] = cast %p\n%t: f32[row, column] = add %r, %s\nstore y[row, column] <- %t\n",
    "%low: f32[row] = fold min %x_tile over column\n%p: f32[row, column], %met: f32[row] = scan prod %x_tile along "
    "column after %low\n"
    "%s: f32[row, column], %all: f32[row] = scan sum %p along column after %met\n"
    "store y[row, column] <- %s\nstore z[row] <- %all\n",
    // types
    "%half: f16[row, column] = cast %x_tile\n%twice: f16[row, column] = mul %half, %half\n"
    "%e: f16[row, column] = exp %twice\n%r: f32[row, column] = cast %e\nstore y[row, column] <- %r\n",
    "%wide: f64[row, column] = cast %x_tile\n%third: f64 = constant 0.3333333333333333\n%t: f64[row, column] = mul "
    "%wide, %third\n"
    "%e: f64[row, column] = sigmoid %t\n%r: f32[row, column] = cast %e\nstore y[row, column] <- %r\n",
    "%ten: f32 = constant 10.0\n%t: f32[row, column] = mul %x_tile, %ten\n%a: i64[row, column] = cast %t\n"
    "%three: i64 = constant -3\n%q: i64[row, column] = floor_div %a, %three\n%m: i64[row, column] = remainder %a, "
    "%three\n"
    "%b: i64[row, column] = bit_xor %q, %m\n%r: f32[row, column] = cast %b\nstore y[row, column] <- %r\n",
    "%r: f32[row, column] = tf32 %x_tile\nstore y[row, column] <- %r\n",
    // places
    "%p: i32[column] = index (column * 3 - 20) / 4\n%q: i32[column] = index (column - 9) % 4\n%s: i32[column] = mul "
    "%p, %q\n"
    "%r: f32[column] = cast %s\n%r2: f32[row, column] = add %x_tile, %r\nstore y[row, column] <- %r2\n",
    "%turned: f32[row, other] = relabel %x_tile column -> other\n%p: f32[row, column, other] = mul %x_tile, %turned\n"
    "%s: f32[row, column] = fold sum %p over other\nstore y[row, column] <- %s\n",
    "%parts: f32[row, quarter, inner] = split %x_tile column -> quarter, inner\n"
    "%top: f32[row, quarter] = fold max %parts over inner\nstore y[row, quarter] <- %top\n",
    "%box: f32[row, column] = load x[row + 2, column - 3] bulk\nstore y[row, column] <- %box\n",
    "store y[row + 2, column - 3] bulk <- %x_tile\n",
    "%four: f32 = constant 3.5\n%t: f32[column] = mul %w_tile, %four\n%i: i32[column] = cast %t\n%zero: i32 = constant "
    "0\n"
    "%seven: i32 = constant 7\n%j: i32[column] = maximum %i, %zero\n%l: i32[column] = minimum %j, %seven\n"
    "%b: i32[column] = bounded %l, %seven\n%g: f32[row, column] = load x[row, %l + 1]\nstore y[row, column] <- %g\n",
    "%x_min: f32[row] = fold min %x_tile over column\n%zero: f32 = constant 0.0\n%ok: b1[row] = less %x_min, %zero\n"
    "store y[row, column] <- %w_tile where %ok\nstore z[row] <- %x_min where %ok\n",
    // products
    "%turned: f32[other, row] = relabel %x_other column -> other\n%t: f32[other, column] = mul %w_other, %w_tile\n"
    "%none: f32[row, column] = constant 0.5\n%p: f32[row, column] = dot %none, %turned, %t\nstore y[row, column] <- "
    "%p\n",
    "%a: f64[row, column] = cast %x_tile\n%none: f64[row] = constant 1.0\n%w2: f64[column] = cast %w_tile\n"
    "%p: f64[row] = dot %none, %a, %w2\n%r: f32[row] = cast %p\nstore z[row] <- %r\n",
    "%five: f32 = constant 5.0\n%t: f32[row, column] = mul %x_tile, %five\n%a: i8[row, column] = cast %t\n"
    "%b: i8[row, other] = relabel %a column -> other\n%none: i32[column, other] = constant 7\n"
    "%p: i32[column, other] = dot %none, %a, %b\n%s: i32[column] = fold max %p over other\n%r: f32[column] = cast %s\n"
    "store y[0, column] <- %r\n",
    // control
    "for i = 0 to 3 carry %a: f32[column] = %w_tile, %b: f32[row, column] = %x_tile, %c: f32[column] = %w_tile -> %d, "
    "%e, %f {\n"
    "  %g: f32[row, column] = add %b, %a\n  yield %c, %g, %a\n}\n%h: f32[row, column] = sub %e, %d\nstore y[row, "
    "column] <- %h\n",
    "%zero: f32 = constant 0.0\n%one: f32 = constant 1.0\nfor i = 0 to 5 carry %a: f32 = %zero, %b: f32 = %one -> %c, "
    "%d {\n"
    "  %n: f32 = add %a, %b\n  yield %b, %n\n}\n%r: f32[row, column] = mul %x_tile, %c\nstore y[row, column] <- %r\n",
    "%s: f32 = fold sum %x_tile over row, column\n%zero: f32 = constant 0.0\n%up: b1 = greater %s, %zero\n"
    "if %up -> %r: f32[row, column] {\n  %t: f32[row, column] = neg %x_tile\n  yield %t\n} else {\n  yield %x_tile\n}\n"
    "store y[row, column] <- %r\n",
    // shared memory
    "copy async kept[0, column] <- x[0, column] over column\nwait 0\nbarrier block\nfor i = 1 to 4 {\n"
    "  copy async kept[i % 2, column] <- x[i, column] over column\n  %k: f32[column] = load kept[(i + 1) % 2, column]\n"
    "  store y[i, column] <- %k\n  wait 0\n  barrier block\n}\n",
};

// The snippet as a program over all that it may use.
tile::Program program_of(const std::string& snippet) {
  std::string loads = "%x_tile: f32[row, column] = load x[row, column]\n%w_tile: f32[column] = load w[column]\n";
  if (snippet.find("_other") != std::string::npos)
    loads += "%x_other: f32[column, row] = load x[row, column]\n%w_other: f32[other] = load w[other]\n";
  return tile::parse_program(
      "program snippet {\n  lane row = 4, column = 16, other = 16, quarter = 4, inner = 4\n  launch warps 4\n"
      "  buffer x: f32[4, 16] input\n  buffer w: f32[16] input\n  buffer y: f32[4, 16] inout\n  buffer z: f32[4] "
      "inout\n"
      "  buffer kept: f32[2, 16] scratch shared\n" +
      loads + snippet + "}\n");
}

TEST(TilesOnCpu, EveryInstructionDoesWhatItDoesInTheInterpreter) {
  std::vector<Trial> trials;
  Random random(5);
  const auto numbers = [&](size_t count) {
    kernel::Numbers result;
    for (size_t i = 0; i < count; ++i) result.reals.push_back(static_cast<float>(random.number()));
    return result;
  };
  for (const char* snippet : kSnippets) {
    Trial trial{trials.size(), {}, program_of(snippet), {}, {}, {}};
    trial.memory = {{"x", numbers(64)}, {"w", numbers(16)}, {"y", numbers(64)}, {"z", numbers(4)}};
    trial.expected = tile::interpret(trial.program, trial.memory, {}, tile::Arithmetic::kAsTyped);
    trials.push_back(std::move(trial));
  }
  void* const library = compiled(trials);
  ASSERT_NE(library, nullptr);
  for (const Trial& trial : trials) {
    const auto found = run(library, trial);
    for (const auto& [name, expected] : trial.expected)
      for (size_t i = 0; i < expected.reals.size(); ++i)
        EXPECT_TRUE(close(DType::f32, found.at(name)[i], expected.reals[i], 0))
            << kSnippets[trial.seed] << name << "[" << i << "] is " << found.at(name)[i] << ", not "
            << expected.reals[i];
  }
}

}  // namespace
}  // namespace kw
