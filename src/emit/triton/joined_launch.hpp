// Two tile programs in one launch: every block runs the first, and the last block to end runs the second, which has
// one. So a sum's parts are added without a launch of their own, always in the same order.
#pragma once

#include <string>
#include <vector>

#include "emit/program.hpp"

namespace kw::triton {

struct JoinedLaunch {
  int first = 0, last = 0;  // of program.tiles
  std::vector<int> shared;  // per buffer of the last: the first's buffer that is the same tensor, or −1
  std::string name;
  bool joins(const JoinedLaunch& other) const {
    return first == other.first && last == other.last && shared == other.shared;
  }
};

// Those of all steps, each once, in order.
std::vector<JoinedLaunch> joined_launches(const Program& program);

// The one for these two steps, found among `all`.
const JoinedLaunch& joined_launch(const std::vector<JoinedLaunch>& all, const TileStep& step, const TileStep& last);

// The @triton.jit function that runs both.
std::string joined_function(const Program& program, const JoinedLaunch& joined);

// Its pointers and block constants, in the order of its parameters, before the counter of programs that have ended.
struct JoinedParameter {
  std::string name;  // "x"
  DType dtype = DType::f32;
  bool aligned = true;  // divisible by 16
};
std::vector<JoinedParameter> pointers_of(const tile::Program& tiles);
std::vector<JoinedParameter> joined_pointers(const Program& program, const JoinedLaunch& joined);
struct JoinedConstant {
  std::string name;
  int64_t value;
};
std::vector<JoinedConstant> joined_constants(const Program& program, const JoinedLaunch& joined);

inline constexpr const char* kEndedPointer = "ended_ptr";

}  // namespace kw::triton
