// A last-block reduction: two tile programs in one launch. Every block runs the first, and the last block to end runs
// the second, which has one block. So a sum's parts are added without a launch of their own, always in the same order.
#pragma once

#include <string>
#include <vector>

#include "emit/program.hpp"

namespace kw::triton {

struct LastBlockReduction {
  int first = 0, last = 0;  // of program.tiles
  std::vector<int> shared;  // per buffer of the last: the first's buffer that is the same tensor, or −1
  std::string name;
  bool is_same(const LastBlockReduction& other) const {
    return first == other.first && last == other.last && shared == other.shared;
  }
};

// Those of all steps, each once, in order.
std::vector<LastBlockReduction> last_block_reductions(const Program& program);

// The one for these two steps, found among `all`.
const LastBlockReduction& last_block_reduction(const std::vector<LastBlockReduction>& all, const TileStep& step,
                                               const TileStep& last);

// The @triton.jit function that runs both programs.
std::string last_block_function(const Program& program, const LastBlockReduction& reduction);

// Its pointers and block constants, in the order of its parameters, before the counter of programs that have ended.
struct PointerParameter {
  std::string name;  // "x"
  DType dtype = DType::f32;
  bool aligned = true;  // divisible by 16
};
std::vector<PointerParameter> pointers_of(const tile::Program& tiles);
std::vector<PointerParameter> pointers_of(const Program& program, const LastBlockReduction& reduction);
struct ConstantParameter {
  std::string name;
  int64_t value;
};
std::vector<ConstantParameter> constants_of(const Program& program, const LastBlockReduction& reduction);

inline constexpr const char* kEndedPointer = "ended_ptr";

}  // namespace kw::triton
