// In which loop of a nest each expression is computed, and where the loops may start, end and skip because of folds'
// guards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/loop_nest.hpp"

namespace kw::cpu {

// What a nest of loops is for.
struct Sink {
  enum Kind { kFold, kStore, kKeep, kColumnValue } kind;
  int id;  // an expression, or a store
};

struct Placement {
  std::vector<int> depth, uses, deepest_user;  // per expression; depth 0 stands before the loops
  std::vector<bool> reached;                   // has to be computed for the sinks
};

// The innermost of `loops`, counted from 1, along which there is a difference; 0: none.
int depth_of(const std::vector<bool>& axes, const std::vector<int>& loops);
int depth_of(const kernel_ir::Guard& guard, const std::vector<int>& loops);

std::vector<bool> axes_of(const kernel_ir::Kernel& kernel, const LoopNest& nest, const kernel_ir::Store& store);
std::vector<kernel_ir::ExprId> roots_of(const kernel_ir::Kernel& kernel, const Sink& sink);
bool reads(const kernel_ir::Kernel& kernel, const Sink& sink, kernel_ir::ExprId id);  // itself, not through others
bool is_read_over_reduce_axes(const kernel_ir::Kernel& kernel, const LoopNest& nest, const std::vector<bool>& reached,
                              kernel_ir::ExprId id);
int depth_of(const kernel_ir::Kernel& kernel, const LoopNest& nest, const Sink& sink, const std::vector<int>& loops);

// The expressions that have to be computed for the sinks, down to what is available already.
using IsAvailable = std::function<bool(kernel_ir::ExprId)>;
std::vector<bool> reached_from(const kernel_ir::Kernel& kernel, const std::vector<Sink>& sinks,
                               const IsAvailable& is_available);
Placement place(const kernel_ir::Kernel& kernel, const LoopNest& nest, const std::vector<int>& loops,
                const std::vector<Sink>& sinks, const IsAvailable& is_available);

// Of what is reached, the operations that differ along the columns but not along the reduction, and that the loops over
// the reduction or the sinks read.
std::vector<Sink> column_values(const kernel_ir::Kernel& kernel, const LoopNest& nest, const std::vector<Sink>& sinks,
                                const std::vector<bool>& reached);

// Whether one of what is reached holds an index against its dimension.
bool may_refuse(const kernel_ir::Kernel& kernel, const std::vector<bool>& reached);

// The guards that every sink has, all being folds: what the loops leave out, none of them misses.
std::vector<kernel_ir::Guard> common_guards(const kernel_ir::Kernel& kernel, const std::vector<Sink>& sinks);

// Is its one use a store outside the loops?
bool is_only_stored(const kernel_ir::Kernel& kernel, const LoopNest& nest, kernel_ir::ExprId id);

// From which place on along `axis` no sink takes anything in (loop_stops.hpp).
kernel_ir::ExprId stop_of(const kernel_ir::Kernel& kernel, const std::vector<Sink>& sinks, int axis);

// The half-open range of `axis` within the guard, where the guard is a sum of it and of others; both texts empty where
// it is not.
struct Bounds {
  std::string first, end;
};
Bounds range_within(const kernel_ir::Kernel& kernel, const kernel_ir::Guard& guard, int axis, const AxisNames& names);

}  // namespace kw::cpu
