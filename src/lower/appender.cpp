#include "lower/appender.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kw::lower {
namespace {

std::string unique(const tile::Program& program, const std::string& name) {
  const auto taken = [&](const std::string& wanted) {
    const auto is_it = [&](const auto& info) { return info.name == wanted; };
    return std::any_of(program.symbols.begin(), program.symbols.end(), is_it) ||
           std::any_of(program.buffers.begin(), program.buffers.end(), is_it) ||
           std::any_of(program.values.begin(), program.values.end(), is_it);
  };
  std::string free = name;
  for (int count = 2; taken(free); ++count) free = fmt::format("{}_{}", name, count);
  return free;
}

}  // namespace

tile::Value Appender::emit(tile::Instruction instruction, const std::string& name, tile::TileType type) {
  const tile::Value made = value(name, std::move(type));
  instruction.results = {made};
  program_.body.push_back(std::move(instruction));
  return made;
}

tile::Value Appender::value(const std::string& name, tile::TileType type) {
  program_.values.push_back({unique(program_, name), std::move(type)});
  return static_cast<tile::Value>(program_.values.size()) - 1;
}

tile::Value Appender::op(tile::ScalarOp op, std::vector<tile::Value> operands, const std::string& name,
                         tile::TileType type) {
  tile::Instruction one;
  one.kind = tile::Kind::kOp;
  one.op = op;
  one.operands = std::move(operands);
  return emit(std::move(one), name, std::move(type));
}

tile::Symbol Appender::symbol(tile::SymbolInfo info) {
  info.name = unique(program_, info.name);
  program_.symbols.push_back(std::move(info));
  return static_cast<tile::Symbol>(program_.symbols.size()) - 1;
}

std::string Appender::free_name(const std::string& name) const { return unique(program_, name); }

const tile::Instruction* Appender::maker_of(tile::Value value) const {
  for (const tile::Instruction& one : program_.body)
    if (one.results.size() == 1 && one.results[0] == value) return &one;
  return nullptr;
}

}  // namespace kw::lower
