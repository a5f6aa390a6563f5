#include "emit/triton/tile_roots.hpp"

#include <algorithm>

namespace kw::triton {
namespace {

using tile::Instruction;
using tile::Kind;

constexpr double kLeastEpsilon = 1e-30;

struct Walk {
  std::vector<bool> epsilons, sums;  // [value]

  void body(const std::vector<Instruction>& instructions) {
    for (const Instruction& one : instructions) {
      if (one.kind == Kind::kConstant) epsilons[one.results[0]] = one.number >= kLeastEpsilon;
      if (one.kind == Kind::kOp && one.op == tile::ScalarOp::kAdd)
        sums[one.results[0]] = std::any_of(one.operands.begin(), one.operands.end(),
                                           [&](tile::Value operand) { return epsilons[operand]; });
      body(one.body);
      body(one.otherwise_body);
    }
  }
};

}  // namespace

std::vector<bool> sums_with_epsilon(const tile::Program& program) {
  Walk walk{std::vector<bool>(program.values.size()), std::vector<bool>(program.values.size())};
  walk.body(program.body);
  return walk.sums;
}

}  // namespace kw::triton
