#include "plan/estimate.hpp"

#include <algorithm>
#include <cmath>

#include "plan/axes.hpp"
#include "target/target.hpp"

namespace kw {

using namespace kernel_ir;

namespace {

class Counter {
 public:
  Counter(const Kernel& kernel, const DeviceDescription& device, const MemoryRules& rules)
      : kernel_(kernel), device_(device), rules_(rules) {
    arrange(kernel_);
    expr_axes_ = axes_of_exprs(kernel_);
  }

  KernelWork run() {
    find_tile();
    for (const Stmt& stmt : kernel_.body) visit(stmt, false);
    find_neighbours();
    for (const Neighbours& one : stores_) {
      const ExprId value = kernel_.stores[one.index].value;
      const bool scatters = kernel_.exprs[value].kind == ExprKind::kScatter;
      // What is folded into memory is read and written.
      add_access(*one.first, kernel_.exprs[value].dtype, scatters && !kernel_.exprs[value].overwrites ? 2 : 1, one,
                 scatters ? value : kNoExpr);
    }
    for (const Neighbours& one : loads_)
      add_access(*one.first, kernel_.exprs[one.index].dtype, work_.load_passes[one.index], one, one.index);
    count_arithmetic();
    work_.kernel = std::move(kernel_);
    return std::move(work_);
  }

 private:
  const Axis& axis(size_t index) const { return kernel_.axes[index]; }
  static double blocks_of(const Axis& axis) {
    return std::ceil(static_cast<double>(axis.extent) / static_cast<double>(std::max<int64_t>(1, axis.block)));
  }

  void find_tile() {
    for (const Axis& one : kernel_.axes) {
      work_.tile *= static_cast<double>(one.block);
      if (one.kind == AxisKind::kParallel) work_.programs *= blocks_of(one);
      else if (one.looped) steps_ *= blocks_of(one);
    }
    work_.load_passes.assign(kernel_.exprs.size(), 0);
  }

  void visit(const Stmt& stmt, bool in_loop) {
    switch (stmt.kind) {
      case StmtKind::kLoop:
        work_.iterations += steps_;
        for (const Stmt& inner : stmt.body) visit(inner, true);
        break;
      case StmtKind::kLet:
        if (is_load(kernel_.exprs[stmt.expr])) {
          ++work_.load_passes[stmt.expr];
          work_.loads_in_loop += in_loop;
        }
        break;
      case StmtKind::kFinish: ++work_.folds; break;
      case StmtKind::kScan:
        // Lanes of a block wait for those before them, in every block; where a thread walks alone, nobody waits.
        if (axis(static_cast<size_t>(scan_axis_of(kernel_))).block > 1) work_.folds += 2 * (in_loop ? steps_ : 1);
        break;
      default: break;
    }
  }

  // Accesses that differ only in the constant of their index: what several written-out results read and write of one
  // buffer.
  struct Neighbours {
    const Access* first = nullptr;
    int index = 0;  // expression or store
    int passes = 1;
    std::vector<int64_t> constants;  // ascending once found
  };

  void find_neighbours() {
    const auto add = [&](std::vector<Neighbours>& all, const Access& access, int index, int passes, bool may_join) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const Neighbours& one) {
        return may_join && one.first->buffer == access.buffer && one.first->index.terms == access.index.terms &&
               one.passes == passes;
      });
      if (same == all.end()) all.push_back({&access, index, passes, {access.index.constant}});
      else same->constants.push_back(access.index.constant);
    };
    for (size_t at = 0; at < kernel_.stores.size(); ++at)
      add(stores_, kernel_.stores[at].access, static_cast<int>(at), 1, true);
    for (size_t id = 0; id < kernel_.exprs.size(); ++id)
      if (work_.load_passes[id] > 0)
        add(loads_, kernel_.exprs[id].access, static_cast<int>(id), work_.load_passes[id],
            kernel_.exprs[id].kind == ExprKind::kLoad);
    for (std::vector<Neighbours>* all : {&stores_, &loads_})
      for (Neighbours& one : *all) {
        std::sort(one.constants.begin(), one.constants.end());
        one.constants.erase(std::unique(one.constants.begin(), one.constants.end()), one.constants.end());
      }
  }

  // How many of them lie between one element and the next.
  static double side_by_side(const Neighbours& neighbours) {
    int64_t step = 0;
    for (const IndexTerm& term : neighbours.first->index.terms)
      if (term.coefficient != 0)
        step = step == 0 ? std::abs(term.coefficient) : std::min(step, std::abs(term.coefficient));
    const auto& constants = neighbours.constants;
    const auto end = std::lower_bound(constants.begin(), constants.end(),
                                      constants.front() + std::max<int64_t>(1, step));
    return static_cast<double>(std::max<int64_t>(1, end - constants.begin()));
  }

  // Elements in a row that one program asks for together.
  double run_length(const Access& access) const {
    double run = 1;
    for (bool grown = true; grown;) {
      grown = false;
      for (const IndexTerm& term : access.index.terms) {
        const double block = static_cast<double>(rules_.in_blocks ? axis(term.axis).block : axis(term.axis).extent);
        if (term.divisor != 1 || block <= 1 || static_cast<double>(term.coefficient) != run) continue;
        run *= term.modulus ? std::min(block, static_cast<double>(term.modulus)) : block;
        grown = true;
        break;
      }
    }
    return run;
  }

  // Share of what the memory moves that is asked for.
  double used_share(const Access& access, double size) const {
    const double line = rules_.line_bytes;
    const double run = run_length(access) * size;
    if (run >= line) return run / (run + rules_.lost_bytes);
    // Along an axis that is walked one by one, neighbours share the line: out of a cache where it is still there.
    for (const IndexTerm& term : access.index.terms)
      if (term.coefficient == 1 && term.divisor == 1 && axis(term.axis).extent > 1) return std::max(run / line, 0.5);
    return measured_share(device_.strided_bytes_per_second, size, std::max(run, size) / line);
  }

  // By the calibration's figure for 4-byte elements, where there is one.
  double measured_share(double rate, double size, double otherwise) const {
    const double whole = device_.read_bytes_per_second > 0 ? device_.read_bytes_per_second
                                                           : device_.copy_bytes_per_second;
    return rate > 0 ? std::clamp(rate / whole * size / 4, 0.005, 1.0) : otherwise;
  }

  // Where data says which element is read: whole runs where the place does not change along the contiguous axis.
  double gathered_share(const Access& access, ExprId id, double size) const {
    const std::vector<bool>& moves = expr_axes_[kernel_.exprs[id].operands[0]];
    for (const IndexTerm& term : access.index.terms)
      if (term.coefficient == 1 && term.divisor == 1 && !moves[term.axis] && axis(term.axis).extent > 1)
        return used_share(access, size);
    return measured_share(device_.gather_bytes_per_second, size, size / rules_.line_bytes);
  }

  // How often each element is read where an index adds up axes: windows that overlap.
  double overlap(const Access& access, double buffer) const {
    double points = 1;
    std::vector<bool> seen(kernel_.axes.size(), false);
    for (const IndexTerm& term : access.index.terms) {
      double extent = std::ceil(static_cast<double>(axis(term.axis).extent) / static_cast<double>(term.divisor));
      if (term.modulus) extent = std::min(extent, static_cast<double>(term.modulus));
      if (!seen[term.axis]) points *= extent;
      seen[term.axis] = true;
    }
    return buffer > 0 ? std::max(1.0, points / buffer) : 1.0;
  }

  void add_access(const Access& access, DType dtype, int passes, const Neighbours& neighbours, ExprId load = kNoExpr) {
    const double size = static_cast<double>(size_of(dtype));
    const bool gathers = load != kNoExpr && kernel_.exprs[load].kind != ExprKind::kLoad;
    const std::vector<bool> used = gathers ? expr_axes_[load] : axes_of_access(kernel_, access);
    double elements = 1, per_program = 1, again_near = 1, again_far = 1;
    int innermost = -1;
    for (size_t i = 0; i < used.size(); ++i)
      if (used[i] && axis(i).kind == AxisKind::kParallel) innermost = static_cast<int>(i);
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i]) {
        elements *= static_cast<double>(axis(i).extent);
        per_program *= static_cast<double>(axis(i).kind == AxisKind::kParallel ? axis(i).block : axis(i).extent);
      } else if (axis(i).kind == AxisKind::kParallel) {
        // Programs are numbered with the last axis fastest: those that differ only there read the same at about the
        // same time.
        (static_cast<int>(i) > innermost ? again_near : again_far) *= rules_.in_blocks
                                                                          ? blocks_of(axis(i))
                                                                          : static_cast<double>(axis(i).extent);
      }
    }
    const double buffer = static_cast<double>(kernel_.buffers[access.buffer].elements),
                 asked = elements * static_cast<double>(neighbours.constants.size());
    elements = buffer > 0 && !gathers ? std::min(asked, buffer) : asked;
    per_program *= static_cast<double>(neighbours.constants.size());
    const double unique = elements * size;
    const double share = gathers ? gathered_share(access, load, size)
                                 : std::min(1.0, used_share(access, size) * side_by_side(neighbours));
    const double cache = static_cast<double>(device_.cache_bytes) * 0.8;
    const bool stays = unique <= cache;
    const double in_flight = per_program * size * std::min(work_.programs, static_cast<double>(device_.units) * 2);
    const double memory_passes = (stays || in_flight <= cache ? 1.0 : passes) * (stays ? 1.0 : again_far);
    const double requests = static_cast<double>(passes) * again_far * (rules_.in_blocks ? again_near : 1.0) *
                            (gathers ? 1.0 : std::max(overlap(access, buffer), asked / elements));
    work_.estimate.memory_bytes += unique * memory_passes / share;
    work_.estimate.cache_bytes += unique * std::max(0.0, requests - memory_passes) / share;
    work_.bytes_asked += unique * static_cast<double>(passes);
  }

  void count_arithmetic() {
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const double weight = weight_of(kernel_.exprs[id]);
      if (weight == 0) continue;
      std::vector<bool> over = expr_axes_[id];
      if (kernel_.exprs[id].kind == ExprKind::kReduce)
        for (ExprId operand : kernel_.exprs[id].operands)
          for (size_t i = 0; i < over.size(); ++i) over[i] = over[i] || expr_axes_[operand][i];
      double points = 1;
      for (size_t i = 0; i < over.size(); ++i) {
        if (over[i])
          points *= rules_.in_blocks ? blocks_of(axis(i)) * static_cast<double>(axis(i).block)
                                     : static_cast<double>(axis(i).extent);
        else if (axis(i).kind == AxisKind::kParallel && rules_.in_blocks) points *= blocks_of(axis(i));
      }
      work_.estimate.flops += weight * points;
    }
  }

  Kernel kernel_;
  const DeviceDescription& device_;
  const MemoryRules& rules_;
  std::vector<std::vector<bool>> expr_axes_;
  KernelWork work_;
  double steps_ = 1;
  std::vector<Neighbours> stores_, loads_;
};

}  // namespace

double weight_of(const Expr& expr) {
  if (expr.kind == ExprKind::kScan) return weight_of_scan(expr.reduce);
  if (expr.kind == ExprKind::kReduce)
    return expr.reduce == ReduceOp::kMoments || expr.reduce >= ReduceOp::kMaxSumExp ? 12 : 1;
  return expr.kind == ExprKind::kOp ? weight_of(expr.op) : 0;
}

double weight_of_scan(ReduceOp op) {
  if (kernel::is_sort(op)) return 200;
  return op == ReduceOp::kLogSumExp ? 24 : 4;
}

double weight_of(ScalarOp op) { return kernel::additions_of(op); }

KernelWork work_of(const Kernel& kernel, const DeviceDescription& device, const MemoryRules& rules) {
  return Counter(kernel, device, rules).run();
}

KernelEstimate estimate(const Kernel& kernel, const DeviceDescription& device) {
  return target_of(device).estimate(kernel, device);
}

KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) {
  return target_of(device).estimate(program, device);
}

double seconds_of(const tile::Program& program, const DeviceDescription& device) {
  return estimate(program, device).seconds;
}

namespace plan {

double seconds_of(const ScheduledGroup& group, const DeviceDescription& device) {
  double total = 0;
  for (const ScheduledKernel& one : group.kernels)
    total += device.launch_seconds + estimate(one.kernel, device).seconds;
  for (const ScheduledTiles& one : group.tiles)
    total += static_cast<double>(one.repetition ? one.repetition->count : 1) *
             (device.launch_seconds + kw::seconds_of(one.program, device));
  return total;
}

}  // namespace plan

}  // namespace kw
