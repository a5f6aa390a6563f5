#include "lower/memory_operands.hpp"

#include <algorithm>

#include "lower/lane_order.hpp"
#include "lower/loop_tree.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

class OperandFinder {
 public:
  explicit OperandFinder(const tile::Program& program)
      : program_(program), uses_(program.values.size()), stored_(program.buffers.size()) {
    tile::for_each(program.body, [&](const Instruction& one) {
      for_each_use(one, [&](Value value, Use) { ++uses_[value]; });
      if (one.kind == Kind::kStore) stored_[one.access.buffer] = true;
    });
  }

  std::vector<bool> run() const {
    std::vector<bool> found(program_.values.size());
    look_at(program_.body, found);
    return found;
  }

 private:
  void look_at(const std::vector<Instruction>& body, std::vector<bool>& found) const {
    for (size_t place = 0; place < body.size(); ++place) {
      look_at(body[place].body, found);
      look_at(body[place].otherwise_body, found);
      if (body[place].kind != Kind::kDot) continue;
      for (size_t before = 0; before < place; ++before)
        if (is_operand(body[before], body[place])) found[body[before].results[0]] = true;
    }
  }

  bool is_operand(const Instruction& load, const Instruction& dot) const {
    if (load.kind != Kind::kLoad || load.mode != tile::CopyMode::kPlain || load.access.mask != tile::kNoValue)
      return false;
    const Value value = load.results[0];
    const tile::TileType& type = program_.values[value].type;
    const tile::Buffer& buffer = program_.buffers[load.access.buffer];
    const Symbol column = column_of(program_, dot);
    const bool is_spread = column >= 0 && type.lanes.size() == 2 && !tile::has_lane(type.lanes, column) &&
                           (dot.operands[1] == value || dot.operands[2] == value);
    if (!is_spread || uses_[value] != 1 || type.dtype != DType::f32 ||
        program_.values[dot.results[0]].type.dtype != DType::f32)
      return false;
    if (buffer.role != tile::BufferRole::kInput || buffer.dtype != DType::f32 || stored_[load.access.buffer])
      return false;
    const auto is_counted = [](const tile::Coordinate& at) { return at.value == tile::kNoValue; };
    const auto has_distance = [&](Symbol lane) {
      const auto stride = tile::stride_along(program_, load.access, lane);
      return stride && kernel::as_constant(*stride);
    };
    return std::all_of(load.access.coordinates.begin(), load.access.coordinates.end(), is_counted) &&
           std::all_of(type.lanes.begin(), type.lanes.end(), has_distance);
  }

  const tile::Program& program_;
  std::vector<int> uses_;     // [value]
  std::vector<bool> stored_;  // [buffer]
};

}  // namespace

std::vector<bool> find_memory_operands(const tile::Program& program) { return OperandFinder(program).run(); }

}  // namespace kw::lower
