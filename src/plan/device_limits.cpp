#include "plan/device_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/error.hpp"
#include "tile/consumers.hpp"

namespace kw::plan {

namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

constexpr int64_t kRegistersOfBlock = 65536;
constexpr int64_t kCopied = 4;  // bytes: the least that one asynchronous copy moves

int64_t bytes_of(const tile::Program& program, Value value) {
  return tile::bytes_of(program, program.values[value].type);
}

// What consumers and their producer hold: the boxes of all stages, a tile for each result that the engine stores, and
// two barriers a stage (src/emit/triton/consumers.cpp). Where they take blocks in turn, a tile of sums besides, in
// which both move theirs to where they are stored from.
int64_t bytes_of_consumers(const tile::Program& program) {
  constexpr int64_t kBarrier = 8;
  const Instruction& loop = tile::consuming_loop(program);
  int64_t stores = 0;
  for (const Instruction& one : program.body)
    if (one.kind == Kind::kStore && one.mode == tile::CopyMode::kBulk)
      stores += bytes_of(program, one.operands.front()) * program.consumers.count;
  const bool in_turn = program.consumers.along < 0;
  const int64_t sums = in_turn ? bytes_of(program, loop.results.front()) : 0;
  return loop.stages * (tile::bytes_of_stage(program) + 2 * kBarrier) + stores + sums;
}

// Of one iteration: what is loaded for dots. Numbers of four bytes and more are copied to shared memory whatever
// becomes of them before they are multiplied; smaller ones may be loaded to registers where they are computed with.
int64_t operand_bytes(const tile::Program& program, const Instruction& loop) {
  std::map<Value, const Instruction*> made;
  for (const Instruction& one : loop.body)
    for (const Value result : one.results) made[result] = &one;
  std::map<const Instruction*, int64_t> bytes;
  std::set<const Instruction*> seen;
  const auto note = [&](const auto& self, Value value, bool computed) -> void {
    const auto found = made.find(value);
    if (found == made.end()) return;
    const Instruction* one = found->second;
    if (one->kind == Kind::kLoad) {
      const tile::TileType& type = program.values[one->results.front()].type;
      if (!computed || (type.lanes.size() > 1 && size_of(type.dtype) >= kCopied))
        bytes[one] = tile::bytes_of(program, type);
      return;
    }
    const bool same = one->kind == Kind::kRelabel || one->kind == Kind::kSplit;
    if (one->kind == Kind::kDot || !seen.insert(one).second) return;
    for (const Value operand : one->operands) self(self, operand, computed || !same);
  };
  for (const Instruction& one : loop.body) {
    if (one.kind != Kind::kDot) continue;
    for (const size_t side : {1, 2}) note(note, one.operands.at(side), false);
  }
  int64_t total = 0;
  for (const auto& [load, size] : bytes) total += size;
  return total;
}

[[noreturn]] void refuse(const tile::Program& program, const DeviceDescription& device, const std::string& what) {
  throw Error(ErrorKind::kUser, {.message = fmt::format("kernel '{}' cannot run on {}: a block {}", program.name,
                                                        device.name.empty() ? "the device" : device.name, what),
                                 .where = {},
                                 .source = {},
                                 .hint = "Take smaller blocks, or fewer stages or warps.",
                                 .detail = {},
                                 .code = "bad-schedule"});
}

}  // namespace

int64_t least_shared_bytes(const tile::Program& program) {
  if (program.consumers.count > 1) return bytes_of_consumers(program);
  int64_t own = 0, operands = 0;
  for (const tile::Buffer& buffer : program.buffers) {
    if (buffer.space != tile::Space::kShared) continue;
    int64_t size = size_of(buffer.dtype);
    for (const tile::Index& extent : buffer.shape) size *= kernel::as_constant(extent).value_or(0);
    own += size;
  }
  tile::for_each(program.body, [&](const Instruction& one) {
    if (one.kind != Kind::kFor) return;
    // The compiler may have the iteration that computes give its place to the last one that loads.
    const int64_t iterations = kernel::range_of(tile::iterations_of(program, one), tile::ranges_of(program)).high;
    const int64_t in_flight = std::clamp<int64_t>(one.stages - 1, 1, std::max<int64_t>(iterations, 1));
    operands = std::max(operands, operand_bytes(program, one) * in_flight);
  });
  return own + operands;
}

void check_limits(const tile::Program& program, const DeviceDescription& device) {
  if (device.shared_bytes <= 0) return;
  if (const int64_t threads = int64_t{32} * program.warps * program.consumers.count; threads > device.threads)
    refuse(
        program, device,
        fmt::format("has {} warps, which are {} threads, and {} are the most", threads / 32, threads, device.threads));
  if (const int64_t bytes = least_shared_bytes(program); bytes > device.shared_bytes)
    refuse(program, device,
           fmt::format("needs {} bytes of shared memory at least, and has {}", bytes, device.shared_bytes));
  if (const int64_t registers = int64_t{32} * program.warps * program.max_registers; registers > kRegistersOfBlock)
    refuse(program, device,
           fmt::format("asks for {} registers of {} threads each, {}, and has {}", program.max_registers,
                       32 * program.warps, registers, kRegistersOfBlock));
}

}  // namespace kw::plan
