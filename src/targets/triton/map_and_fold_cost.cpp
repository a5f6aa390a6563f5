// Bytes and arithmetic of tile programs that map elements and fold them, by the rules of plan/estimate.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "targets/triton/cost.hpp"

namespace kw::triton {

namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

// Lanes, and the blocks that share them out.
struct Axis {
  Symbol block = -1, lane = -1;
  double blocks = 1, width = 1, extent = 1;
};

class MapAndFoldEstimate {
 public:
  MapAndFoldEstimate(const tile::Program& program, const DeviceDescription& device)
      : program_(program),
        device_(device),
        ranges_(tile::ranges_of(program)),
        axis_of_(program.symbols.size(), -1),
        depends_(program.values.size()),
        is_place_(program.values.size()),
        makers_(program.values.size()) {
    find_axes();
  }

  KernelEstimate run() {
    for (const Axis& axis : axes_) {
      work_.tile *= axis.width;
      work_.programs *= axis.blocks;
    }
    for (const Instruction& one : program_.body) see(one);
    for (const Access& access : accesses_) add(access);
    work_.warps = program_.warps;
    work_.live = std::max(1, loads_) + 1;
    work_.estimate.seconds = seconds_of(work_, device_);
    return work_.estimate;
  }

 private:
  // Accesses that differ only in the constant of their index.
  struct Access {
    const tile::Access* first = nullptr;
    Index offset;                             // without its constant
    double size = 4;                          // bytes of an element
    std::vector<bool> axes = {}, moves = {};  // along which it varies, and those along which data say where
    std::vector<int64_t> constants = {};
    bool gathers = false;
  };

  void find_axes() {
    const auto add = [&](Symbol block, Symbol lane) {
      Axis axis{block, lane};
      if (block >= 0) axis.blocks = static_cast<double>(kernel::range_of(program_.symbols[block].count, ranges_).high);
      if (lane >= 0) axis.width = static_cast<double>(tile::width_of(program_, lane));
      axis.extent = axis.blocks * axis.width;
      for (Symbol symbol : {block, lane})
        if (symbol >= 0) axis_of_[symbol] = static_cast<int>(axes_.size());
      axes_.push_back(axis);
    };
    for (Symbol block : program_.grid) {
      Symbol lane = -1;
      for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
        if (program_.symbols[symbol].kind == tile::SymbolKind::kLane &&
            program_.symbols[symbol].name + "_block" == program_.symbols[block].name)
          lane = static_cast<Symbol>(symbol);
      add(block, lane);
    }
    for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
      if (program_.symbols[symbol].kind == tile::SymbolKind::kLane && axis_of_[symbol] < 0)
        add(-1, static_cast<Symbol>(symbol));
  }

  std::vector<bool> axes_in(const Index& index) const {
    std::vector<bool> used(program_.symbols.size()), axes(axes_.size());
    kernel::collect_symbols(index, used);
    for (size_t symbol = 0; symbol < used.size(); ++symbol)
      if (used[symbol] && axis_of_[symbol] >= 0) axes[axis_of_[symbol]] = true;
    return axes;
  }

  static void unite(std::vector<bool>& all, const std::vector<bool>& more) {
    all.resize(std::max(all.size(), more.size()));
    for (size_t at = 0; at < more.size(); ++at) all[at] = all[at] || more[at];
  }

  double points(const std::vector<bool>& axes) const {
    double count = 1;
    for (size_t axis = 0; axis < axes.size(); ++axis) count *= axes[axis] ? axes_[axis].width : 1.0;
    return count * work_.programs;
  }

  void see(const Instruction& one) {
    std::vector<bool> axes = axes_in(one.index), moves(axes_.size());
    bool is_place = one.kind == Kind::kIndex || one.kind == Kind::kConstant;
    for (Value operand : one.operands) unite(axes, depends_[operand]);
    if (one.kind == Kind::kFold) {
      work_.estimate.flops += points(axes);
      work_.folds += is_second(one) ? 0 : 1;
      for (Symbol lane : one.lanes) axes[axis_of_[lane]] = false;
    }
    if (one.kind == Kind::kOp) {
      is_place = std::all_of(one.operands.begin(), one.operands.end(), [&](Value value) { return is_place_[value]; });
      note_extent(one);
      const bool is_mask = is_place && program_.values[one.results[0]].type.dtype == DType::b1;
      if (!is_mask) work_.estimate.flops += weight_of(one.op) * points(axes);
    }
    if (one.kind == Kind::kLoad || one.kind == Kind::kStore) {
      Access access{&one.access, tile::offset_of(program_, one.access)};
      access.size = static_cast<double>(size_of(program_.buffers[one.access.buffer].dtype));
      if (one.kind == Kind::kLoad) axes.assign(axes_.size(), false);
      unite(axes, axes_in(access.offset));
      if (one.access.mask != tile::kNoValue) unite(axes, depends_[one.access.mask]);
      for (const tile::Coordinate& coordinate : one.access.coordinates) {
        if (coordinate.value == tile::kNoValue) continue;
        access.gathers = true;
        unite(moves, depends_[coordinate.value]);
        unite(axes, depends_[coordinate.value]);
      }
      loads_ += one.kind == Kind::kLoad;
      access.axes = axes;
      access.moves = moves;
      note(std::move(access));
    }
    for (Value result : one.results) {
      makers_[result] = &one;
      depends_[result] = axes;
      is_place_[result] = is_place;
    }
  }

  const Instruction* maker(Value value, tile::ScalarOp op) const {
    const Instruction* made = makers_[value];
    if (made && made->kind == Kind::kOp && made->op == tile::ScalarOp::kSelect) made = makers_[made->operands[1]];
    return made && made->kind == Kind::kOp && made->op == op ? made : nullptr;
  }

  // The sum of a row's exponentials below its maximum, or of its squares around its mean: the two folds of a row count
  // as one, as they did when what a fold costs was measured.
  bool is_second(const Instruction& fold) const {
    if (fold.reduce != tile::ReduceOp::kSum) return false;
    const Instruction *power = maker(fold.operands[0], tile::ScalarOp::kExp),
                      *square = maker(fold.operands[0], tile::ScalarOp::kMul);
    if (!power && (!square || square->operands[0] != square->operands[1])) return false;
    const Instruction* difference = maker((power ? power : square)->operands[0], tile::ScalarOp::kSub);
    const Instruction* first = difference ? makers_[difference->operands[1]] : nullptr;
    if (first && first->kind == Kind::kOp && first->op == tile::ScalarOp::kDiv) first = makers_[first->operands[0]];
    return first && first->kind == Kind::kFold &&
           first->reduce == (power ? tile::ReduceOp::kMax : tile::ReduceOp::kSum);
  }

  // `index < extent` is what masks say of an axis that its blocks do not divide.
  void note_extent(const Instruction& one) {
    if (one.op != tile::ScalarOp::kLess) return;
    const Instruction *left = makers_[one.operands[0]], *right = makers_[one.operands[1]];
    if (!left || !right || left->kind != Kind::kIndex || right->kind != Kind::kConstant) return;
    for (Axis& axis : axes_) {
      if (axis.lane < 0) continue;
      Index whole = kernel::symbol_index(axis.lane);
      if (axis.block >= 0) whole = whole + kernel::symbol_index(axis.block) * Index(static_cast<int64_t>(axis.width));
      const double end = static_cast<double>(right->integer), all = axis.blocks * axis.width;
      if (left->index == whole && end <= all && end > all - axis.width) axis.extent = end;
    }
  }

  void note(Access access) {
    const int64_t constant = access.offset.constant;
    access.offset.constant = 0;
    const auto same = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& one) {
      return !access.gathers && !one.gathers && one.first->buffer == access.first->buffer &&
             one.offset == access.offset;
    });
    Access& one = same == accesses_.end() ? accesses_.emplace_back(std::move(access)) : *same;
    if (std::find(one.constants.begin(), one.constants.end(), constant) == one.constants.end())
      one.constants.push_back(constant);
  }

  // A term that is a coefficient times a lane (a block that is no tile), or what is left of that by a number.
  struct Run {
    int axis = -1;
    double coefficient = 0, length = 1;
  };
  std::vector<Run> runs_of(const Index& offset) const {
    std::vector<Run> runs;
    for (const kernel::IndexTerm& term : offset.terms) {
      if (term.factors.size() != 1 || term.coefficient < 1) continue;
      const kernel::IndexFactor& factor = term.factors[0];
      const bool remains = factor.kind == kernel::IndexFactor::Kind::kRemainder;
      if (factor.kind == kernel::IndexFactor::Kind::kQuotient) continue;
      std::vector<bool> used(program_.symbols.size());
      if (remains) kernel::collect_symbols(*factor.dividend, used);
      else used[factor.symbol] = true;
      for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol) {
        if (!used[symbol] || axis_of_[symbol] < 0) continue;
        const Axis& axis = axes_[axis_of_[symbol]];
        if (static_cast<Symbol>(symbol) != (axis.lane >= 0 ? axis.lane : axis.block)) continue;
        const auto divisor = remains ? kernel::as_constant(*factor.divisor) : std::nullopt;
        runs.push_back({axis_of_[symbol], static_cast<double>(term.coefficient),
                        divisor ? std::min(axis.width, static_cast<double>(*divisor)) : axis.width});
      }
    }
    return runs;
  }

  double measured_share(double rate, double size, double otherwise) const {
    const double whole = device_.read_bytes_per_second > 0 ? device_.read_bytes_per_second
                                                           : device_.copy_bytes_per_second;
    return rate > 0 ? std::clamp(rate / whole * size / 4, 0.005, 1.0) : otherwise;
  }

  // Share of what the memory moves that is asked for.
  double used_share(const Access& access) const {
    const std::vector<Run> runs = runs_of(access.offset);
    double run = 1;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Run& one : runs) {
        if (one.length <= 1 || one.coefficient != run) continue;
        run *= one.length;
        grown = true;
        break;
      }
    }
    run *= access.size;
    if (run >= kLineBytes) return run / (run + kLostBytes);
    for (const Run& one : runs)
      if (one.coefficient == 1 && axes_[one.axis].extent > 1) return std::max(run / kLineBytes, 0.5);
    return measured_share(device_.strided_bytes_per_second, access.size, std::max(run, access.size) / kLineBytes);
  }

  double share_of(const Access& access) const {
    if (!access.gathers) return std::min(1.0, used_share(access) * side_by_side(access));
    for (const Run& one : runs_of(access.offset))
      if (one.coefficient == 1 && !access.moves[one.axis] && axes_[one.axis].extent > 1) return used_share(access);
    return measured_share(device_.gather_bytes_per_second, access.size, access.size / kLineBytes);
  }

  static double side_by_side(const Access& access) {
    int64_t step = 0;
    for (const kernel::IndexTerm& term : access.offset.terms)
      step = step == 0 ? std::abs(term.coefficient) : std::min(step, std::abs(term.coefficient));
    const int64_t first = *std::min_element(access.constants.begin(), access.constants.end());
    const auto near = std::count_if(access.constants.begin(), access.constants.end(),
                                    [&](int64_t constant) { return constant < first + std::max<int64_t>(1, step); });
    return static_cast<double>(std::max<int64_t>(1, near));
  }

  // How often each element is read where an index adds up axes.
  double overlap(const Access& access, double buffer) const {
    std::map<int, double> values;  // [axis] of what stands in the index
    for (const kernel::IndexTerm& term : access.offset.terms) {
      Index one;
      one.terms = {term};
      const std::vector<bool> axes = axes_in(one);
      const auto found = std::find(axes.begin(), axes.end(), true);
      if (found == axes.end()) continue;
      const kernel::Interval range = kernel::range_of(one, ranges_);
      const double count = static_cast<double>((range.high - range.low) / std::abs(term.coefficient) + 1);
      const auto [place, is_new] = values.try_emplace(static_cast<int>(found - axes.begin()), count);
      if (!is_new) place->second *= count;
    }
    double points = 1;
    for (const auto& [axis, count] : values) points *= std::min(count, axes_[axis].extent);
    return buffer > 0 ? std::max(1.0, points / buffer) : 1.0;
  }

  void add(const Access& access) {
    double asked = static_cast<double>(access.constants.size()), per_program = asked, again_near = 1, again_far = 1;
    size_t innermost = 0;
    for (size_t axis = 0; axis < axes_.size(); ++axis)
      if (access.axes[axis] && axes_[axis].block >= 0) innermost = axis + 1;
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      if (access.axes[axis]) {
        asked *= axes_[axis].extent;
        per_program *= axes_[axis].width;
      } else {
        (axis >= innermost ? again_near : again_far) *= axes_[axis].blocks;
      }
    }
    double buffer = 1;
    for (const Index& size : program_.buffers[access.first->buffer].shape)
      buffer *= static_cast<double>(kernel::range_of(size, ranges_).high);
    const double elements = buffer > 0 && !access.gathers ? std::min(asked, buffer) : asked;
    const double unique = elements * access.size, share = share_of(access);
    const double cache = static_cast<double>(device_.cache_bytes) * 0.8;
    const bool stays = unique <= cache;
    const double memory_passes = stays ? 1.0 : again_far;
    const double requests = again_far * again_near *
                            (access.gathers ? 1.0 : std::max(overlap(access, buffer), asked / std::max(elements, 1.0)));
    work_.estimate.memory_bytes += unique * memory_passes / share;
    work_.estimate.cache_bytes += unique * std::max(0.0, requests - memory_passes) / share;
    work_.bytes_asked += unique;
  }

  const tile::Program& program_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<Axis> axes_;                  // as blocks are numbered, then those that a block has whole
  std::vector<int> axis_of_;                // [symbol]
  std::vector<std::vector<bool>> depends_;  // [value][axis]
  std::vector<bool> is_place_;              // [value] made of indices alone
  std::vector<const Instruction*> makers_;  // [value]
  std::vector<Access> accesses_;
  GpuWork work_;
  int loads_ = 0;
};

}  // namespace

KernelEstimate estimate_map_and_fold(const tile::Program& program, const DeviceDescription& device) {
  return MapAndFoldEstimate(program, device).run();
}

}  // namespace kw::triton
