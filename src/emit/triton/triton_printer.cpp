// The Triton target: kernels as @triton.jit functions, their launches and signatures.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/python_text.hpp"
#include "emit/target_printer.hpp"
#include "emit/triton/consumers.hpp"
#include "emit/triton/expressions.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/triton/last_block_reduction.hpp"
#include "emit/runtime/triton/keep_mask.hpp"
#include "emit/runtime/triton/launch.hpp"
#include "emit/runtime/triton/refused_indices.hpp"
#include "emit/triton/tile_printer.hpp"
#include "lower/in_place.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

struct Printed {
  std::string kernels;
  std::set<std::string> helpers;
};

bool reads_windows(const Program& program) {
  return std::any_of(program.tiles.begin(), program.tiles.end(), triton::has_windows);
}

bool gives_roles(const Program& program) {
  return std::any_of(program.tiles.begin(), program.tiles.end(), triton::has_consumers);
}

constexpr std::string_view kWindowMemory = R"(def window_memory(size, alignment, stream):
    """Where kernels describe the windows through which they read their operands."""
    return torch.empty(size, dtype=torch.int8, device="cuda")
)";

Printed print_all(const Program& program) {
  Printed printed;
  for (const auto& lowered : program.lowered) {
    triton::TileKernel kernel = triton::print_tile_kernel(lowered->program);
    if (!printed.kernels.empty()) printed.kernels += "\n\n";
    printed.kernels += kernel.source;
    printed.helpers.merge(kernel.helpers);
  }
  for (const triton::LastBlockReduction& reduction : triton::last_block_reductions(program))
    printed.kernels += "\n\n" + triton::last_block_function(program, reduction);
  return printed;
}

// Products are rounded before they are added, as they are between two of PyTorch's kernels: a · b − c · d is 0 where
// both products are the same.
constexpr std::string_view kFusion = "enable_fp_fusion";

// One launchable function: what a launch passes to it and compiles it with.
struct Launchable {
  std::string name;
  std::vector<triton::PointerParameter> pointers;
  std::vector<triton::ConstantParameter> constants = {};
  std::vector<std::string> sizes = {};  // whole numbers
  bool looks_up = false;                // and notes indices out of range
  bool counts = false;                  // its programs, as they end
  bool together = false;                // its blocks wait for each other
  int warps = 4, max_registers = 0;     // 0: as Triton likes
  std::string_view fusion = "False";
};

Launchable launchable(const tile::Program& tiles) {
  Launchable one{.name = tiles.name,
                 .pointers = triton::pointers_of(tiles),
                 .looks_up = !triton::sizes_held_against(tiles).empty(),
                 .together = tile::waits_for_grid(tiles),
                 .warps = tiles.warps,
                 .max_registers = tiles.max_registers,
                 .fusion = tiles.contracts ? "True" : "False"};
  for (const tile::SymbolInfo& symbol : tiles.symbols)
    if (symbol.kind == tile::SymbolKind::kSize) one.sizes.push_back(symbol.name);
  if (triton::converts_float8(tiles)) one.constants.push_back({triton::kHardwareFloat8Constant, 1});
  return one;
}

Launchable launchable(const Program& program, const triton::LastBlockReduction& reduction) {
  Launchable one = launchable(program.lowered[reduction.first]->program);
  one.name = reduction.name;
  one.pointers = triton::pointers_of(program, reduction);
  one.constants = triton::constants_of(program, reduction);
  one.counts = true;
  return one;
}

bool asks_hardware(const triton::ConstantParameter& constant) {
  return constant.name.ends_with(triton::kHardwareFloat8Constant);
}

// Items behind a head, in rows below each other.
std::string in_rows(const std::string& head, const std::vector<std::string>& items, const std::string& tail) {
  std::string out, row = head;
  for (size_t one = 0; one < items.size(); ++one) {
    const bool last = one + 1 == items.size();
    if (row.size() + items[one].size() + (last ? tail.size() : 1) > python::kLongestLine) {
      out += row.substr(0, row.size() - 1) + "\n";
      row = std::string(head.size(), ' ');
    }
    row += items[one] + (last ? "" : ", ");
  }
  return out + row + tail + "\n";
}

std::string signature_of(const Launchable& one) {
  std::vector<std::string> pointers, constants, aligned;
  for (const triton::PointerParameter& pointer : one.pointers) {
    pointers.push_back(fmt::format("\"{}\": \"{}\"", pointer.name, triton::pointer_name(pointer.dtype)));
    if (pointer.aligned) aligned.push_back(fmt::format("\"{}\"", pointer.name));
  }
  if (one.looks_up) {
    pointers.push_back(fmt::format("\"{}\": \"*i64\"", triton::kRefusedPointer));
    aligned.push_back(fmt::format("\"{}\"", triton::kRefusedPointer));
  }
  if (one.counts) {
    pointers.push_back(fmt::format("\"{}\": \"*i32\"", triton::kEndedPointer));
    aligned.push_back(fmt::format("\"{}\"", triton::kEndedPointer));
  }
  for (const std::string& size : one.sizes) pointers.push_back(fmt::format("\"{}\": \"i32\"", size));
  std::string from_capability;
  for (const triton::ConstantParameter& constant : one.constants) {
    constants.push_back(asks_hardware(constant) ? fmt::format("\"{}\": True", constant.name)
                                                : fmt::format("\"{}\": {}", constant.name, constant.value));
    if (asks_hardware(constant))
      from_capability += fmt::format("{}\"{}\": {}", from_capability.empty() ? "" : ", ", constant.name,
                                     triton::kHardwareFloat8Capability);
  }
  // As in the launch, to the letter: then what is compiled ahead is what Triton's cache is asked for.
  std::string options;
  if (one.max_registers > 0) options += fmt::format(" \"maxnreg\": {},", one.max_registers);
  options += fmt::format(" \"{}\": {},", kFusion, one.fusion);
  if (!from_capability.empty()) options += fmt::format(" \"true_from_sm\": {{{}}},", from_capability);
  const std::string types = fmt::format("    {{\"kernel\": \"{}\", \"signature\": {{{}}}, \"constexprs\": {{{}}},\n",
                                        one.name, join(pointers, ", "), join(constants, ", "));
  const std::string rest = fmt::format("     \"num_warps\": {},{} \"divisible_by_16\": [{}]}},\n", one.warps, options,
                                       join(aligned, ", "));
  return (types.size() <= python::kLongestLine + 1
              ? types
              : fmt::format("    {{\"kernel\": \"{}\",\n", one.name) +
                    in_rows("     \"signature\": {", pointers, "},") +
                    fmt::format("     \"constexprs\": {{{}}},\n", join(constants, ", "))) +
         (rest.size() <= python::kLongestLine + 1 ? rest
                                                  : fmt::format("     \"num_warps\": {},{}\n", one.warps, options) +
                                                        in_rows("     \"divisible_by_16\": [", aligned, "]},"));
}

// A launch of a kernel that takes tensors alone.
std::string call(const std::string& kernel, const Shape& grid, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {kernel, python::tuple(grid)});
  return python::wrapped_call("launch(", arguments, ")") + "\n";
}

std::string moved(const std::string& tensor, int64_t offset) {
  return offset == 0 ? tensor : fmt::format("{0}.as_strided((1,), (1,), {0}.storage_offset() + {1})", tensor, offset);
}

// What a launch passes for the tensors of a step.
std::vector<std::string> tensors_of(const Program& program, const TileStep& step) {
  std::vector<std::string> arguments;
  for (size_t at = 0; at < step.tensors.size(); ++at) {
    const int64_t offset = at < step.offsets.size() ? step.offsets[at] : 0;
    const DType dtype = program.tiles[step.program].buffers[at].dtype;
    arguments.push_back(moved(step.tensors[at], offset) + (is_eight_bit_float(dtype) ? ".view(torch.uint8)" : ""));
  }
  return arguments;
}

// What is launched for a step, `last` with it, and the tensors that it takes.
std::pair<Launchable, std::vector<std::string>> with_last(const Program& program, const TileStep& step, Launchable one,
                                                          const TileStep* last) {
  std::vector<std::string> arguments = tensors_of(program, step);
  if (!last) return {std::move(one), std::move(arguments)};
  const auto all = triton::last_block_reductions(program);
  const triton::LastBlockReduction& reduction = triton::last_block_reduction(all, step, *last);
  const std::vector<std::string> of_last = tensors_of(program, *last);
  for (size_t at = 0; at < of_last.size(); ++at)
    if (reduction.shared[at] < 0) arguments.push_back(of_last[at]);
  return {launchable(program, reduction), std::move(arguments)};
}

// `noted`: the kernel that notes indices out of range. `size`: the run-time size that it takes; empty: none.
std::vector<std::string> with_options(const Launchable& one, std::vector<std::string> arguments,
                                      const std::string& noted, const std::string& size = "") {
  if (one.looks_up) arguments.push_back(triton::refused_argument(noted));
  if (one.counts) arguments.emplace_back("ended_programs(device)");
  if (!size.empty()) arguments.push_back(size);
  for (const triton::ConstantParameter& constant : one.constants)
    arguments.push_back(asks_hardware(constant) ? fmt::format("{}={}()", constant.name, triton::kHardwareFloat8)
                                                : fmt::format("{}={}", constant.name, constant.value));
  arguments.push_back(fmt::format("num_warps={}", one.warps));
  if (one.max_registers > 0) arguments.push_back(fmt::format("maxnreg={}", one.max_registers));
  if (one.together) arguments.emplace_back("launch_cooperative_grid=True");
  arguments.push_back(fmt::format("{}={}", kFusion, one.fusion));
  return arguments;
}

class TritonPrinter : public TargetPrinter {
 public:
  std::string device_text() const override {
    return "\"cpu\" if os.environ.get(\"TRITON_INTERPRET\") == \"1\" else \"cuda\"  # Triton's interpreter works on "
           "CPU "
           "tensors";
  }
  bool runs_ahead() const override { return true; }
  bool reads_before_it_writes(const lower::Lowered& lowered, int read, int written) const override {
    return lower::reads_before_it_writes_on_gpu(lowered.program, read, written);
  }

  bool launches_by_address() const override { return true; }
  bool needs_alignment(const lower::Lowered& lowered, int buffer) const override {
    return triton::has_window_on(lowered.program, buffer);
  }
  std::string launch_functions(const Program& program, bool splits_scratch) const override {
    return triton::launch_functions(program, splits_scratch);
  }

  std::string imports(const Program& program) const override {
    return "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n" +
           std::string(gives_roles(program) ? triton::kGluonImports : "");
  }

  std::string kernels(const Program& program) const override {
    const Printed printed = print_all(program);
    std::string text = printed.helpers.empty() ? "" : triton::helper_definitions(printed.helpers);
    for (const std::string& part :
         {triton::keep_mask_definition(program), printed.kernels,
          std::string(reads_windows(program) ? kWindowMemory : ""), triton::refused_definitions(program)})
      if (!part.empty()) text += (text.empty() ? "" : "\n\n") + part;
    return text;
  }

  std::vector<std::string> kernels_by_hand(const Program& program) const override {
    if (triton::keep_mask_definition(program).empty()) return {};
    return {triton::kKeepMaskKernel};
  }

  std::string function(const Program& program, const TileStep& step, const TileStep* last) const override {
    return last ? triton::last_block_reduction(triton::last_block_reductions(program), step, *last).name
                : program.tiles[step.program].name;
  }

  std::string launch(const Program& program, const TileStep& step, const TileStep* last) const override {
    const tile::Program& tiles = program.lowered[step.program]->program;
    const std::vector<int64_t> grid = triton::grid_of(tiles);
    if (std::find(grid.begin(), grid.end(), 0) != grid.end()) return "";
    auto [one, arguments] = with_last(program, step, launchable(tiles), last);
    arguments = with_options(one, arguments, tiles.name, step.repetition ? step.repetition->size : "");
    if (triton::takes_tensors_alone(step)) return call(one.name, grid, arguments);
    return python::wrapped_call(fmt::format("{}[{}](", one.name, python::tuple(grid)), arguments, ")") + "\n";
  }

  std::string prologue(const Program& program) const override {
    return reads_windows(program) ? "triton.set_allocator(window_memory)\n" : "";
  }

  std::string host_checks(const Program& program) const override { return triton::raise_refused(program); }

  // Programs that wait for each other must all be able to run at once: two fit a multiprocessor however many registers
  // they take.
  std::string requirements(const Program& program) const override {
    int64_t together = 0;
    for (const tile::Program& tiles : program.tiles) {
      // One block to a multiprocessor, for they may take all of it.
      if (tile::waits_for_grid(tiles)) together = std::max(together, triton::blocks_of(tiles));
      if (const int64_t blocks = tile::blocks_of_row(tiles); blocks > 1)
        together = std::max(together, triton::multiprocessors_for_row(tiles));
    }
    if (together == 0)
      return gives_roles(program) ? "if DEVICE == \"cpu\":\n    return \"its kernels' warps have work of their own, "
                                    "which the interpreter "
                                    "does not know\"\n"
                                  : "";
    return fmt::format(
        "if DEVICE == \"cpu\":\n    return \"its kernels' programs wait for each other, and the interpreter runs one "
        "at a time\"\n"
        "if torch.cuda.get_device_properties(tensors[0].device).multi_processor_count < {0}:\n"
        "    return \"it was made for a GPU with at least {0} multiprocessors\"\n",
        together);
  }

  std::string trailer(const Program& program) const override {
    const std::string masks = triton::keep_mask_signatures(program);
    if (program.tiles.empty() && masks.empty()) return "KERNEL_SIGNATURES = []\n";
    std::string out =
        "# What each kernel is compiled for, so that a tool can do so without a GPU.\nKERNEL_SIGNATURES = [\n";
    // Programs that are only launched with another have no entry of their own.
    std::set<int> by_last, alone;
    for (size_t index = 0; index < program.steps.size(); ++index) {
      const bool together = is_by_last(program.steps[index]) ||
                            (index + 1 < program.steps.size() && is_by_last(program.steps[index + 1]));
      if (const auto* tiles = std::get_if<TileStep>(&program.steps[index]))
        (together ? by_last : alone).insert(tiles->program);
    }
    for (int tiles = 0; tiles < static_cast<int>(program.tiles.size()); ++tiles)
      if (alone.contains(tiles) || !by_last.contains(tiles))
        out += signature_of(launchable(program.lowered[tiles]->program));
    for (const triton::LastBlockReduction& one : triton::last_block_reductions(program))
      out += signature_of(launchable(program, one));
    return out + masks + "]\n";
  }
};

}  // namespace

std::unique_ptr<TargetPrinter> make_triton_printer() { return std::make_unique<TritonPrinter>(); }

}  // namespace kw
