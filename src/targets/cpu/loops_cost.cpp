// Seconds of tile programs that are loops of their own, without a grid: every nest of them by its accesses
// and by the instructions of its bodies.
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernel/operations.hpp"
#include "lower/lane_bounds.hpp"
#include "lower/loop_plan.hpp"
#include "targets/cpu/cost.hpp"
#include "targets/cpu/lowering.hpp"

namespace kw::cpu {

namespace {

using lower::LoopStep;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;

constexpr double kLineBytes = 64;
constexpr double kShareOfCache = 0.8;  // that data can count on
constexpr double kMostReadAgain = 8;   // times the largest operand

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
  int passes = 1;
};

class NestEstimate {
 public:
  NestEstimate(const tile::Program& program, const lower::LoopPlan& plan, const DeviceDescription& device)
      : program_(program), plan_(plan), device_(device), ranges_(tile::ranges_of(program)), masks_(program) {}

  KernelEstimate run(const LoopStep& nest) {
    find_vector(nest);
    threads_ = nest.shared > 0;
    visit(nest);
    threads_ = threads_ || shares_row_;
    for (const Accesses& one : accesses_) add(one);
    // Of columns that are folded side by side, what leaves the nearest cache is fetched for each row.
    if (column_bytes_ > kNearBytes / 2) instructions_ += column_folds_;
    estimate_.seconds = seconds(nest);
    return estimate_;
  }

 private:
  // Threads that own places share what is stored, but each walks all of it: it takes as long as one thread would.
  bool is_of_owners(const Instruction& loop) const {
    const auto count = loop.kind == Kind::kFor ? kernel::as_symbol(loop.end) : std::nullopt;
    return count && program_.symbols[*count].threads > 0;
  }

  // g++ prefers registers of 32 bytes where there are larger ones.
  double lanes() const { return std::max(1.0, number(std::min<int64_t>(device_.vector_bytes, 32)) / 4); }

  Walk walk_of(const Instruction& loop) const {
    const double points = number(kernel::range_of(loop.end - loop.begin, ranges_).high);
    return {loop.symbol, std::ceil(points / number(loop.step)), loop.step};
  }

  // What SIMD runs along: a loop, or a lane.
  void find_vector(const LoopStep& step) {
    if (!step.instruction) {
      tiled_ = tiled_ || (vector_ >= 0 && !step.body.empty() && !step.body.front().instruction);
      vector_ = step.lane;
    } else if (step.instruction->kind == Kind::kFor && (step.instruction->simd || step.instruction->unrolled)) {
      vector_ = step.instruction->symbol;
    }
    for (const LoopStep& inner : step.body) find_vector(inner);
  }

  static double product(const std::vector<Walk>& walks) {
    double count = 1;
    for (const Walk& one : walks) count *= one.count;
    return count;
  }

  // --- Instructions ---

  void visit(const LoopStep& step) {
    if (!step.instruction) {
      shares_row_ = shares_row_ || program_.symbols[step.lane].shared;
      loops_.push_back({step.lane, points_of(step)});
      folds_ += number(static_cast<int64_t>(step.folds.size()));
      const std::set<tile::Value> known = known_;
      known_.insert(step.known.begin(), step.known.end());
      for (const LoopStep& inner : step.body) visit(inner);
      known_ = known;
      loops_.pop_back();
      return;
    }
    const Instruction& one = *step.instruction;
    if (one.kind == Kind::kIf || is_of_owners(one)) {
      for (const LoopStep& inner : step.body) visit(inner);
      return;
    }
    if (one.kind == Kind::kFor) {
      loops_.push_back(walk_of(one));
      if (one.symbol != vector_ && one.arguments.empty()) programs_ = std::max(programs_, product(loops_));
      for (const LoopStep& inner : step.body) visit(inner);
      loops_.pop_back();
      return;
    }
    const double points = product(loops_), each = points / (runs_along_vector(loops_) ? lanes() : 1);
    if (one.combines) instructions_ += each;
    if (one.kind == Kind::kLoad || one.kind == Kind::kStore) return visit_access(one);
    if (one.kind == Kind::kFold) {
      const bool extreme = one.reduce == tile::ReduceOp::kMax || one.reduce == tile::ReduceOp::kMin;
      // NaN is looked for beside extremes. Extended sums have no vectors.
      const double cost = one.reduce == tile::ReduceOp::kExtendedSum
                              ? points * kCarryCycles
                              : each * (extreme && is_floating(program_.values[one.operands[0]].type.dtype) ? 2 : 1);
      instructions_ += cost;
      estimate_.flops += points;
      if (!plan_.places[one.results[0]].lanes.empty()) {
        column_bytes_ += sizeof(double) * number(tile::width_of(program_, vector_));
        column_folds_ += cost;
      }
    }
    if (one.kind == Kind::kScan) {
      const bool sorts = kernel::is_sort(one.reduce);  // a row at once
      if (sorts) visit_row(one);
      instructions_ += cost_of_scan(one, points * (sorts ? number(tile::width_of(program_, one.from)) : 1));
    }
    if (one.kind != Kind::kOp || is_decided(one)) return;
    instructions_ += each * kernel::vector_instructions_of(one.op);
    if (!plan_.places[one.results[0]].lanes.empty()) instructions_ += 2 * each;  // an array
    estimate_.flops += points * weight_of(one.op);
  }

  // A walk waits for each addition; rows side by side wait together. Pieces that leave the nearest cache are fetched
  // again, short ones begin anew each time.
  double cost_of_scan(const Instruction& scan, double points) const {
    double rows = 1;
    for (const Symbol lane : program_.values[scan.results[0]].type.lanes)
      if (lane != scan.from) rows *= number(tile::width_of(program_, lane));
    const double piece = number(tile::width_of(program_, scan.from));
    const double again = (rows * piece * 4 > kNearBytes ? 1.5 : 1.0) + 32 / piece + rows / 64;
    return kCarryCycles * points * again / rows;
  }

  // Of a lane, but for those behind an end that is a number.
  double points_of(const LoopStep& loop) const {
    int64_t points = tile::width_of(program_, loop.lane);
    for (const lower::LaneBound& bound : loop.ends)
      if (const auto end = kernel::as_constant(bound.dividend); end && bound.value == tile::kNoValue)
        points = std::min(points, *end / bound.divisor);
    return number(points);
  }

  // Is it a choice that the bounds of the loops around have made?
  bool is_decided(const Instruction& one) const {
    return one.op == tile::ScalarOp::kSelect && masks_.left_of(one.operands[0], known_) == tile::kNoValue;
  }

  bool runs_along_vector(const std::vector<Walk>& walks) const {
    return std::any_of(walks.begin(), walks.end(), [&](const Walk& one) { return one.symbol == vector_; });
  }

  void visit_access(const Instruction& one) {
    Accesses access{&one, tile::offset_of(program_, one.access), loops_, {}};
    instructions_ += product(loops_) *
                     (one.kind == Kind::kLoad && !runs_along_vector(loops_) ? 1 : access_cost(access.terms));
    if (one.combines) access.passes = 2;  // what is folded into memory is read and written
    access.constants.push_back(access.terms.constant);
    access.terms.constant = 0;
    const auto like = std::find_if(accesses_.begin(), accesses_.end(), [&](const Accesses& other) {
      return !gathers(one) && !gathers(*other.first) && other.first->kind == one.kind &&
             other.first->access.buffer == one.access.buffer && other.terms == access.terms;
    });
    if (like == accesses_.end()) return accesses_.push_back(std::move(access));
    if (const auto& all = like->constants; std::find(all.begin(), all.end(), access.constants[0]) == all.end())
      like->constants.push_back(access.constants[0]);
    else if (like->first == &one) ++like->passes;  // again, in a later loop
  }

  // That a sort takes from memory.
  void visit_row(const Instruction& sort) {
    const tile::Value row = sort.operands[0];
    if (!plan_.places[row].lanes.empty()) return;
    loops_.push_back({sort.from, number(tile::width_of(program_, sort.from))});
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.kind == Kind::kLoad && one.results[0] == row) visit_access(one);
    });
    loops_.pop_back();
  }

  static bool gathers(const Instruction& one) { return tile::is_decided_by_data(one.access); }

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

  // Of accesses that are alike, how many are of elements one behind the other.
  static int64_t joined(const Accesses& one) {
    const int64_t least = *std::min_element(one.constants.begin(), one.constants.end());
    int64_t count = 1;
    while (std::find(one.constants.begin(), one.constants.end(), least + count) != one.constants.end()) ++count;
    return count;
  }

  double run_length(const Accesses& one) const {
    double run = number(joined(one));
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
    double least = kLineBytes;  // bytes from one iteration to the next
    for (const Walk& walk : one.loops) {
      if (walk.count <= 1) continue;
      const auto step = step_of(one.terms, walk);
      if (step == 1) return std::max(run / kLineBytes, 0.5);
      if (step && *step != 0) least = std::min(least, number(std::abs(*step)) * size);
    }
    if (least < kLineBytes && !gathers(*one.first)) return std::max(run, size) / least;
    if (gathers(*one.first)) return measured_share(device_.gather_bytes_per_second, size, size / kLineBytes);
    return measured_share(device_.strided_bytes_per_second, size, std::max(run, size) / kLineBytes);
  }

  static double side_by_side(const Accesses& one, int64_t step) {
    const auto [least, most] = std::minmax_element(one.constants.begin(), one.constants.end());
    const auto near = std::count_if(one.constants.begin(), one.constants.end(),
                                    [&, low = *least](int64_t at) { return at < low + std::max<int64_t>(1, step); });
    return std::max(1.0, number(near) / number(joined(one)));
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
    const double requests = one.passes * again * (gathers(*one.first) ? 1.0 : std::max(1.0, asked / elements));
    estimate_.memory_bytes += unique * passes / share;
    estimate_.cache_bytes += unique * std::max(0.0, requests - passes) / share;
    if (column_bytes_ > 0 && one.first->kind == Kind::kLoad) add_columns(one, unique, size);
  }

  // A block of columns that is walked again when it has left the core's cache; and short rows of a block, of which the
  // lines at their ends are shared.
  void add_columns(const Accesses& one, double bytes, double size) {
    double block = size;
    for (const Walk& walk : one.loops)
      if (program_.symbols[walk.symbol].kind == tile::SymbolKind::kLane) block *= walk.count;
    if (block > number(device_.unit_cache_bytes) / 2) read_again_ += bytes * (one.passes - 1);
    read_again_ += bytes * kLineBytes / 2 / (number(tile::width_of(program_, vector_)) * size);
    most_read_ = std::max(most_read_, bytes);
  }

  // --- Time ---

  double seconds(const LoopStep& nest) const {
    const double all = number(std::max<int64_t>(device_.units, 1));
    const bool one_loop = nest.instruction && nest.instruction->kind == Kind::kFor &&
                          nest.instruction->symbol == vector_;
    const double at_work = one_loop || shares_row_ ? all : programs_ / std::ceil(programs_ / all),
                 units = threads_ ? at_work : 1;
    const double bandwidth = device_.copy_bytes_per_second * std::clamp(units / all, std::min(1.0, kOneCoreShare), 1.0);
    const double cache = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                            : kCacheOverMemory * device_.copy_bytes_per_second;
    const double read_again = std::min(read_again_, kMostReadAgain * most_read_);
    const double memory = estimate_.memory_bytes / bandwidth + (estimate_.cache_bytes + read_again) / cache;
    const double measured = device_.synchronise_seconds > 0 ? device_.synchronise_seconds : kSynchroniseSeconds;
    const double arithmetic = (instructions_ + programs_ * (kProgramCycles + folds_ * kFoldCycles)) /
                              (units * kInstructionsPerSecond);
    // Less than either hides the other entirely.
    return std::max(memory, arithmetic) + 0.2 * std::min(memory, arithmetic) + (threads_ ? measured : 0);
  }

  const tile::Program& program_;
  const lower::LoopPlan& plan_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  const lower::Masks masks_;
  std::set<tile::Value> known_;  // comparisons that hold in the loops around
  std::vector<Walk> loops_;      // open
  std::vector<Accesses> accesses_;
  Symbol vector_ = -1;
  bool tiled_ = false, threads_ = false, shares_row_ = false;
  double instructions_ = 0, programs_ = 1, folds_ = 0;
  double column_bytes_ = 0, column_folds_ = 0;  // of arrays that columns are folded into, and instructions for it
  double read_again_ = 0, most_read_ = 0;       // bytes of blocks of columns, and of an operand
  KernelEstimate estimate_;
};

}  // namespace

KernelEstimate estimate_loops(const tile::Program& program, const DeviceDescription& device) {
  KernelEstimate total;
  const auto priced = priced_loops(program);
  for (const LoopStep& one : priced->loops->body) {
    const KernelEstimate nest = NestEstimate(priced->program, *priced->loops, device).run(one);
    total.memory_bytes += nest.memory_bytes;
    total.cache_bytes += nest.cache_bytes;
    total.flops += nest.flops;
    total.seconds += nest.seconds;
  }
  return total;
}

}  // namespace kw::cpu
