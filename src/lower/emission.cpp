#include "lower/emission.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "support/error.hpp"

namespace kw::lower {

using kernel::ScalarOp;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::TileType;
using tile::Value;

std::vector<Symbol> united(std::vector<Symbol> left, const std::vector<Symbol>& right) {
  left.insert(left.end(), right.begin(), right.end());
  std::sort(left.begin(), left.end());
  left.erase(std::unique(left.begin(), left.end()), left.end());
  return left;
}

Emission::Emission(tile::Program& program) : program_(program), scopes_(1) {
  for (const tile::SymbolInfo& symbol : program.symbols) names_[symbol.name] = 1;
  for (const tile::Buffer& buffer : program.buffers) names_[buffer.name] = 1;
}

void Emission::open(Symbol loop_variable) {
  scopes_.emplace_back();
  scopes_.back().variable = loop_variable;
}

std::vector<Instruction> Emission::close() {
  KW_ASSERT(scopes_.size() > 1, "no loop is open");
  std::vector<Instruction> code = std::move(scopes_.back().code);
  scopes_.pop_back();
  return code;
}

std::vector<Instruction> Emission::finish() {
  KW_ASSERT(scopes_.size() == 1, "a loop is left open");
  return std::move(scopes_.back().code);
}

int Emission::depth_of(const tile::Index& index) const {
  int depth = 0;
  for (size_t i = 1; i < scopes_.size(); ++i)
    if (kernel::uses(index, scopes_[i].variable)) depth = static_cast<int>(i);
  return depth;
}

std::string Emission::unique(const std::string& name) {
  const std::string wanted = name.empty() ? "value" : name;
  const bool is_buffer = std::any_of(program_.buffers.begin(), program_.buffers.end(),
                                     [&](const tile::Buffer& buffer) { return buffer.name == wanted; });
  const std::string base = is_buffer ? wanted + "_tile" : wanted;  // of a tensor, what a block holds
  const int times = ++names_[base];
  if (times == 1) return base;
  const std::string numbered = fmt::format("{}_{}", base, times);
  return names_.contains(numbered) ? unique(base) : (names_[numbered] = 1, numbered);
}

// Names and types are taken by value: the caller's may stand in the program, whose values grow meanwhile.
// NOLINTBEGIN(performance-unnecessary-value-param)

Value Emission::define(std::string name, TileType type) {
  program_.values.push_back({unique(name), std::move(type)});
  depths_.push_back(depth());
  return static_cast<Value>(program_.values.size()) - 1;
}

std::string Emission::signature(const Instruction& one, const std::vector<TileType>& types) const {
  const kernel::IndexWords words{[&](Symbol symbol) { return program_.symbols[symbol].name; }};
  std::string text = fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(one.kind), static_cast<int>(one.op),
                                 static_cast<int>(one.reduce), one.reversed, std::bit_cast<uint64_t>(one.number),
                                 one.integer, one.from, one.to);
  text += fmt::format(" {} {} {} {}", fmt::join(one.operands, ","), fmt::join(one.lanes, ","),
                      kernel::print_index(one.index, words), static_cast<int>(one.precision)) +
          fmt::format(" {}", static_cast<int>(one.way));
  text += fmt::format(" {} {} {} {}", static_cast<int>(one.mode), one.access.buffer, one.access.mask,
                      std::bit_cast<uint64_t>(one.access.otherwise));
  for (const tile::Coordinate& coordinate : one.access.coordinates)
    text += fmt::format(" [{} {}]", kernel::print_index(coordinate.index, words), coordinate.value);
  for (const TileType& type : types) text += fmt::format(" {}:{}", name_of(type.dtype), fmt::join(type.lanes, ","));
  return text;
}

std::vector<Value> Emission::add(Instruction instruction, const std::vector<TileType>& types, std::string name) {
  return add(std::move(instruction), types, std::vector<std::string>(types.size(), name));
}

std::vector<Value> Emission::add(Instruction instruction, const std::vector<TileType>& types,
                                 const std::vector<std::string>& names) {
  int depth = depth_of(instruction.index);
  for (Value operand : instruction.operands) depth = std::max(depth, depths_[operand]);
  if (instruction.access.mask != tile::kNoValue) depth = std::max(depth, depths_[instruction.access.mask]);
  for (const tile::Coordinate& coordinate : instruction.access.coordinates) {
    depth = std::max(depth, depth_of(coordinate.index));
    if (coordinate.value != tile::kNoValue) depth = std::max(depth, depths_[coordinate.value]);
  }
  const std::string key = signature(instruction, types);
  Scope& scope = scopes_[depth];
  if (const auto found = scope.known.find(key); found != scope.known.end()) return found->second;
  for (size_t result = 0; result < types.size(); ++result) {
    instruction.results.push_back(define(names[result], types[result]));
    depths_.back() = depth;
  }
  scope.known.emplace(key, instruction.results);
  if (instruction.kind == Kind::kConstant || instruction.kind == Kind::kLoad || instruction.kind == Kind::kOp)
    made_[instruction.results[0]] = instruction;
  scope.code.push_back(std::move(instruction));
  return scope.code.back().results;
}

void Emission::add_here(Instruction instruction) { scopes_.back().code.push_back(std::move(instruction)); }

Value Emission::constant(TileType type, double number) {
  Instruction instruction;
  instruction.kind = Kind::kConstant;
  if (is_floating(type.dtype)) instruction.number = number;
  else instruction.integer = static_cast<int64_t>(number);
  return add(std::move(instruction), {type}, number == 0.0 ? "zero" : "constant")[0];
}

DType Emission::type_for(std::initializer_list<tile::Index> indices) const {
  for (const tile::Index& index : indices) {
    const kernel::Interval range = kernel::range_of(index, tile::ranges_of(program_));
    if (range.low < INT32_MIN || range.high > INT32_MAX) return DType::i64;
  }
  return DType::i32;
}

Value Emission::index(const tile::Index& index, DType dtype) {
  Instruction instruction;
  if (const auto number = kernel::as_constant(index)) {
    instruction.kind = Kind::kConstant;
    instruction.integer = *number;
    return add(std::move(instruction), {{dtype, {}}}, "constant")[0];
  }
  instruction.kind = Kind::kIndex;
  instruction.index = index;
  return add(std::move(instruction), {{dtype, tile::lanes_of(program_, index)}}, "position")[0];
}

Value Emission::op(ScalarOp op, std::vector<Value> operands, DType dtype, std::string name) {
  std::vector<Symbol> lanes;
  for (Value operand : operands) lanes = united(std::move(lanes), type(operand).lanes);
  Instruction instruction;
  instruction.kind = Kind::kOp;
  instruction.op = op;
  instruction.operands = std::move(operands);
  return add(std::move(instruction), {{dtype, std::move(lanes)}},
             name.empty() ? std::string(kernel::name_of(op)) : name)[0];
}

// NOLINTEND(performance-unnecessary-value-param)

Value Emission::cast(Value value, DType dtype) {
  return type(value).dtype == dtype ? value : op(ScalarOp::kCast, {value}, dtype, program_.values[value].name);
}

Value Emission::broadcast(Value value, const std::vector<Symbol>& lanes) {
  if (type(value).lanes == lanes) return value;
  const DType dtype = type(value).dtype;
  if (const auto found = made_.find(value); found != made_.end() && found->second.kind == Kind::kConstant) {
    Instruction wider = found->second;
    wider.results.clear();
    return add(std::move(wider), {{dtype, lanes}}, program_.values[value].name)[0];
  }
  return op(ScalarOp::kSelect, {constant({DType::b1, lanes}, 1), value, constant({dtype, {}}, 0)}, dtype,
            program_.values[value].name);
}

bool Emission::is_zero_where_masked(Value value) const {
  const auto found = made_.find(value);
  return found != made_.end() && found->second.kind == Kind::kLoad && found->second.access.otherwise == 0.0;
}

Value Emission::both(Value left, Value right) {
  if (left == tile::kNoValue) return right;
  if (right == tile::kNoValue) return left;
  return op(ScalarOp::kLogicalAnd, {left, right}, DType::b1, "inside");
}

}  // namespace kw::lower
