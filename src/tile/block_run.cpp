#include "tile/block_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.hpp"
#include "tile/folds.hpp"
#include "tile/text.hpp"

namespace kw::tile {
namespace {

using kernel::Number;
using kernel::Numbers;

void resize(DType dtype, Numbers& numbers, int64_t count) {
  if (kernel::is_real(dtype)) numbers.reals.resize(static_cast<size_t>(count));
  else numbers.wholes.resize(static_cast<size_t>(count));
}

Number get(DType dtype, const Numbers& numbers, int64_t place) {
  if (kernel::is_real(dtype)) return {numbers.reals[place], 0};
  return {0.0, numbers.wholes[place]};
}

void set(DType dtype, Numbers& numbers, int64_t place, const Number& number) {
  if (kernel::is_real(dtype)) numbers.reals[place] = number.real;
  else numbers.wholes[place] = number.whole;
}

// What a load yields where its mask does not hold.
Number otherwise_of(DType dtype, double number, bool rounds) {
  const Number given{number, 0};
  Number result = kernel::apply(ScalarOp::kCast, DType::f64, dtype, &given);
  if (kernel::is_real(dtype) && rounds) result.real = kernel::round_to(dtype, result.real);
  return kernel::is_real(dtype) ? result : Number{0.0, kernel::wrap_to(dtype, result.whole)};
}

std::vector<Symbol> with_lanes(std::vector<Symbol> lanes, const std::vector<Symbol>& more) {
  for (const Symbol lane : more)
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
  return lanes;
}

std::vector<Symbol> without_lanes(const std::vector<Symbol>& lanes, const std::vector<Symbol>& gone) {
  std::vector<Symbol> left;
  for (const Symbol lane : lanes)
    if (std::find(gone.begin(), gone.end(), lane) == gone.end()) left.push_back(lane);
  return left;
}

}  // namespace

BlockRun::BlockRun(World& world, int number, std::vector<int64_t> symbols)
    : world_(world), number_(number), symbols_(std::move(symbols)), values_(world.program.values.size()) {
  for (const Buffer& buffer : world.program.buffers) {
    shared_.emplace_back();
    if (buffer.space != Space::kShared) continue;
    shared_.back() = std::make_unique<Storage>(buffer, symbols_);
    shared_.back()->fill_unwritten();
  }
}

void BlockRun::run(const std::vector<Instruction>& body) {
  for (const Instruction& instruction : body) run(instruction);
}

void BlockRun::run(const Instruction& instruction) {
  switch (instruction.kind) {
    case Kind::kDefine: return run_define(instruction);
    case Kind::kConstant: return run_constant(instruction);
    case Kind::kIndex: return run_index(instruction);
    case Kind::kOp: return run_op(instruction);
    case Kind::kRelabel:
    case Kind::kSplit: return run_renamed(instruction);
    case Kind::kStack: return run_stack(instruction);
    case Kind::kUnstack: return run_unstack(instruction);
    case Kind::kLoad: return run_load(instruction);
    case Kind::kStore: return run_store(instruction);
    case Kind::kCopy: return run_copy(instruction);
    case Kind::kWait:
      if (instruction.awaited == Awaited::kCopies) wait(instruction.pending);
      return;
    case Kind::kRelease:
    case Kind::kSkip: return;  // a block runs by itself, and its products at once
    case Kind::kMove: values_[instruction.results[0]] = values_[instruction.operands[0]]; return;
    case Kind::kDot: return run_dot(instruction);
    case Kind::kFold: return run_fold(instruction);
    case Kind::kScan: return run_scan(instruction);
    case Kind::kFor: return run_loop(instruction);
    case Kind::kIf: {
      const bool holds = condition_of(instruction);
      run(holds ? instruction.body : instruction.otherwise_body);
      return take_yields(instruction, holds);
    }
    case Kind::kBarrier: return pass_barrier();
  }
}

// --- Control ---

std::vector<int64_t> BlockRun::iterations_of(const Instruction& loop) const {
  std::vector<int64_t> values;
  int64_t end = kernel::evaluate(loop.end, symbols_);
  if (loop.until != kNoValue) end = std::min(end, values_[loop.until].wholes[0]);
  for (int64_t value = kernel::evaluate(loop.begin, symbols_); value < end; value += loop.step) values.push_back(value);
  if (loop.reversed) std::reverse(values.begin(), values.end());
  return values;
}

void BlockRun::enter(const Instruction& loop) {
  for (size_t i = 0; i < loop.operands.size(); ++i) values_[loop.arguments[i]] = values_[loop.operands[i]];
  loops_.push_back(&loop);
}

void BlockRun::end_iteration(const Instruction& loop) {
  // All are read before any is set: a yield may be another one's argument.
  std::vector<Numbers> next;
  for (const Value yield : loop.yields) next.push_back(values_[yield]);
  for (size_t i = 0; i < next.size(); ++i) values_[loop.arguments[i]] = std::move(next[i]);
}

void BlockRun::leave(const Instruction& loop) {
  for (size_t i = 0; i < loop.results.size(); ++i) values_[loop.results[i]] = values_[loop.arguments[i]];
  loops_.pop_back();
}

void BlockRun::run_loop(const Instruction& loop) {
  const std::vector<int64_t> iterations = iterations_of(loop);
  const int64_t around = iteration_;
  if (loop.shared && around == 0) first_iteration_ = iterations_ + 1;
  enter(loop);
  for (int64_t value : iterations) {
    begin_iteration(loop, value);
    if (loop.shared) iteration_ = ++iterations_;
    run(loop.body);
    end_iteration(loop);
  }
  leave(loop);
  iteration_ = around;
}

bool BlockRun::condition_of(const Instruction& branch) const { return values_[branch.operands[0]].wholes[0] != 0; }

void BlockRun::take_yields(const Instruction& branch, bool holds) {
  const std::vector<Value>& yields = holds ? branch.yields : branch.otherwise_yields;
  for (size_t i = 0; i < branch.results.size(); ++i) values_[branch.results[i]] = values_[yields[i]];
}

void BlockRun::pass_barrier() {
  for (const auto& storage : shared_)
    if (storage) storage->pass_barrier();
}

void BlockRun::fail(const Instruction& instruction, std::string_view message, const std::string& more) const {
  std::string at;
  const auto add = [&](Symbol symbol) {
    at += fmt::format("{}{} = {}", at.empty() ? "" : ", ", world_.program.symbols[symbol].name, symbols_[symbol]);
  };
  for (size_t symbol = 0; symbol < symbols_.size(); ++symbol)
    if (world_.program.symbols[symbol].kind == SymbolKind::kSize) add(static_cast<Symbol>(symbol));
  for (const Symbol symbol : world_.program.grid) add(symbol);
  for (const Instruction* loop : loops_) add(loop->symbol);
  at += (at.empty() || more.empty() ? "" : ", ") + more;
  throw Error(ErrorKind::kInternal,
              fmt::format("tile program '{}', '{}': {}{}", world_.program.name, print_head(world_.program, instruction),
                          message, at.empty() ? "" : " (" + at + ")"));
}

// --- Values ---

void BlockRun::finish(DType dtype, Numbers& numbers) const {
  if (!kernel::is_real(dtype)) {
    for (int64_t& whole : numbers.wholes) whole = kernel::wrap_to(dtype, whole);
  } else if (rounds() && dtype != DType::f64) {
    for (double& real : numbers.reals) real = kernel::round_to(dtype, real);
  }
}

// Indices are written out: nothing reads it.
void BlockRun::run_define(const Instruction& instruction) {
  const SymbolInfo& info = world_.program.symbols[instruction.symbol];
  for (const int64_t value : world_.points.evaluate(info.value, lanes_of(world_.program, info.value), symbols_))
    if (value < info.range.low || value > info.range.high || value != kernel::wrap_to(info.dtype, value))
      fail(instruction, fmt::format("the index is {}, which leaves its range or its type", value));
}

void BlockRun::run_constant(const Instruction& instruction) {
  const Value result = instruction.results[0];
  const int64_t count = world_.points.count(type_of(result).lanes);
  const DType dtype = type_of(result).dtype;
  Numbers numbers;
  if (kernel::is_real(dtype)) numbers.reals.assign(static_cast<size_t>(count), instruction.number);
  else numbers.wholes.assign(static_cast<size_t>(count), instruction.integer);
  finish(dtype, numbers);
  values_[result] = std::move(numbers);
}

void BlockRun::run_index(const Instruction& instruction) {
  const Value result = instruction.results[0];
  Numbers numbers;
  numbers.wholes = world_.points.evaluate(instruction.index, type_of(result).lanes, symbols_);
  finish(type_of(result).dtype, numbers);
  values_[result] = std::move(numbers);
}

void BlockRun::run_op(const Instruction& instruction) {
  constexpr size_t kMostOperands = 3;
  const Value result = instruction.results[0];
  const TileType& type = type_of(result);
  const size_t arity = instruction.operands.size();
  // A select's first operand is its condition: its type is the others'.
  const DType operand_type = type_of(instruction.operands[instruction.op == ScalarOp::kSelect ? 1 : 0]).dtype;
  const int64_t count = world_.points.count(type.lanes);
  const int64_t* places[kMostOperands] = {};
  const Numbers* operands[kMostOperands] = {};
  DType dtypes[kMostOperands] = {};
  for (size_t i = 0; i < arity; ++i) {
    const TileType& of_operand = type_of(instruction.operands[i]);
    places[i] = world_.points.places(type.lanes, of_operand.lanes).data();
    operands[i] = &values_[instruction.operands[i]];
    dtypes[i] = of_operand.dtype;
  }
  Numbers numbers;
  resize(type.dtype, numbers, count);
  Number at[kMostOperands];
  for (int64_t point = 0; point < count; ++point) {
    for (size_t i = 0; i < arity; ++i) at[i] = get(dtypes[i], *operands[i], places[i][point]);
    set(type.dtype, numbers, point, kernel::apply(instruction.op, operand_type, type.dtype, at));
  }
  finish(type.dtype, numbers);
  values_[result] = std::move(numbers);
}

// --- Memory ---

Storage& BlockRun::storage_of(const Access& access) {
  Storage* common = world_.storages[access.buffer];
  return common ? *common : *shared_[access.buffer];
}

void BlockRun::fail_at_point(const Instruction& instruction, const Access& access, std::string_view message,
                             const std::vector<Symbol>& lanes, int64_t point) const {
  const std::vector<int64_t> positions = world_.points.positions(lanes, point);
  std::string at;
  for (size_t i = 0; i < lanes.size(); ++i)
    at += fmt::format("{}{} = {}", at.empty() ? "" : ", ", world_.program.symbols[lanes[i]].name, positions[i]);
  fail(instruction, fmt::format("an element of '{}' {}", world_.program.buffers[access.buffer].name, message), at);
}

std::vector<int64_t> BlockRun::elements_of(const Instruction& instruction, const Access& access,
                                           const std::vector<Symbol>& lanes) {
  const Storage& storage = storage_of(access);
  const size_t count = static_cast<size_t>(world_.points.count(lanes));
  std::vector<int64_t> elements(count, 0);
  std::vector<bool> masked(count, false);
  const bool may_leave = instruction.kind != Kind::kCopy && instruction.mode == CopyMode::kBulk;
  if (access.mask != kNoValue) {
    const std::vector<int64_t>& places = world_.points.places(lanes, type_of(access.mask).lanes);
    for (size_t point = 0; point < count; ++point) masked[point] = values_[access.mask].wholes[places[point]] == 0;
  }
  for (size_t dimension = 0; dimension < access.coordinates.size(); ++dimension) {
    const Coordinate& coordinate = access.coordinates[dimension];
    std::vector<int64_t> at = world_.points.evaluate(coordinate.index, lanes, symbols_);
    if (coordinate.value != kNoValue) {
      const std::vector<int64_t>& places = world_.points.places(lanes, type_of(coordinate.value).lanes);
      for (size_t point = 0; point < count; ++point) at[point] += values_[coordinate.value].wholes[places[point]];
    }
    const int64_t extent = storage.shape()[dimension], stride = storage.strides()[dimension];
    for (size_t point = 0; point < count; ++point) {
      if (masked[point]) continue;
      const bool inside = at[point] >= 0 && at[point] < extent;
      if (!inside && may_leave) masked[point] = true;
      else if (!inside)
        fail_at_point(instruction, access,
                      fmt::format("is outside: dimension {} is {}, the coordinate {}", dimension, extent, at[point]),
                      lanes, static_cast<int64_t>(point));
      elements[point] += at[point] * stride;
    }
  }
  for (size_t point = 0; point < count; ++point)
    if (masked[point]) elements[point] = -1;
  return elements;
}

void BlockRun::run_load(const Instruction& instruction) {
  const Value result = instruction.results[0];
  const TileType& type = type_of(result);
  Storage& storage = storage_of(instruction.access);
  const std::vector<int64_t> elements = elements_of(instruction, instruction.access, type.lanes);
  const Number otherwise = otherwise_of(type.dtype, instruction.access.otherwise, rounds());
  Numbers numbers;
  resize(type.dtype, numbers, static_cast<int64_t>(elements.size()));
  for (size_t point = 0; point < elements.size(); ++point) {
    Number number = otherwise;
    if (elements[point] >= 0)
      if (const std::string_view fault = storage.read(elements[point], number_, number); !fault.empty())
        fail_at_point(instruction, instruction.access, fault, type.lanes, static_cast<int64_t>(point));
    set(type.dtype, numbers, static_cast<int64_t>(point), number);
  }
  values_[result] = std::move(numbers);
}

void BlockRun::run_store(const Instruction& instruction) {
  const Value stored = instruction.operands[0];
  const TileType& type = type_of(stored);
  Storage& storage = storage_of(instruction.access);
  const std::vector<Symbol> lanes = with_lanes(type.lanes, lanes_of(world_.program, instruction.access));
  const std::vector<int64_t> elements = elements_of(instruction, instruction.access, lanes);
  const std::vector<int64_t>& places = world_.points.places(lanes, type.lanes);
  const int64_t moment = ++world_.moment;
  for (size_t point = 0; point < elements.size(); ++point) {
    if (elements[point] < 0) continue;
    const Number number = get(type.dtype, values_[stored], places[point]);
    std::string_view fault = instruction.combines
                                 ? storage.combine(elements[point], number_, instruction.reduce, number, rounds())
                                 : storage.write(elements[point], number_, moment, number);
    if (instruction.in_order && fault.empty()) fault = storage.take_turn(elements[point], iteration_, first_iteration_);
    if (!fault.empty()) fail_at_point(instruction, instruction.access, fault, lanes, static_cast<int64_t>(point));
  }
}

void BlockRun::run_copy(const Instruction& instruction) {
  Storage &source = storage_of(instruction.access), &destination = storage_of(instruction.destination);
  const std::vector<int64_t> from = elements_of(instruction, instruction.access, instruction.lanes);
  const std::vector<int64_t> to = elements_of(instruction, instruction.destination, instruction.lanes);
  const Number otherwise = otherwise_of(source.dtype(), instruction.access.otherwise, rounds());
  const int64_t moment = ++world_.moment;
  CopyUnderWay copy{&destination, to, {}};
  for (size_t point = 0; point < to.size(); ++point) {
    Number number = otherwise;
    std::string_view fault;
    if (from[point] >= 0) fault = source.read(from[point], number_, number);
    if (!fault.empty())
      fail_at_point(instruction, instruction.access, fault, instruction.lanes, static_cast<int64_t>(point));
    const bool plain = instruction.mode == CopyMode::kPlain;
    fault = plain ? destination.write(to[point], number_, moment, number) : destination.begin_copy(to[point]);
    if (!fault.empty())
      fail_at_point(instruction, instruction.destination, fault, instruction.lanes, static_cast<int64_t>(point));
    if (!plain) copy.values.push_back(number);
  }
  if (instruction.mode != CopyMode::kPlain) under_way_.push_back(std::move(copy));
}

void BlockRun::wait(int pending) {
  while (static_cast<int64_t>(under_way_.size()) > pending) {
    const CopyUnderWay& copy = under_way_.front();
    for (size_t i = 0; i < copy.elements.size(); ++i) copy.destination->end_copy(copy.elements[i], copy.values[i]);
    under_way_.pop_front();
  }
}

// --- Folds ---

void BlockRun::run_dot(const Instruction& instruction) {
  const Value sum = instruction.operands[0], a = instruction.operands[1], b = instruction.operands[2];
  const TileType &type = type_of(sum), &a_type = type_of(a), &b_type = type_of(b);
  const std::vector<Symbol> summed = without_lanes(a_type.lanes, type.lanes);
  const std::vector<int64_t>&a_bases = world_.points.places(type.lanes, a_type.lanes),
        &b_bases = world_.points.places(type.lanes, b_type.lanes);
  DotLine line;
  line.a_steps = world_.points.places(summed, a_type.lanes);
  line.b_steps = world_.points.places(summed, b_type.lanes);
  Numbers result = values_[sum];
  const auto for_each_line = [&](auto& numbers, const auto& dot) {
    for (size_t point = 0; point < numbers.size(); ++point) {
      line.a_base = a_bases[point];
      line.b_base = b_bases[point];
      numbers[point] = dot(numbers[point]);
    }
  };
  if (!kernel::is_real(type.dtype)) {
    for_each_line(result.wholes,
                  [&](int64_t start) { return dot_of_wholes(start, values_[a].wholes, values_[b].wholes, line); });
  } else if (!rounds() || type.dtype == DType::f64) {
    for_each_line(result.reals,
                  [&](double start) { return dot_in_double(start, values_[a].reals, values_[b].reals, line); });
  } else {
    std::vector<double> left = values_[a].reals, right = values_[b].reals;
    if (instruction.precision == DotPrecision::kTf32) {
      for (double& number : left) number = kernel::round_to_tf32(number);
      for (double& number : right) number = kernel::round_to_tf32(number);
    }
    for_each_line(result.reals, [&](double start) { return dot_in_float(start, left, right, line); });
  }
  finish(type.dtype, result);
  values_[instruction.results[0]] = std::move(result);
}

void BlockRun::run_renamed(const Instruction& instruction) {
  std::vector<Symbol> lanes = type_of(instruction.operands[0]).lanes;  // with the new ones in the place of the old
  const auto found = std::find(lanes.begin(), lanes.end(), instruction.from);
  *found = instruction.kind == Kind::kRelabel ? instruction.to : instruction.lanes[0];
  if (instruction.kind == Kind::kSplit) lanes.insert(found + 1, instruction.lanes[1]);
  const Numbers& operand = values_[instruction.operands[0]];
  Numbers result;
  for (const int64_t place : world_.points.places(type_of(instruction.results[0]).lanes, lanes)) {
    if (!operand.reals.empty()) result.reals.push_back(operand.reals[place]);
    if (!operand.wholes.empty()) result.wholes.push_back(operand.wholes[place]);
  }
  values_[instruction.results[0]] = std::move(result);
}

// The lane is the last of the stacked tile's: the fastest.
void BlockRun::run_stack(const Instruction& instruction) {
  Numbers result;
  const Numbers& first = values_[instruction.operands[0]];
  for (size_t point = 0; point < std::max(first.reals.size(), first.wholes.size()); ++point)
    for (const Value operand : instruction.operands) {
      const Numbers& part = values_[operand];
      if (!part.reals.empty()) result.reals.push_back(part.reals[point]);
      if (!part.wholes.empty()) result.wholes.push_back(part.wholes[point]);
    }
  values_[instruction.results[0]] = std::move(result);
}

void BlockRun::run_unstack(const Instruction& instruction) {
  const Numbers stacked = values_[instruction.operands[0]];
  const size_t count = instruction.results.size();
  for (size_t at = 0; at < count; ++at) {
    Numbers& part = values_[instruction.results[at]] = {};
    for (size_t point = at; point < stacked.reals.size(); point += count) part.reals.push_back(stacked.reals[point]);
    for (size_t point = at; point < stacked.wholes.size(); point += count) part.wholes.push_back(stacked.wholes[point]);
  }
}

void BlockRun::run_fold(const Instruction& instruction) {
  constexpr size_t kMostComponents = 2;
  const TileType& of_operand = type_of(instruction.operands[0]);
  const std::vector<Symbol>& left = type_of(instruction.results[0]).lanes;
  std::vector<const Numbers*> operands;
  for (const Value operand : instruction.operands) operands.push_back(&values_[operand]);
  Line line{operands, 0, world_.points.places(instruction.lanes, of_operand.lanes)};
  const std::vector<int64_t>& bases = world_.points.places(left, of_operand.lanes);
  std::vector<Numbers> results(instruction.results.size());
  for (size_t i = 0; i < results.size(); ++i)
    resize(type_of(instruction.results[i]).dtype, results[i], static_cast<int64_t>(bases.size()));
  Number components[kMostComponents];
  std::vector<int64_t> sources;
  for (size_t point = 0; point < bases.size(); ++point) {
    line.base = bases[point];
    if (moves_elements(instruction.reduce, operands.size())) {
      source_line(instruction.reduce, of_operand.dtype, line, false, sources);
      for (size_t i = 0; i < results.size(); ++i)
        components[i] = line.at(type_of(instruction.operands[i]).dtype, i, sources.back());
    } else {
      components[0] = fold_line(instruction.reduce, of_operand.dtype, line, rounds());
    }
    for (size_t i = 0; i < results.size(); ++i)
      set(type_of(instruction.results[i]).dtype, results[i], static_cast<int64_t>(point), components[i]);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    finish(type_of(instruction.results[i]).dtype, results[i]);
    values_[instruction.results[i]] = std::move(results[i]);
  }
}

void BlockRun::run_scan(const Instruction& instruction) {
  const TileType& of_operand = type_of(instruction.operands[0]);
  const std::vector<Symbol> others = without_lanes(of_operand.lanes, {instruction.from});
  std::vector<const Numbers*> operands;
  for (const Value operand : instruction.operands) operands.push_back(&values_[operand]);
  Line line{operands, 0, world_.points.places({instruction.from}, of_operand.lanes)};
  std::vector<Numbers> results(instruction.results.size());
  for (size_t i = 0; i < results.size(); ++i)
    resize(type_of(instruction.results[i]).dtype, results[i],
           world_.points.count(type_of(instruction.results[i]).lanes));
  std::vector<Number> scanned;
  std::vector<int64_t> sources;
  const size_t running = scanned_operands(instruction);
  const bool goes_on = instruction.way == ScanWay::kAfter;
  int64_t row = 0;
  for (const int64_t base : world_.points.places(others, of_operand.lanes)) {
    line.base = base;
    Number before[2];
    for (size_t i = 0; goes_on && i < running; ++i) {
      const DType dtype = type_of(instruction.operands[i]).dtype;
      const Numbers& met = *operands[running + i];
      before[i] = kernel::is_real(dtype) ? Number{met.reals[row], 0} : Number{0.0, met.wholes[row]};
    }
    const auto give = [&](size_t i, size_t at, const Number& number) {
      const DType dtype = type_of(instruction.operands[i]).dtype;
      set(dtype, results[i], base + line.steps[at], number);
      if (goes_on && at == (instruction.reversed ? 0 : line.steps.size() - 1))
        set(dtype, results[running + i], row, number);
    };
    if (moves_elements(instruction.reduce, running)) {
      source_line(instruction.reduce, of_operand.dtype, line, instruction.reversed, sources);
      for (size_t at = 0; at < sources.size(); ++at) {
        const bool stays = goes_on && stands_after(instruction.reduce, of_operand.dtype, line, sources[at], before);
        for (size_t i = 0; i < running; ++i)
          give(i, at, stays ? before[i] : line.at(type_of(instruction.operands[i]).dtype, i, sources[at]));
      }
    } else {
      if (instruction.way == ScanWay::kNetwork) network_line(of_operand.dtype, line, rounds(), scanned);
      else
        scan_line(instruction.reduce, of_operand.dtype, line, instruction.reversed, rounds(),
                  goes_on ? before : nullptr, scanned);
      for (size_t at = 0; at < scanned.size(); ++at) give(0, at, scanned[at]);
    }
    ++row;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    finish(type_of(instruction.results[i]).dtype, results[i]);
    values_[instruction.results[i]] = std::move(results[i]);
  }
}

}  // namespace kw::tile
