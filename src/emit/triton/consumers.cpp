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

int64_t bytes_of(const tile::Program& program, const tile::TileType& type) {
  int64_t bytes = size_of(type.dtype);
  for (const tile::Symbol lane : type.lanes) bytes *= tile::width_of(program, lane);
  return bytes;
}

}  // namespace

ConsumerText::ConsumerText(const tile::Program& program, const IndexText& indices, const TileWindows& windows)
    : program_(program),
      indices_(indices),
      windows_(windows),
      loop_(tile::consuming_loop(program)),
      left_in_registers_(tile::left_in_registers(program)) {
  KW_ASSERT(program.consumers.registers > 0, "the step 'consumers' has been taken");
  for (const Instruction& one : loop_.body) {
    if (one.kind == Kind::kLoad) loads_.push_back(&one);
    if (one.kind == Kind::kDot) dots_.push_back(&one);
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

std::string ConsumerText::last_stage() const {
  return fmt::format("({} - 1) % {}", program_.consumers.programs > 0 ? step_ : iterations(), loop_.stages);
}

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
  const tile::TileType& sums = program_.values[dots_[0]->results[0]].type;
  std::vector<std::string> lines = consumer_lines(program_, indices_);
  lines.push_back(
      fmt::format("{}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[{}, 1], "
                  "instr_shape=[16, {}, 16])",
                  layout_, program_.warps, tile::width_of(program_, sums.lanes[1])));
  if (in_turn()) lines.push_back(fmt::format("{}: gl.constexpr = {}", store_layout_, layout_of_stores()));
  if (std::find(left_in_registers_.begin(), left_in_registers_.end(), true) != left_in_registers_.end())
    lines.push_back(fmt::format("{}: gl.constexpr = gl.DotOperandLayout(0, {}, 2)", left_layout_, layout_));
  return lines;
}

int64_t ConsumerText::groups_of_blocks() const {
  int64_t groups = 1;
  for (const tile::Symbol symbol : program_.grid)
    groups *= kernel::as_constant(tile::launched_along(program_, symbol)).value();
  return groups;
}

const std::string& ConsumerText::number_of_group() const {
  return program_.symbols[tile::number_of_block(program_)].name;
}

// A program's blocks, or, of a consumer that takes them in turn, its own. What is copied counts on, whoever multiplies.
std::vector<std::string> ConsumerText::walk() const {
  if (program_.consumers.programs == 0) return {};
  const int64_t count = program_.consumers.count;
  if (in_turn())
    return {fmt::format("{} = {}", number_, consumer_), fmt::format("{} = {} * {}", step_, consumer_, iterations()),
            fmt::format("for {} in range(tl.program_id(0) + {} * tl.num_programs(0), {}, {} * tl.num_programs(0)):",
                        number_of_group(), consumer_, groups_of_blocks(), count)};
  return {
      fmt::format("{} = 0", step_),
      fmt::format("for {} in range(tl.program_id(0), {}, tl.num_programs(0)):", number_of_group(), groups_of_blocks())};
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

std::vector<std::string> ConsumerText::begin_iteration() const {
  return {fmt::format("{} = {} % {}", stage_, number_of_iteration(), loop_.stages),
          fmt::format("{} = {} // {} % 2", turn_, number_of_iteration(), loop_.stages),
          fmt::format("hopper.mbarrier.wait({}.index({}), {})", ready_, stage_, turn_)};
}

std::string ConsumerText::loaded(const Instruction& load) const {
  const std::string place = tile::is_of_consumer(program_, load)
                                ? fmt::format("{} * {} + {}", stage_, program_.consumers.count, consumer_)
                                : stage_;
  const std::string text = fmt::format("{}.index({})", name_of_places(load), place);
  std::vector<std::string> widths;
  const tile::TileType& type = program_.values[load.results[0]].type;
  for (const tile::Symbol lane : type.lanes) widths.push_back(std::to_string(tile::width_of(program_, lane)));
  const bool is_matrix = windows_.of(load).lanes.size() == widths.size();
  const std::string matrix = is_matrix ? text : fmt::format("{}.reshape({})", text, list(widths));
  return left_in_registers_[load.results[0]] ? fmt::format("{}.load({})", matrix, left_layout_) : matrix;
}

std::string ConsumerText::layout_of(tile::Value value) const {
  const std::vector<tile::Symbol>& lanes = program_.values[value].type.lanes;
  if (left_in_registers_[value] && !lanes.empty())
    return lanes.size() == 1 ? fmt::format("gl.SliceLayout(1, {})", left_layout_) : left_layout_;
  if (lanes != program_.values[dots_[0]->results[0]].type.lanes) return "";
  const bool starts = std::count(loop_.operands.begin(), loop_.operands.end(), value) > 0;
  return starts || !in_turn() ? layout_ : store_layout_;
}

std::string ConsumerText::to_rows_of_sums(const std::string& text) const {
  return fmt::format("gl.convert_layout({}, gl.SliceLayout(1, {}))", text, layout_);
}

bool ConsumerText::moves(const Instruction& user, tile::Value operand) const {
  return left_in_registers_[operand] && !left_in_registers_[user.results[0]] &&
         !program_.values[operand].type.lanes.empty();
}

std::vector<std::string> ConsumerText::behind_loop() const {
  std::vector<std::string> lines;
  if (in_turn())
    lines = {fmt::format("hopper.mbarrier.arrive({}.index({}), count=1)", done_, consumer_),
             fmt::format("{} += 2", number_)};
  if (program_.consumers.run_on) {
    for (size_t place = 0; place < loop_.results.size(); ++place)
      if (is_sum(loop_.yields[place])) lines.push_back(wait(loop_.results[place], 0));
    lines.push_back(arrival(last_stage()));
  }
  if (in_turn()) {
    // The other's iterations are counted, too.
    lines.push_back(fmt::format("{} += {}", step_, iterations()));
    for (size_t place = 0; place < loop_.results.size(); ++place)
      if (is_sum(loop_.yields[place]))
        lines.push_back(fmt::format("{0} = gl.convert_layout({0}, {1})", program_.values[loop_.results[place]].name,
                                    store_layout_));
  }
  for (size_t place = 0; place < loop_.results.size(); ++place) {
    const std::string& name = program_.values[loop_.results[place]].name;
    if (left_in_registers_[loop_.arguments[place]])
      lines.push_back(fmt::format("{} = {}", name, to_rows_of_sums(name)));
  }
  return lines;
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

bool ConsumerText::is_added_to(const Instruction& dot) const {
  const tile::Value sum = dot.results[0];
  const auto adds = [&](const Instruction* other) { return other->operands[0] == sum; };
  const auto uses = [&](const Instruction& one) { return std::count(one.operands.begin(), one.operands.end(), sum); };
  long used = std::count(loop_.yields.begin(), loop_.yields.end(), sum);
  for (const Instruction& one : loop_.body) used += uses(one);
  return used == 1 && std::any_of(dots_.begin(), dots_.end(), adds);
}

bool ConsumerText::is_sum(tile::Value value) const {
  return std::any_of(dots_.begin(), dots_.end(), [&](const Instruction* dot) { return dot->results[0] == value; });
}

std::string ConsumerText::arrival(const std::string& stage, const std::string& condition) const {
  const std::string only = condition.empty() ? "" : ", pred=" + condition;
  return fmt::format("hopper.mbarrier.arrive({}.index({}), count=1{})", free_, stage, only);
}

std::string ConsumerText::wait(tile::Value sum, size_t left_under_way) const {
  return fmt::format("{0} = hopper.warpgroup_mma_wait({1}, deps=[{0}])", program_.values[sum].name, left_under_way);
}

void ConsumerText::starts(const Instruction& dot) {
  if (!is_added_to(dot)) under_way_.push_back(&dot);
}

std::vector<std::string> ConsumerText::waits_before(const Instruction* user) {
  const auto wants = [&](const Instruction* dot) {
    return !user || std::count(user->operands.begin(), user->operands.end(), dot->results[0]) > 0;
  };
  if (std::none_of(under_way_.begin(), under_way_.end(), wants)) return {};
  if (program_.consumers.run_on) {
    under_way_.clear();
    std::vector<std::string> lines;
    for (const Instruction* dot : dots_) lines.push_back(wait(dot->results[0], dots_.size()));
    const std::string before = fmt::format("({} + {}) % {}", stage_, loop_.stages - 1, loop_.stages);
    lines.push_back(arrival(
        before, fmt::format("{} > {}", program_.symbols[loop_.symbol].name, indices_.spelled(loop_.begin, {}))));
    return lines;
  }
  std::vector<std::string> lines;
  for (const Instruction* dot : under_way_) {
    lines.push_back(wait(dot->results[0], 0));
    if (dot == dots_.back()) lines.push_back(arrival(stage_));
  }
  under_way_.clear();
  return lines;
}

// Where each thread has its part of what is stored.
std::string ConsumerText::layout_of_stores() const {
  const tile::Consumers& consumers = program_.consumers;
  return consumers.stored_along == program_.values[dots_[0]->results[0]].type.lanes[1]
             ? fmt::format("gl.BlockedLayout([1, {}], [1, 32], [{}, 1], [1, 0])", consumers.stored_together,
                           program_.warps)
             : fmt::format("gl.BlockedLayout([{}, 1], [32, 1], [1, {}], [0, 1])", consumers.stored_together,
                           program_.warps);
}

std::string ConsumerText::producer() const {
  const int64_t count = program_.consumers.count;
  std::vector<std::string> parameters;
  for (const TileWindows::Window& window : windows_.all())
    if (!window.is_written) parameters.push_back(window.name);
  for (const std::string& place : places()) parameters.push_back(place);
  parameters.insert(parameters.end(), {ready_, free_});
  int64_t bytes = 0, each = 0;
  std::string of_all, of_each;
  for (const Instruction* load : loads_) {
    const bool is_of_each = tile::is_of_consumer(program_, *load);
    const std::string place = is_of_each ? fmt::format("{} * {} + {}", stage_, count, consumer_) : stage_;
    each += is_of_each;
    bytes += bytes_of(program_, program_.values[load->results[0]].type) * (is_of_each ? count : 1);
    (is_of_each ? of_each : of_all) += python::wrapped_call("hopper.tma.async_copy_global_to_shared(",
                                                            {windows_.of(*load).name, windows_.origin_text(*load),
                                                             fmt::format("{}.index({})", ready_, stage_),
                                                             fmt::format("{}.index({})", name_of_places(*load), place)},
                                                            ")") +
                                       "\n";
  }
  std::string out = definition_of(program_.name + "_producer", parameters);
  out += "    \"\"\"Copies what the consumers multiply, as soon as all have read what was there.\"\"\"\n";
  int indent = 4;
  if (program_.consumers.programs > 0)
    out += lines({fmt::format("{} = 0", step_),
                  fmt::format("for {} in range(tl.program_id(0), {}, tl.num_programs(0)):", number_of_group(),
                              groups_of_blocks())},
                 indent);
  if (program_.consumers.programs > 0) indent += 4;
  out += lines(place_lines(program_, indices_), indent);
  const std::string by = loop_.step == 1 ? "" : fmt::format(", {}", loop_.step);
  out += lines({fmt::format("for {} in range({}, {}{}):", program_.symbols[loop_.symbol].name,
                            indices_.spelled(loop_.begin, {}), indices_.spelled(loop_.end, {}), by)},
               indent);
  indent += 4;
  out += lines({fmt::format("{} = {} % {}", stage_, number_of_iteration(), loop_.stages),
                fmt::format("{} = {} // {} % 2", turn_, number_of_iteration(), loop_.stages),
                fmt::format("hopper.mbarrier.wait({}.index({}), {} ^ 1)", free_, stage_, turn_),
                fmt::format("hopper.mbarrier.expect({}.index({}), {})", ready_, stage_, bytes)},
               indent);
  out += python::indent(of_all, indent / 4);
  if (each > 0)
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
    const int64_t places = loop_.stages * (tile::is_of_consumer(program_, *load) ? count : 1);
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
