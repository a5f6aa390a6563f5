#include "plan/moved_offsets.hpp"

#include <algorithm>

#include "kernel/digits.hpp"
#include "tile/text.hpp"

namespace kw::plan {
namespace {

constexpr int64_t kAligned = 16;

// Elements of a buffer that is a row of a known number of them; 0: it is none.
int64_t row_length(const tile::Buffer& buffer) {
  return buffer.shape.size() == 1 ? kernel::as_constant(buffer.shape[0]).value_or(0) : 0;
}

bool is_element_access(const tile::Instruction& one) {
  return one.kind == tile::Kind::kLoad || one.kind == tile::Kind::kStore;
}

// [buffer] Is it a row of elements of which every access is a load or a store of single ones? The engine that copies
// boxes leaves out what lies beyond a buffer, whose length then says what is computed.
std::vector<bool> rows_of_elements(const tile::Program& program) {
  std::vector<bool> rows;
  for (const tile::Buffer& buffer : program.buffers)
    rows.push_back(row_length(buffer) > 0 && buffer.space == tile::Space::kGlobal);
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.access.buffer >= 0 && (!is_element_access(one) || one.mode == tile::CopyMode::kBulk))
      rows[one.access.buffer] = false;
    if (one.destination.buffer >= 0) rows[one.destination.buffer] = false;
  });
  return rows;
}

}  // namespace

MovedOffsets with_offsets_moved(tile::Program program) {
  MovedOffsets moved{std::move(program), {}};
  auto& buffers = moved.program.buffers;
  const std::vector<bool> rows = rows_of_elements(moved.program);
  std::vector<int64_t> least(buffers.size(), -1);
  tile::for_each(moved.program.body, [&](const tile::Instruction& one) {
    if (!is_element_access(one) || !rows[one.access.buffer]) return;
    int64_t& start = least[one.access.buffer];
    const int64_t constant = std::max<int64_t>(0, one.access.coordinates[0].index.constant);
    start = start < 0 ? constant : std::min(start, constant);
  });
  for (size_t at = 0; at < buffers.size(); ++at) {
    const bool moves = rows[at] && least[at] > 0 && least[at] < row_length(buffers[at]);
    moved.offsets.push_back(moves ? least[at] : 0);
    if (!moves) continue;
    buffers[at].shape[0] = row_length(buffers[at]) - least[at];
    if (least[at] * size_of(buffers[at].dtype) % kAligned != 0) buffers[at].alignment = size_of(buffers[at].dtype);
  }
  tile::for_each_mutable(moved.program.body, [&](tile::Instruction& one) {
    if (is_element_access(one) && moved.offsets[one.access.buffer] > 0)
      one.access.coordinates[0].index.constant -= moved.offsets[one.access.buffer];
  });
  return moved;
}

std::string identity_of(tile::Program program) {
  program.name = "k";
  program.doc.clear();
  const std::vector<bool> rows = rows_of_elements(program);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    program.buffers[i].name = "b" + std::to_string(i);
    if (rows[i]) program.buffers[i].shape[0] = 1;
  }
  for (size_t i = 0; i < program.values.size(); ++i) program.values[i].name = "v" + std::to_string(i);
  return tile::print_program(program);
}

void shorten_rows(tile::Program& program, const tile::Program& other) {
  const std::vector<bool> rows = rows_of_elements(program);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i]) program.buffers[i].shape[0] = std::min(row_length(program.buffers[i]), row_length(other.buffers[i]));
}

}  // namespace kw::plan
