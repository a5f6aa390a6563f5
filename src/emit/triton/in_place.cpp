#include "emit/triton/in_place.hpp"

#include <algorithm>

#include "emit/tile_in_place.hpp"

namespace kw::triton {

using namespace kernel_ir;

namespace {

constexpr int64_t kThreadsOfWarp = 32;

// Whether each element of a load over the whole tile is one thread's alone. Where a tile has fewer elements than its
// program has threads, several read
// the same one, and one of them may do so after another has written it.
bool is_read_once(const Kernel& kernel, const std::vector<bool>& axes) {
  int64_t lanes = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) lanes *= kernel.axes[axis].block;
  return lanes >= kThreadsOfWarp * kernel.num_warps;
}

// Does nothing but the store of `written` follow from what is read, so that it does not matter what other threads
// find there? `folds`: it is folded.
struct Readers {
  bool folds = false, others = false;
};
Readers readers_of(const Kernel& kernel, int read, int written) {
  Readers readers;
  std::vector<bool> depends(kernel.exprs.size(), false);
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    depends[id] = expr.kind == ExprKind::kLoad && expr.access.buffer == read;
    for (ExprId operand : expr.operands) depends[id] = depends[id] || depends[operand];
    readers.folds = readers.folds || (depends[id] && expr.kind == ExprKind::kReduce);
  }
  for (const Store& store : kernel.stores)
    readers.others = readers.others || (store.access.buffer != written && depends[store.value]);
  return readers;
}

}  // namespace

bool reads_before_it_writes(const Kernel& kernel, int read, int written) {
  const auto loads = [&](const Stmt& statement) {
    return statement.kind == StmtKind::kLet && kernel.exprs[statement.expr].kind == ExprKind::kLoad &&
           kernel.exprs[statement.expr].access.buffer == read;
  };
  const auto stores = [&](const Stmt& statement) {
    return statement.kind == StmtKind::kStore && kernel.stores[statement.store].access.buffer == written;
  };
  bool stored = false;
  for (const Stmt& statement : kernel.body) {
    if (std::any_of(statement.body.begin(), statement.body.end(),
                    [&](const Stmt& inner) { return loads(inner) || stores(inner); }))
      return false;
    if (stored && loads(statement)) return false;
    stored = stored || stores(statement);
  }
  const auto store = std::find_if(kernel.stores.begin(), kernel.stores.end(),
                                  [&](const Store& one) { return one.access.buffer == written; });
  const Readers readers = readers_of(kernel, read, written);
  return stored && !readers.folds && (!readers.others || is_read_once(kernel, axes_of_access(kernel, store->access)));
}

bool reads_before_it_writes(const tile::Program& program, int read, int written) {
  const ReadFirst first = reads_first(program, read, written);
  if (!first.holds || !first.others) return first.holds;
  int64_t points = 1;
  for (const tile::Instruction& one : program.body)
    if (one.kind == tile::Kind::kStore && one.access.buffer == written)
      for (tile::Symbol lane : tile::lanes_of(program, one.access)) points *= tile::width_of(program, lane);
  return points >= kThreadsOfWarp * program.warps;
}

}  // namespace kw::triton
