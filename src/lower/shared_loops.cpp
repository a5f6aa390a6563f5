#include "lower/shared_loops.hpp"

#include <algorithm>
#include <iterator>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;

bool is_shared(const Instruction& one) { return one.kind == Kind::kFor && one.shared; }

// The one shared loop of the body, if what stands before it only computes, and nothing stands behind it.
Instruction* shared_inside(std::vector<Instruction>& body) {
  if (body.empty() || !is_shared(body.back())) return nullptr;
  const bool computes = std::all_of(body.begin(), body.end() - 1, [](const Instruction& one) {
    return one.kind == Kind::kConstant || one.kind == Kind::kIndex || one.kind == Kind::kOp || one.kind == Kind::kLoad;
  });
  return computes ? &body.back() : nullptr;
}

void join(Instruction& loop) {
  Instruction* inner = shared_inside(loop.body);
  if (!inner) return;
  inner->body.insert(inner->body.begin(), std::make_move_iterator(loop.body.begin()),
                     std::make_move_iterator(loop.body.end() - 1));
  loop.body.erase(loop.body.begin(), loop.body.end() - 1);
  join(loop.body[0]);
}

}  // namespace

void join_shared_loops(tile::Program& program) {
  for (Instruction& one : program.body)
    if (is_shared(one)) join(one);
}

int shared_together(const Instruction& loop) {
  if (!is_shared(loop)) return 0;
  return 1 + (loop.body.size() == 1 ? shared_together(loop.body[0]) : 0);
}

}  // namespace kw::lower
