#include "plan/estimate.hpp"

#include <algorithm>
#include <cmath>

#include "plan/axes.hpp"

namespace kw {

using namespace kernel_ir;

namespace {

constexpr double kSectorBytes = 32;         // the least a GPU's memory moves
constexpr double kLineBytes = 64;           // of a CPU's caches
constexpr double kLatencySeconds = 0.7e-6;  // of one round trip to a GPU's memory
constexpr double kProgramSeconds = 0.8e-6;  // from a program's start to its first load, and from its last store to its
                                            // end
constexpr double kFoldSeconds = 0.15e-6;    // one step of a reduction across warps
constexpr double kRegistersOfUnit = 65536, kThreadsOfUnit = 2048, kMostRegisters = 255, kFixedRegisters = 24;

class Estimation {
 public:
  Estimation(const Kernel& kernel, const DeviceDescription& device)
      : kernel_(kernel), device_(device), is_gpu_(device.target == "triton") {
    arrange(kernel_);
    expr_axes_ = axes_of_exprs(kernel_);
  }

  KernelEstimate run() {
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
      add_access(*one.first, kernel_.exprs[one.index].dtype, load_passes_[one.index], one, one.index);
    count_arithmetic();
    result_.seconds = is_gpu_ ? gpu_seconds() : cpu_seconds(kernel_, result_, device_);
    return result_;
  }

 private:
  const Axis& axis(size_t index) const { return kernel_.axes[index]; }
  static double blocks_of(const Axis& axis) {
    return std::ceil(static_cast<double>(axis.extent) / static_cast<double>(std::max<int64_t>(1, axis.block)));
  }

  void find_tile() {
    for (const Axis& one : kernel_.axes) {
      tile_ *= static_cast<double>(one.block);
      if (one.kind == AxisKind::kParallel || one.cooperative) programs_ *= blocks_of(one);
      else if (one.looped) steps_ *= blocks_of(one);
    }
    load_passes_.assign(kernel_.exprs.size(), 0);
  }

  void visit(const Stmt& stmt, bool in_loop) {
    switch (stmt.kind) {
      case StmtKind::kLoop:
        iterations_ += steps_;
        for (const Stmt& inner : stmt.body) visit(inner, true);
        break;
      case StmtKind::kLet:
        if (is_load(kernel_.exprs[stmt.expr])) {
          ++load_passes_[stmt.expr];
          loads_in_loop_ += in_loop;
        }
        break;
      case StmtKind::kFinish: ++folds_; break;
      case StmtKind::kScan:
        // Lanes of a block wait for those before them, in every block; where a thread walks alone, nobody waits.
        if (axis(static_cast<size_t>(scan_axis_of(kernel_))).block > 1) folds_ += 2 * (in_loop ? steps_ : 1);
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
      if (load_passes_[id] > 0)
        add(loads_, kernel_.exprs[id].access, static_cast<int>(id), load_passes_[id],
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
        const double block = static_cast<double>(is_gpu_ ? axis(term.axis).block : axis(term.axis).extent);
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
    const double line = is_gpu_ ? kSectorBytes : kLineBytes;
    const double run = run_length(access) * size;
    if (run >= line) return run / (run + (is_gpu_ ? 8 : 0));
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
    return measured_share(device_.gather_bytes_per_second, size, size / (is_gpu_ ? kSectorBytes : kLineBytes));
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
        per_program *= static_cast<double>(axis(i).kind == AxisKind::kParallel || axis(i).cooperative ? axis(i).block
                                                                                                      : axis(i).extent);
      } else if (axis(i).kind == AxisKind::kParallel) {
        // Programs are numbered with the last axis fastest: those that differ only there read the same at about the
        // same time.
        (static_cast<int>(i) > innermost ? again_near : again_far) *= is_gpu_ ? blocks_of(axis(i))
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
    const double in_flight = per_program * size * std::min(programs_, static_cast<double>(device_.units) * 2);
    const double memory_passes = (stays || in_flight <= cache ? 1.0 : passes) * (stays ? 1.0 : again_far);
    const double requests = static_cast<double>(passes) * again_far * (is_gpu_ ? again_near : 1.0) *
                            (gathers ? 1.0 : std::max(overlap(access, buffer), asked / elements));
    result_.memory_bytes += unique * memory_passes / share;
    result_.cache_bytes += unique * std::max(0.0, requests - memory_passes) / share;
    bytes_asked_ += unique * static_cast<double>(passes);
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
          points *= is_gpu_ ? blocks_of(axis(i)) * static_cast<double>(axis(i).block)
                            : static_cast<double>(axis(i).extent);
        else if (axis(i).kind == AxisKind::kParallel && is_gpu_) points *= blocks_of(axis(i));
      }
      result_.flops += weight * points;
    }
  }

  double gpu_seconds() {
    const double threads = 32.0 * kernel_.num_warps;
    const double each = std::max(1.0, tile_ / threads);
    int loads = 0, folded = 0;
    for (const int passes : load_passes_) loads += passes > 0;
    for (const Expr& expr : kernel_.exprs) folded += expr.kind == ExprKind::kReduce || expr.kind == ExprKind::kScan;
    const int live = iterations_ > 0 ? std::max(1, loads_in_loop_) + folded : std::max(1, loads) + 1;
    const double registers = result_.registers = kFixedRegisters + each * live;
    double resident = std::floor(
        std::min({kRegistersOfUnit / (std::min(registers, kMostRegisters) * threads), kThreadsOfUnit / threads, 32.0}));
    resident = std::max(1.0, resident);
    const double spilled = std::max(0.0, registers - kMostRegisters) / kMostRegisters;

    const double units = static_cast<double>(device_.units);
    const double busy = std::min(programs_, units * resident);
    // Little's law: what is under way at once over the time that it takes.
    const double per_step = bytes_asked_ / std::max(1.0, programs_ * std::max(1.0, iterations_));
    const double under_way = busy * std::max(per_step, 64.0);
    const double needed = device_.copy_bytes_per_second * kLatencySeconds;
    const double bandwidth = device_.copy_bytes_per_second * under_way / (under_way + 0.15 * needed) *
                             std::min(1.0, busy / units);
    const double cache_rate = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                                 : 2.5 * device_.copy_bytes_per_second;
    const double memory = result_.memory_bytes / bandwidth;
    const double cache = result_.cache_bytes / (cache_rate * std::min(1.0, busy / units));
    const double arithmetic = result_.flops / (0.5 * device_.fp32_flops * std::min(1.0, busy / units));
    const double narrow = std::min(1.0, 0.85 + 0.15 * std::min(each * 4, 16.0) / 16.0);
    const double waves = std::ceil(programs_ / (units * resident));
    const double folding = folds_ * kFoldSeconds * std::log2(2.0 * kernel_.num_warps);
    const double chain = waves * (kProgramSeconds + iterations_ * kLatencySeconds + folding);
    const double shared_rate = device_.shared_bytes_per_second > 0 ? device_.shared_bytes_per_second
                                                                   : 8 * device_.copy_bytes_per_second;
    const double exchanged = folds_ * programs_ * tile_ * 8 / (std::max(1.0, each) * shared_rate);
    const double flowing = std::max({memory / narrow + cache, arithmetic, chain}) + exchanged;
    return (flowing + 0.1 * chain) * (1 + 2 * spilled);
  }

  Kernel kernel_;
  const DeviceDescription& device_;
  bool is_gpu_;
  std::vector<std::vector<bool>> expr_axes_;
  std::vector<int> load_passes_;
  KernelEstimate result_;
  double tile_ = 1, programs_ = 1, steps_ = 1, iterations_ = 0, bytes_asked_ = 0;
  std::vector<Neighbours> stores_, loads_;
  double folds_ = 0;
  int loads_in_loop_ = 0;
};

}  // namespace

double weight_of(const Expr& expr) {
  if (expr.kind == ExprKind::kScan && is_sort(expr)) return 200;
  if (expr.kind == ExprKind::kScan) return expr.reduce == ReduceOp::kLogSumExp ? 24 : 4;
  if (expr.kind == ExprKind::kReduce)
    return expr.reduce == ReduceOp::kMoments || expr.reduce >= ReduceOp::kMaxSumExp ? 12 : 1;
  if (expr.kind != ExprKind::kOp) return 0;
  switch (expr.op) {
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kReciprocal: return 4;
    case ScalarOp::kExp:
    case ScalarOp::kExp2:
    case ScalarOp::kExpm1:
    case ScalarOp::kLog:
    case ScalarOp::kLog2:
    case ScalarOp::kLog10:
    case ScalarOp::kLog1p:
    case ScalarOp::kSigmoid: return 10;
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kErfc:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kPow:
    case ScalarOp::kAtan2: return 24;
    case ScalarOp::kFloorDiv:
    case ScalarOp::kTruncDiv:
    case ScalarOp::kRemainder:
    case ScalarOp::kFmod: return 20;
    default: return 1;
  }
}

KernelEstimate estimate(const Kernel& kernel, const DeviceDescription& device) {
  return Estimation(kernel, device).run();
}

}  // namespace kw
