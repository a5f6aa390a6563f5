#include "emit/triton/consumers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/python_text.hpp"
#include "emit/triton/expressions.hpp"
#include "emit/triton/tile_symbols.hpp"
#include "ir/types.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tile/block_places.hpp"
#include "tile/consumers.hpp"

namespace kw::triton {

using tile::Instruction;
using tile::Kind;

namespace {

std::string list(const std::vector<std::string>& texts) { return "[" + join(texts, ", ") + "]"; }

std::string lines(const std::vector<std::string>& texts, int indent) {
  std::string out;
  for (const std::string& text : texts) out += std::string(static_cast<size_t>(indent), ' ') + text + "\n";
  return out;
}

std::string definition_of(const std::string& name, const std::vector<std::string>& parameters) {
  return "@gluon.jit\n" + python::wrapped_call(fmt::format("def {}(", name), parameters, "):") + "\n";
}

std::string gluon_type(DType dtype) { return "gl" + std::string(dtype_name(dtype).substr(2)); }

}  // namespace

ConsumerText::ConsumerText(const tile::Program& program, const IndexText& indices, const TileWindows& windows)
    : program_(program), indices_(indices), windows_(windows), loop_(tile::consuming_loop(program)) {
  KW_ASSERT(program.consumers.registers > 0, "the step 'consumers' has been taken");
  for (const Instruction& one : loop_.body) {
    if (one.kind == Kind::kLoad) loads_.push_back(&one);
    if (one.kind == Kind::kDot) sums_ = &program.values[one.results[0]].type;
  }
  for (const Instruction& one : program.body)
    if (one.kind == Kind::kStore && one.mode == tile::CopyMode::kBulk) bulk_stores_.push_back(&one);
  const tile::Symbol consumer = tile::number_of_consumer(program);
  consumer_ = consumer >= 0 ? program.symbols[consumer].name : unique("consumer");
  step_ = unique("step");
  stage_ = unique("stage");
  turn_ = unique("turn");
  ready_ = unique("ready");
  free_ = unique("free");
  layout_ = unique("layout");
  left_layout_ = unique("left_layout");
  store_layout_ = unique("store_layout");
  number_ = unique("number_of_block");
  done_ = unique("done");
}

std::string ConsumerText::unique(std::string name) const {
  while (indices_.is_taken(name)) name += "_";
  return name;
}

std::string ConsumerText::name_of_places(const Instruction& load) const {
  return unique(program_.values[load.results[0]].name + "s");
}

std::vector<std::string> ConsumerText::places() const {
  std::vector<std::string> all;
  for (const Instruction* load : loads_) all.push_back(name_of_places(*load));
  return all;
}

// Of the store's consumers, one each.
std::string ConsumerText::name_of_tiles(const Instruction& store) const {
  return unique(program_.buffers[store.access.buffer].name + "_tiles");
}

// Those that a consumer itself reads and writes.
std::vector<std::string> ConsumerText::buffers() const {
  std::set<int> used;
  tile::for_each(program_.body, [&](const Instruction& one) {
    if ((one.kind == Kind::kLoad || one.kind == Kind::kStore) && one.mode != tile::CopyMode::kBulk)
      used.insert(one.access.buffer);
  });
  std::vector<std::string> all;
  for (const int buffer : used) all.push_back(program_.buffers[buffer].name);
  return all;
}

// Where a consumer's results go, and what else it reads: buffers, and of bulk stores a window and tiles.
std::vector<std::string> ConsumerText::results() const {
  std::vector<std::string> all = buffers();
  for (const Instruction* store : bulk_stores_) {
    all.push_back(windows_.of(*store).name);
    all.push_back(name_of_tiles(*store));
  }
  return all;
}

// Of all that the program does.
std::string ConsumerText::number_of_iteration() const {
  if (program_.consumers.programs > 0) return step_;
  std::string number = program_.symbols[loop_.symbol].name;
  if (!(loop_.begin == tile::Index(0))) number = fmt::format("({} - {})", number, indices_.spelled(loop_.begin, {}));
  return loop_.step == 1 ? number : fmt::format("{} // {}", number, loop_.step);
}

std::string ConsumerText::iterations() const { return indices_.spelled(tile::iterations_of(program_, loop_), {}); }

std::vector<std::string> ConsumerText::definition() const {
  std::vector<std::string> parameters = places();
  parameters.insert(parameters.begin(), consumer_ + ": gl.constexpr");
  parameters.insert(parameters.end(), {ready_, free_});
  if (in_turn()) parameters.push_back(done_);
  for (const std::string& one : results()) parameters.push_back(one);
  std::string text = definition_of(program_.name + "_consumer", parameters);
  text.pop_back();
  return {text};
}

std::vector<std::string> ConsumerText::behind_symbols() const {
  std::vector<std::string> lines = consumer_lines(program_, indices_);
  lines.push_back(
      fmt::format("{}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{}, 1], "
                  "instr_shape=[16, {}, 16])",
                  layout_, program_.warps, tile::width_of(program_, sums_->lanes[1])));
  if (in_turn()) lines.push_back(fmt::format("{}: gl.constexpr = {}", store_layout_, layout_of_stores()));
  if (std::any_of(loads_.begin(), loads_.end(),
                  [](const Instruction* load) { return load->layout == tile::Layout::kLeft; }))
    lines.push_back(fmt::format("{}: gl.constexpr = gl.DotOperandLayout(0, {}, 2)", left_layout_, layout_));
  return lines;
}

const tile::SymbolInfo& ConsumerText::groups_of_blocks() const {
  return program_.symbols[tile::number_of_block(program_)];
}

// A program's blocks, or, of a consumer that takes them in turn, its own. What is copied counts on, whoever multiplies.
std::vector<std::string> ConsumerText::walk() const {
  if (program_.consumers.programs == 0) return {};
  const int64_t count = program_.consumers.count, groups = groups_of_blocks().range.high + 1;
  const std::string& number = groups_of_blocks().name;
  if (in_turn())
    return {fmt::format("{} = {}", number_, consumer_), fmt::format("{} = {} * {}", step_, consumer_, iterations()),
            fmt::format("for {} in range(tl.program_id(0) + {} * tl.num_programs(0), {}, {} * tl.num_programs(0)):",
                        number, consumer_, groups, count)};
  return {fmt::format("{} = 0", step_),
          fmt::format("for {} in range(tl.program_id(0), {}, tl.num_programs(0)):", number, groups)};
}

std::vector<std::string> ConsumerText::before_loop() const {
  if (!in_turn()) return {};
  const std::string other = fmt::format("{}.index(1 - {})", done_, consumer_);
  return {fmt::format("if {} > 0:", number_),
          fmt::format("    hopper.mbarrier.wait({}, ({} - 1) // 2 % 2)", other, number_)};
}

std::vector<std::string> ConsumerText::end_iteration() const {
  if (program_.consumers.programs == 0) return {};
  return {fmt::format("{} += 1", step_)};
}

std::vector<std::string> ConsumerText::stage_lines() const {
  return {fmt::format("{} = {} % {}", stage_, number_of_iteration(), loop_.stages),
          fmt::format("{} = {} // {} % 2", turn_, number_of_iteration(), loop_.stages)};
}

std::vector<std::string> ConsumerText::waits(const Instruction& one) const {
  const bool inside = &one >= loop_.body.data() && &one < loop_.body.data() + loop_.body.size();
  // The other's iterations are counted, too.
  if (one.kind == Kind::kSkip) return {fmt::format("{} += {}", step_, iterations())};
  if (one.kind == Kind::kRelease) return {release(one.pending, inside)};
  if (one.awaited == tile::Awaited::kProduct)
    return {fmt::format("{0} = hopper.warpgroup_mma_wait({1}, deps=[{0}])", program_.values[one.operands[0]].name,
                        one.pending)};
  std::vector<std::string> lines = stage_lines();
  lines.push_back(fmt::format("hopper.mbarrier.wait({}.index({}), {})", ready_, stage_, turn_));
  return lines;
}

// The iteration before the first has nothing to release.
std::string ConsumerText::release(int back, bool inside) const {
  const std::string behind = program_.consumers.programs > 0 ? step_ : iterations();
  const std::string stage = back == 0 ? stage_
                            : inside  ? fmt::format("({} + {}) % {}", stage_, loop_.stages - back, loop_.stages)
                                      : fmt::format("({} - {}) % {}", behind, back, loop_.stages);
  const std::string condition = back > 0 && inside
                                    ? fmt::format(
                                          ", pred={} > {}", program_.symbols[loop_.symbol].name,
                                          indices_.spelled(loop_.begin + tile::Index((back - 1) * loop_.step), {}))
                                    : "";
  return fmt::format("hopper.mbarrier.arrive({}.index({}), count=1{})", free_, stage, condition);
}

std::string ConsumerText::place_of(const Instruction& load) const {
  const std::string all = name_of_places(load);
  return tile::is_of_consumer(program_, load)
             ? fmt::format("{}.index({} * {} + {})", all, stage_, program_.consumers.count, consumer_)
             : fmt::format("{}.index({})", all, stage_);
}

std::string ConsumerText::loaded(const Instruction& load) const {
  const std::string text = place_of(load);
  std::vector<std::string> widths;
  const tile::TileType& type = program_.values[load.results[0]].type;
  for (const tile::Symbol lane : type.lanes) widths.push_back(std::to_string(tile::width_of(program_, lane)));
  const bool is_matrix = windows_.of(load).lanes.size() == widths.size();
  const std::string matrix = is_matrix ? text : fmt::format("{}.reshape({})", text, list(widths));
  return load.layout == tile::Layout::kLeft ? fmt::format("{}.load({})", matrix, left_layout_) : matrix;
}

std::string ConsumerText::layout_of(const Instruction& one) const {
  if (one.layout == tile::Layout::kFree) return "";
  const std::string& whole = one.layout == tile::Layout::kLeft   ? left_layout_
                             : one.layout == tile::Layout::kSums ? layout_
                                                                 : store_layout_;
  const bool is_row = program_.values[one.results[0]].type.lanes.size() == 1;
  return is_row ? fmt::format("gl.SliceLayout(1, {})", whole) : whole;
}

bool ConsumerText::is_left_by_loop(tile::Value value) const {
  return std::find(loop_.results.begin(), loop_.results.end(), value) != loop_.results.end();
}

std::vector<std::string> ConsumerText::behind_loop() const {
  if (!in_turn()) return {};
  return {fmt::format("hopper.mbarrier.arrive({}.index({}), count=1)", done_, consumer_),
          fmt::format("{} += 2", number_)};
}

std::vector<std::string> ConsumerText::stores(const Instruction& store, const std::string& tile) const {
  const std::string place = fmt::format("{}.index({})", name_of_tiles(store), consumer_);
  const TileWindows::Window& window = windows_.of(store);
  std::vector<std::string> widths;
  for (const tile::Symbol lane : program_.values[store.operands[0]].type.lanes)
    widths.push_back(std::to_string(tile::width_of(program_, lane)));
  const bool is_matrix = window.lanes.size() == widths.size();
  return {"hopper.tma.store_wait(0)",
          fmt::format("{}{}.store({})", place, is_matrix ? "" : fmt::format(".reshape({})", list(widths)), tile),
          "hopper.fence_async_shared()",
          "hopper.tma.async_copy_shared_to_global(",
          fmt::format("    {}, {}, {},", window.name, windows_.origin_text(store), place),
          ")"};
}

std::vector<std::string> ConsumerText::end() const {
  if (bulk_stores_.empty()) return {};
  return {"hopper.tma.store_wait(0)"};
}

// Where each thread has its part of what is stored.
std::string ConsumerText::layout_of_stores() const {
  const tile::Consumers& consumers = program_.consumers;
  return consumers.stored_along == sums_->lanes[1] ? fmt::format("gl.BlockedLayout([1, {}], [1, 32], [{}, 1], [1, 0])",
                                                                 consumers.stored_together, program_.warps)
                                                   : fmt::format("gl.BlockedLayout([{}, 1], [32, 1], [1, {}], [0, 1])",
                                                                 consumers.stored_together, program_.warps);
}

// An index that is the same for all consumers, by what they have in common.
tile::Index ConsumerText::common(const tile::Index& index) const {
  const auto placed = [&](tile::Symbol symbol) {
    return symbol == program_.consumers.along ? program_.symbols[symbol].value : kernel::symbol_index(symbol);
  };
  return kernel::substitute(index, placed, tile::ranges_of(program_));
}

std::string ConsumerText::producer() const {
  const int64_t count = program_.consumers.count;
  std::vector<std::string> parameters;
  for (const TileWindows::Window& window : windows_.all())
    if (!window.is_written) parameters.push_back(window.name);
  for (const std::string& place : places()) parameters.push_back(place);
  parameters.insert(parameters.end(), {ready_, free_});
  std::string of_all, of_each;
  for (const Instruction* load : loads_) {
    const bool is_of_each = tile::is_of_consumer(program_, *load);
    (is_of_each ? of_each : of_all) += python::wrapped_call(
                                           "hopper.tma.async_copy_global_to_shared(",
                                           {windows_.of(*load).name, windows_.origin_text(*load),
                                            fmt::format("{}.index({})", ready_, stage_), place_of(*load)},
                                           ")") +
                                       "\n";
  }
  std::string out = definition_of(program_.name + "_producer", parameters);
  out += "    \"\"\"Copies what the consumers multiply, as soon as all have read what was there.\"\"\"\n";
  int indent = 4;
  if (program_.consumers.programs > 0)
    out += lines({fmt::format("{} = 0", step_),
                  fmt::format("for {} in range(tl.program_id(0), {}, tl.num_programs(0)):", groups_of_blocks().name,
                              groups_of_blocks().range.high + 1)},
                 indent);
  if (program_.consumers.programs > 0) indent += 4;
  out += lines(place_lines(program_, indices_), indent);
  const std::string by = loop_.step == 1 ? "" : fmt::format(", {}", loop_.step);
  out += lines({fmt::format("for {} in range({}, {}{}):", program_.symbols[loop_.symbol].name,
                            indices_.spelled(common(loop_.begin), {}), indices_.spelled(common(loop_.end), {}), by)},
               indent);
  indent += 4;
  out += lines(stage_lines(), indent) +
         lines(
             {fmt::format("hopper.mbarrier.wait({}.index({}), {} ^ 1)", free_, stage_, turn_),
              fmt::format("hopper.mbarrier.expect({}.index({}), {})", ready_, stage_, tile::bytes_of_stage(program_))},
             indent);
  out += python::indent(of_all, indent / 4);
  if (!of_each.empty())
    out += lines({fmt::format("for {} in gl.static_range({}):", consumer_, count)}, indent) +
           lines(consumer_lines(program_, indices_), indent + 4) + python::indent(of_each, indent / 4 + 1);
  return out + lines(end_iteration(), indent);
}

std::string ConsumerText::kernel() const {
  const int64_t count = program_.consumers.count;
  std::vector<std::string> parameters, windows, copied = places(), common = places();
  for (const tile::Buffer& buffer : program_.buffers) parameters.push_back(buffer.name);
  std::string out = definition_of(program_.name, parameters);
  if (!program_.doc.empty()) out += fmt::format("    \"\"\"{}\"\"\"\n", program_.doc);
  for (const TileWindows::Window& window : windows_.all()) {
    const std::string layout = unique(window.name + "_layout");
    const DType dtype = program_.buffers[window.buffer].dtype;
    std::vector<std::string> arguments = windows_.arguments(window);
    arguments.push_back("layout=" + layout);
    out += fmt::format("    {}: gl.constexpr = gl.NVMMASharedLayout.get_default_for({}, {})\n", layout,
                       windows_.shape_text(window), gluon_type(dtype));
    out += python::indent(
        python::wrapped_call(fmt::format("{} = hopper.tma.make_tensor_descriptor(", window.name), arguments, ")") +
        "\n");
    if (!window.is_written) windows.push_back(window.name);
  }
  for (const Instruction* load : loads_) {
    const TileWindows::Window& window = windows_.of(*load);
    const int64_t places = loop_.stages * tile::boxes_of(program_, *load);
    out += fmt::format("    {} = gl.allocate_shared_memory({}, [{}, {}, {})\n", name_of_places(*load),
                       gluon_type(program_.buffers[window.buffer].dtype), places, windows_.shape_text(window).substr(1),
                       unique(window.name + "_layout"));
  }
  for (const Instruction* store : bulk_stores_) {
    const TileWindows::Window& window = windows_.of(*store);
    out += fmt::format("    {} = gl.allocate_shared_memory({}, [{}, {}, {})\n", name_of_tiles(*store),
                       gluon_type(program_.buffers[window.buffer].dtype), count, windows_.shape_text(window).substr(1),
                       unique(window.name + "_layout"));
  }
  for (const std::string& barrier : {ready_, free_})
    out += fmt::format("    {} = gl.allocate_shared_memory(gl.int64, [{}, 1], hopper.mbarrier.MBarrierLayout())\n",
                       barrier, loop_.stages);
  out += fmt::format(
      "    for {0} in gl.static_range({1}):\n        hopper.mbarrier.init({2}.index({0}), count=1)\n"
      "        hopper.mbarrier.init({3}.index({0}), count={4})\n",
      stage_, loop_.stages, ready_, free_, in_turn() ? 1 : count);
  if (in_turn())
    out += fmt::format(
        "    {0} = gl.allocate_shared_memory(gl.int64, [{1}, 1], hopper.mbarrier.MBarrierLayout())\n"
        "    for {2} in gl.static_range({1}):\n        hopper.mbarrier.init({0}.index({2}), count=1)\n",
        done_, count, consumer_);
  common.insert(common.end(), {ready_, free_});
  if (in_turn()) common.push_back(done_);
  copied.insert(copied.begin(), windows.begin(), windows.end());
  copied.insert(copied.end(), {ready_, free_});
  for (const std::string& one : results()) common.push_back(one);
  const auto part = [&](std::string_view role, const std::vector<std::string>& arguments) {
    return python::indent(python::wrapped_call(fmt::format("({}_{}, (", program_.name, role), arguments, ")),") + "\n",
                          3);
  };
  out += "    gl.warp_specialize(\n        [\n";
  for (int64_t consumer = 0; consumer < count; ++consumer) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.begin(), std::to_string(consumer));
    out += part("consumer", arguments);
  }
  out += part("producer", copied);
  std::vector<std::string> warps(static_cast<size_t>(count) - 1, std::to_string(program_.warps)),
      registers(static_cast<size_t>(count) - 1, std::to_string(program_.consumers.registers));
  warps.emplace_back("1");
  registers.push_back(std::to_string(program_.consumers.producer_registers));
  return out + fmt::format("        ],\n        {},\n        {},\n    )\n", list(warps), list(registers));
}

}  // namespace kw::triton
