// Seconds of tile programs that are loops of their own, without a grid: every nest of them by its accesses, as
// plan/estimate.cpp counts those of KernelIR, and by the instructions of its bodies.
#include <algorithm>
#include <cmath>
#include <optional>

#include "emit/cpu/loop_nest.hpp"
#include "targets/cpu/cost.hpp"

namespace kw::cpu {

namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;

constexpr double kLineBytes = 64;
constexpr double kCacheOverMemory = 4;  // where it was not measured
constexpr double kShareOfCache = 0.8;   // that data can count on

double number(int64_t value) { return static_cast<double>(value); }

// One loop, or a lane.
struct Walk {
  Symbol symbol = -1;
  double count = 1;
  int64_t step = 1;
};

// Accesses that differ only in the constant of their index.
struct Accesses {
  const Instruction* first = nullptr;
  Index terms;
  std::vector<Walk> loops;  // around, with the lanes behind
  std::vector<int64_t> constants;
};

class NestEstimate {
 public:
  NestEstimate(const tile::Program& program, const DeviceDescription& device)
      : program_(program), device_(device), ranges_(tile::ranges_of(program)) {}

  KernelEstimate run(const Instruction& nest) {
    find_vector(nest);
    threads_ = nest.kind == Kind::kFor && nest.shared;
    visit(nest);
    for (const Accesses& one : accesses_) add(one);
    estimate_.seconds = seconds(nest);
    return estimate_;
  }

 private:
  double lanes() const { return std::max(1.0, number(device_.vector_bytes) / 4); }

  Walk walk_of(const Instruction& loop) const {
    const double points = number(kernel::range_of(loop.end - loop.begin, ranges_).high);
    return {loop.symbol, std::ceil(points / number(loop.step)), loop.step};
  }

  std::vector<Walk> with_lanes(const std::vector<Symbol>& lanes) const {
    std::vector<Walk> all = loops_;
    for (const Symbol lane : lanes) all.push_back({lane, number(tile::width_of(program_, lane))});
    return all;
  }

  // What SIMD runs along: a loop, or a lane.
  void find_vector(const Instruction& nest) {
    if (nest.kind == Kind::kFor && (nest.simd || nest.unrolled)) vector_ = nest.symbol;
    for (const Instruction& one : nest.body) find_vector(one);
    if (nest.kind != Kind::kStore) return;
    const std::vector<Symbol> lanes = tile::lanes_of(program_, nest.access);
    tiled_ = tiled_ || lanes.size() > 1;
    for (const Symbol lane : lanes)
      if (vector_ < 0 || program_.symbols[lane].simd) vector_ = lane;
  }

  static double product(const std::vector<Walk>& walks) {
    double count = 1;
    for (const Walk& one : walks) count *= one.count;
    return count;
  }

  // --- Instructions ---

  void visit(const Instruction& one) {
    if (one.kind == Kind::kFor) {
      loops_.push_back(walk_of(one));
      if (one.symbol != vector_) programs_ = std::max(programs_, product(loops_));
      for (const Instruction& inner : one.body) visit(inner);
      loops_.pop_back();
      return;
    }
    if (one.kind == Kind::kLoad || one.kind == Kind::kStore) return visit_access(one);
    if (one.kind != Kind::kOp) return;
    const std::vector<Walk> walks = with_lanes(program_.values[one.results[0]].type.lanes);
    kernel_ir::Expr expr;
    expr.kind = kernel_ir::ExprKind::kOp;
    expr.op = one.op;
    instructions_ += product(walks) * cost_of(expr) / (runs_along_vector(walks) ? lanes() : 1);
    estimate_.flops += product(walks) * weight_of(one.op);
  }

  bool runs_along_vector(const std::vector<Walk>& walks) const {
    return std::any_of(walks.begin(), walks.end(), [&](const Walk& one) { return one.symbol == vector_; });
  }

  void visit_access(const Instruction& one) {
    Accesses access{&one, tile::offset_of(program_, one.access), with_lanes(tile::lanes_of(program_, one.access)), {}};
    instructions_ += product(access.loops) *
                     (one.kind == Kind::kLoad && !runs_along_vector(access.loops) ? 1 : access_cost(access.terms));
    access.constants.push_back(access.terms.constant);
    access.terms.constant = 0;
    const auto like = std::find_if(accesses_.begin(), accesses_.end(), [&](const Accesses& other) {
      return !gathers(one) && !gathers(*other.first) && other.first->kind == one.kind &&
             other.first->access.buffer == one.access.buffer && other.terms == access.terms;
    });
    if (like == accesses_.end()) accesses_.push_back(std::move(access));
    else if (const auto& all = like->constants; std::find(all.begin(), all.end(), access.constants[0]) == all.end())
      like->constants.push_back(access.constants[0]);
  }

  static bool gathers(const Instruction& one) {
    return std::any_of(one.access.coordinates.begin(), one.access.coordinates.end(),
                       [](const tile::Coordinate& at) { return at.value != tile::kNoValue; });
  }

  double access_cost(const Index& index) const {
    if (vector_ < 0) return 1;
    const auto along = kernel::linear_in(index, vector_);
    if (along && (along->coefficient == Index(0) || along->coefficient == Index(1))) return 1 / lanes();
    if (!tiled_) return 2;
    // Lines of a small tile are used in part; those of a large one leave the nearest cache.
    const double side = number(tile::width_of(program_, vector_));
    return 1 + 8 / side + side / 128;
  }

  // --- Memory ---

  // Elements that neighbouring iterations move one after the other, 1: the symbol moves by something else.
  std::optional<int64_t> step_of(const Index& terms, const Walk& walk) const {
    const auto along = kernel::linear_in(terms, walk.symbol);
    const auto step = along ? kernel::as_constant(along->coefficient) : std::nullopt;
    return step ? std::optional(*step * walk.step) : std::nullopt;
  }

  double run_length(const Accesses& one) const {
    double run = 1;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Walk& walk : one.loops) {
        const auto step = step_of(one.terms, walk);
        if (!step || walk.count <= 1 || number(*step) != run) continue;
        run *= walk.count;
        grown = true;
        break;
      }
    }
    return run;
  }

  double measured_share(double rate, double size, double otherwise) const {
    const double whole = device_.read_bytes_per_second > 0 ? device_.read_bytes_per_second
                                                           : device_.copy_bytes_per_second;
    return rate > 0 ? std::clamp(rate / whole * size / 4, 0.005, 1.0) : otherwise;
  }

  // Of what memory moves.
  double used_share(const Accesses& one, double size) const {
    const double run = run_length(one) * size;
    if (run >= kLineBytes) return 1;
    for (const Walk& walk : one.loops)
      if (walk.count > 1 && step_of(one.terms, walk) == 1) return std::max(run / kLineBytes, 0.5);
    if (gathers(*one.first)) return measured_share(device_.gather_bytes_per_second, size, size / kLineBytes);
    return measured_share(device_.strided_bytes_per_second, size, std::max(run, size) / kLineBytes);
  }

  static double side_by_side(const Accesses& one, int64_t step) {
    const auto [least, most] = std::minmax_element(one.constants.begin(), one.constants.end());
    const auto near = std::count_if(one.constants.begin(), one.constants.end(),
                                    [&, low = *least](int64_t at) { return at < low + std::max<int64_t>(1, step); });
    return number(std::max<int64_t>(1, near));
  }

  void add(const Accesses& one) {
    const tile::Buffer& buffer = program_.buffers[one.first->access.buffer];
    const double size = number(size_of(buffer.dtype));
    double elements = 1, again = 1, pending = 1;
    int64_t step = 0;
    for (const Walk& walk : one.loops) {
      const bool used = kernel::uses(one.terms, walk.symbol) || gathers(*one.first);
      const auto moved = step_of(one.terms, walk);
      if (moved && *moved != 0) step = step == 0 ? std::abs(*moved) : std::min(step, std::abs(*moved));
      if (!used) {
        pending *= walk.count;
        continue;
      }
      // Loops outside of what moves the place: everything is read once more for each of their iterations.
      again *= pending;
      pending = 1;
      elements *= walk.count;
    }
    double whole = 1;
    for (const Index& extent : buffer.shape) whole *= number(kernel::range_of(extent, ranges_).high);
    const double asked = elements * number(static_cast<int64_t>(one.constants.size()));
    elements = gathers(*one.first) ? asked : std::min(asked, whole);
    const double unique = elements * size, share = std::min(1.0, used_share(one, size) * side_by_side(one, step));
    const bool stays = unique <= number(device_.cache_bytes) * kShareOfCache;
    const double passes = stays ? 1.0 : again;
    const double requests = again * (gathers(*one.first) ? 1.0 : std::max(1.0, asked / elements));
    estimate_.memory_bytes += unique * passes / share;
    estimate_.cache_bytes += unique * std::max(0.0, requests - passes) / share;
  }

  // --- Time ---

  double seconds(const Instruction& nest) const {
    const double all = number(std::max<int64_t>(device_.units, 1));
    const bool one_loop = nest.kind == Kind::kFor && nest.symbol == vector_;
    const double at_work = one_loop ? all : programs_ / std::ceil(programs_ / all), units = threads_ ? at_work : 1;
    const double bandwidth = device_.copy_bytes_per_second * std::clamp(units / all, std::min(1.0, kOneCoreShare), 1.0);
    const double cache = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                            : kCacheOverMemory * device_.copy_bytes_per_second;
    const double memory = estimate_.memory_bytes / bandwidth + estimate_.cache_bytes / cache;
    const double measured = device_.synchronise_seconds > 0 ? device_.synchronise_seconds : kSynchroniseSeconds;
    const double arithmetic = (instructions_ + programs_ * kProgramCycles) / (units * kInstructionsPerSecond);
    // Less than either hides the other entirely.
    return std::max(memory, arithmetic) + 0.2 * std::min(memory, arithmetic) + (threads_ ? measured : 0);
  }

  const tile::Program& program_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<Walk> loops_;  // open
  std::vector<Accesses> accesses_;
  Symbol vector_ = -1;
  bool tiled_ = false, threads_ = false;
  double instructions_ = 0, programs_ = 1;
  KernelEstimate estimate_;
};

}  // namespace

KernelEstimate estimate_loops(const tile::Program& program, const DeviceDescription& device) {
  KernelEstimate total;
  for (const Instruction& one : program.body) {
    const KernelEstimate nest = NestEstimate(program, device).run(one);
    total.memory_bytes += nest.memory_bytes;
    total.cache_bytes += nest.cache_bytes;
    total.flops += nest.flops;
    total.seconds += nest.seconds;
  }
  return total;
}

}  // namespace kw::cpu
