// Bytes and arithmetic of tile programs that map elements and fold them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "targets/triton/cost.hpp"
#include "tile/alike.hpp"

namespace kw::triton {

namespace {

using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::Symbol;
using tile::Value;

// Lanes, and the blocks that share them out or the iterations that walk them.
struct Axis {
  Symbol block = -1, lane = -1;
  double blocks = 1, width = 1, extent = 1;
  bool walked = false;
};

class MapAndFoldEstimate {
 public:
  MapAndFoldEstimate(const tile::Program& program, const DeviceDescription& device)
      : program_(program),
        device_(device),
        ranges_(tile::ranges_of(program)),
        axis_of_(program.symbols.size(), -1),
        alike_(program),
        depends_(program.values.size()),
        is_place_(program.values.size()),
        stacked_(program.symbols.size()),
        parts_(program.values.size()) {
    find_stacked();
    find_axes();
    tile::for_each(program.body, [&](const Instruction& one) { has_loops_ = has_loops_ || one.kind == Kind::kFor; });
  }

  KernelEstimate run() {
    for (const Axis& axis : axes_) {
      work_.tile *= axis.width;
      if (!axis.walked) work_.programs *= axis.blocks;
    }
    for (const Instruction& one : program_.body) see(one, false);
    count_passes();
    for (const Access& access : accesses_) add(access);
    work_.warps = program_.warps;
    work_.live = has_loops_ ? std::max(1, loads_in_loops_) + carried_ : std::max(1, loads_) + 1;
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
    bool gathers = false, computes = false;  // its place is moved; by what no data decide
    int passes = 1;
  };

  struct LoopLoad {
    const Instruction* load = nullptr;
    Access access;
  };

  // Elements side by side in one access count as if each were read and written by itself.
  void find_stacked() {
    std::vector<bool> is_read(program_.values.size());
    tile::for_each(program_.body, [&](const Instruction& one) {
      for (Value operand : one.operands) is_read[operand] = true;
    });
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.kind == Kind::kStack) stacked_[one.to] = true;
      if (one.kind == Kind::kStack) parts_[one.results[0]].assign(one.operands.size(), true);
      if (one.kind != Kind::kUnstack) return;
      stacked_[one.from] = true;
      for (Value part : one.results) parts_[one.operands[0]].push_back(is_read[part]);
    });
  }

  // One for each element of a tile that is stored or loaded.
  std::vector<Access> apart(const Access& access, Value tile) const {
    if (parts_[tile].empty()) return {access};
    std::vector<Access> all;
    for (size_t element = 0; element < parts_[tile].size(); ++element) {
      if (!parts_[tile][element]) continue;
      all.push_back(access);
      all.back().offset = kernel::substitute(
          access.offset,
          [&](Symbol symbol) {
            return stacked_[symbol] ? Index(static_cast<int64_t>(element)) : kernel::symbol_index(symbol);
          },
          ranges_);
    }
    return all;
  }

  void find_axes() {
    const auto add = [&](Symbol block, Symbol lane, const Instruction* loop = nullptr) {
      Axis axis{block, lane};
      if (loop) axis.blocks = iterations_of(*loop);
      else if (block >= 0)
        axis.blocks = static_cast<double>(kernel::range_of(program_.symbols[block].count, ranges_).high);
      if (lane >= 0) axis.width = static_cast<double>(tile::width_of(program_, lane));
      axis.extent = loop ? static_cast<double>(kernel::range_of(loop->end, ranges_).high) : axis.blocks * axis.width;
      axis.walked = loop != nullptr;
      for (Symbol symbol : {block, lane})
        if (symbol >= 0) axis_of_[symbol] = static_cast<int>(axes_.size());
      axes_.push_back(axis);
    };
    const auto lane_of = [&](Symbol block, const std::string& suffix) {
      Symbol lane = -1;
      for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
        if (program_.symbols[symbol].kind == tile::SymbolKind::kLane &&
            program_.symbols[symbol].name + suffix == program_.symbols[block].name)
          lane = static_cast<Symbol>(symbol);
      return lane;
    };
    for (Symbol block : program_.grid) add(block, lane_of(block, "_block"));
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.kind == Kind::kFor && axis_of_[one.symbol] < 0) add(one.symbol, lane_of(one.symbol, "_start"), &one);
    });
    for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol)
      if (program_.symbols[symbol].kind == tile::SymbolKind::kLane && axis_of_[symbol] < 0 && !stacked_[symbol]) {
        add(-1, static_cast<Symbol>(symbol));
        if (is_of_parts(static_cast<Symbol>(symbol))) axes_.back().width = axes_.back().extent = 1;
      }
  }

  // Memory of the kernel's own, through which the blocks of a cooperative reduction combine their parts: next to
  // nothing.
  bool is_of_parts(const tile::Access& access) const {
    return program_.buffers[access.buffer].role == tile::BufferRole::kScratch;
  }

  bool is_of_parts(Symbol lane) const {
    bool parts = false, elements = false;
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.kind != Kind::kLoad && one.kind != Kind::kStore) return;
      (is_of_parts(one.access) ? parts : elements) |= tile::has_lane(tile::lanes_of(program_, one.access), lane);
    });
    return parts && !elements;
  }

  double iterations_of(const Instruction& loop) const {
    const double points = static_cast<double>(kernel::range_of(loop.end - loop.begin, ranges_).high);
    return std::ceil(points / static_cast<double>(loop.step));
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
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis]) count *= axes_[axis].width * (axes_[axis].walked ? axes_[axis].blocks : 1.0);
    return count * work_.programs;
  }

  bool varies_along_walk(const std::vector<bool>& axes) const {
    for (size_t axis = 0; axis < axes.size(); ++axis)
      if (axes[axis] && axes_[axis].walked) return true;
    return false;
  }

  // Is it computed in an earlier loop, too? What a walk computes again hides behind its loads.
  bool is_repeated(const Instruction& one) {
    const bool found = std::any_of(computed_.begin(), computed_.end(),
                                   [&](Value other) { return alike_.same(other, one.results[0]); });
    if (!found) computed_.push_back(one.results[0]);
    return found;
  }

  // What is carried varies along its lanes, and each iteration has its own.
  void see_loop(const Instruction& loop) {
    const auto set_axes = [&](const std::vector<Value>& values, bool inside) {
      for (Value value : values) {
        depends_[value].assign(axes_.size(), false);
        for (Symbol lane : program_.values[value].type.lanes) depends_[value][axis_of_[lane]] = true;
        if (inside) depends_[value][axis_of_[loop.symbol]] = true;
      }
    };
    set_axes(loop.arguments, true);
    const bool is_innermost = std::none_of(loop.body.begin(), loop.body.end(),
                                           [](const Instruction& one) { return one.kind == Kind::kFor; });
    for (const Instruction& one : loop.body) see(one, true);
    set_axes(loop.results, false);
    if (!is_innermost) return;
    work_.iterations += steps();
    count_carried(loop);
  }

  double steps() const {
    double count = 1;
    for (const Axis& axis : axes_)
      if (axis.walked) count *= axis.blocks;
    return count;
  }

  // Folds, of which several values may be carried: those whose next values need each other. Beside them counts and
  // places are carried, which are made of indices.
  void count_carried(const Instruction& loop) {
    const size_t count = loop.arguments.size();
    std::vector<size_t> fold(count);
    std::iota(fold.begin(), fold.end(), size_t{0});
    std::vector<bool> is_data(count);
    for (size_t at = 0; at < count; ++at) {
      std::set<Value> behind;
      is_data[at] = collect_behind(loop.yields[at], behind) && !is_place_beside(loop, at);
      for (size_t other = 0; other < count; ++other)
        if (behind.contains(loop.arguments[other])) {
          const size_t from = fold[other], to = fold[at];
          std::replace(fold.begin(), fold.end(), from, to);
        }
    }
    std::set<size_t> folds;
    for (size_t at = 0; at < count; ++at)
      if (is_data[at]) {
        ++carried_;
        folds.insert(fold[at]);
      }
    work_.folds += static_cast<double>(folds.size());
  }

  // All values of which it is made; is anything loaded among them?
  bool collect_behind(Value value, std::set<Value>& behind) const {
    if (!behind.insert(value).second) return false;
    const Instruction* made = alike_.maker(value);
    if (!made) return false;
    bool loads = made->kind == Kind::kLoad;
    for (Value operand : made->operands) loads = collect_behind(operand, behind) || loads;
    return loads;
  }

  bool is_place_beside(const Instruction& loop, size_t at) const {
    const Instruction* next = alike_.maker(loop.yields[at]);
    if (!next || next->kind != Kind::kOp || next->op != tile::ScalarOp::kSelect) return false;
    const Instruction* here = alike_.maker(next->operands[2]);
    return here && here->kind == Kind::kIndex;
  }

  void see(const Instruction& one, bool in_loop) {
    if (one.kind == Kind::kFor) return see_loop(one);
    std::vector<bool> axes = axes_in(one.index), moves(axes_.size());
    bool is_place = one.kind == Kind::kIndex || one.kind == Kind::kConstant;
    for (Value operand : one.operands) unite(axes, depends_[operand]);
    if (one.kind == Kind::kFold) {
      // Lanes that meet behind loops cost little beside these, and so do parts of rows.
      if (!has_loops_ && !is_of_parts(one.lanes[0])) {
        work_.estimate.flops += points(axes);
        work_.folds += is_second(one) ? 0 : 1;
      }
      for (Symbol lane : one.lanes) axes[axis_of_[lane]] = false;
    }
    if (one.kind == Kind::kScan) {
      axes[axis_of_[one.from]] = true;
      work_.estimate.flops += weight_of_scan(one.reduce) * points(axes) * static_cast<double>(one.results.size());
      // Lanes of a block wait for those before them, in every block; what is carried counts where the loop ends.
      work_.folds += in_loop ? 2 * steps() - 1 : 2;
    }
    if (one.kind == Kind::kOp) {
      is_place = std::all_of(one.operands.begin(), one.operands.end(), [&](Value value) { return is_place_[value]; });
      note_extent(one);
      const bool is_mask = is_place && program_.values[one.results[0]].type.dtype == DType::b1;
      const bool counts = in_loop ? !is_mask && !is_repeated(one) : !is_mask && !varies_along_walk(axes);
      if (counts) work_.estimate.flops += weight_of(one.op) * points(axes);
    }
    if ((one.kind == Kind::kLoad || one.kind == Kind::kStore) && !is_of_parts(one.access)) {
      Access access{&one.access, tile::offset_of(program_, one.access)};
      access.size = static_cast<double>(size_of(program_.buffers[one.access.buffer].dtype));
      if (one.kind == Kind::kLoad) axes.assign(axes_.size(), false);
      unite(axes, axes_in(access.offset));
      if (one.access.mask != tile::kNoValue) unite(axes, depends_[one.access.mask]);
      for (const tile::Coordinate& coordinate : one.access.coordinates) {
        if (coordinate.value == tile::kNoValue) continue;
        access.computes = is_place_[coordinate.value] && (access.computes || !access.gathers);
        access.gathers = true;
        unite(moves, depends_[coordinate.value]);
        unite(axes, depends_[coordinate.value]);
      }
      if (one.combines) access.passes = 2;  // what is folded into memory is read and written
      access.axes = axes;
      access.moves = moves;
      const Value tile = one.kind == Kind::kLoad ? one.results[0] : one.operands[0];
      for (Access& element : apart(access, tile)) {
        loads_ += one.kind == Kind::kLoad;
        if (one.kind == Kind::kLoad && in_loop) loads_in_loop_.push_back({&one, std::move(element)});
        else note(std::move(element));
      }
    }
    for (Value result : one.results) {
      depends_[result] = axes;
      is_place_[result] = is_place;
    }
  }

  const Instruction* maker(Value value, tile::ScalarOp op) const {
    const Instruction* made = alike_.maker(value);
    if (made && made->kind == Kind::kOp && made->op == tile::ScalarOp::kSelect) made = alike_.maker(made->operands[1]);
    return made && made->kind == Kind::kOp && made->op == op ? made : nullptr;
  }

  bool is_difference_from(Value value, tile::ReduceOp reduce) const {
    const Instruction* difference = maker(value, tile::ScalarOp::kSub);
    const Instruction* first = difference ? alike_.maker(difference->operands[1]) : nullptr;
    if (first && first->kind == Kind::kOp &&
        (first->op == tile::ScalarOp::kDiv || first->op == tile::ScalarOp::kMaximum))
      first = alike_.maker(first->operands[0]);
    return first && first->kind == Kind::kFold && first->reduce == reduce;
  }

  // The sum of a row's exponentials below its maximum, or of its squares around its mean, and the same of parts, which
  // have weights: the folds of a row count as one, as they did when what a fold costs was measured.
  bool is_second(const Instruction& fold) const {
    using tile::ScalarOp;
    if (fold.reduce != tile::ReduceOp::kSum) return false;
    const Value operand = fold.operands[0];
    if (const Instruction* power = maker(operand, ScalarOp::kExp))
      return is_difference_from(power->operands[0], tile::ReduceOp::kMax);
    if (const Instruction* sum = maker(operand, ScalarOp::kAdd)) {
      const Instruction* moved = maker(sum->operands[1], ScalarOp::kMul);
      return moved && is_difference_from(moved->operands[1], tile::ReduceOp::kSum);
    }
    const Instruction* product = maker(operand, ScalarOp::kMul);
    if (!product) return false;
    if (product->operands[0] == product->operands[1])
      return is_difference_from(product->operands[0], tile::ReduceOp::kSum);
    if (const Instruction* power = maker(product->operands[1], ScalarOp::kExp))
      return is_difference_from(power->operands[0], tile::ReduceOp::kMax);
    const Instruction* share = maker(product->operands[1], ScalarOp::kDiv);
    const Instruction* some = share ? maker(share->operands[1], ScalarOp::kMaximum) : nullptr;
    const Instruction* all = some ? alike_.maker(some->operands[0]) : nullptr;
    return all && all->kind == Kind::kFold;
  }

  // `index < extent` is what masks say of an axis that its blocks do not divide.
  void note_extent(const Instruction& one) {
    if (one.op != tile::ScalarOp::kLess) return;
    const Instruction *left = alike_.maker(one.operands[0]), *right = alike_.maker(one.operands[1]);
    if (!left || !right || left->kind != Kind::kIndex || right->kind != Kind::kConstant) return;
    for (Axis& axis : axes_) {
      if (axis.lane < 0 || axis.walked) continue;
      Index whole = kernel::symbol_index(axis.lane);
      if (axis.block >= 0) whole = whole + kernel::symbol_index(axis.block) * Index(static_cast<int64_t>(axis.width));
      const double end = static_cast<double>(right->integer), all = axis.blocks * axis.width;
      if (left->index == whole && end <= all && end > all - axis.width) axis.extent = end;
    }
  }

  // A load in several loops is one access that reads as often.
  void count_passes() {
    loads_in_loops_ = static_cast<int>(loads_in_loop_.size());
    for (size_t at = 0; at < loads_in_loop_.size(); ++at) {
      const auto same = [&](const LoopLoad& other) {
        return alike_.same(other.load->access, loads_in_loop_[at].load->access);
      };
      const auto first = loads_in_loop_.begin(), here = first + static_cast<long>(at);
      if (std::any_of(first, here, same)) continue;
      here->access.passes = static_cast<int>(std::count_if(here, loads_in_loop_.end(), same));
      note(std::move(here->access));
    }
  }

  void note(Access access) {
    const int64_t constant = access.offset.constant;
    access.offset.constant = 0;
    const auto same = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& one) {
      return !access.gathers && !one.gathers && one.first->buffer == access.first->buffer &&
             one.offset == access.offset && one.passes == access.passes;
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
      if (term.factors.size() != 1) continue;
      const kernel::IndexFactor& factor = term.factors[0];
      const bool remains = factor.kind == kernel::IndexFactor::Kind::kRemainder;
      if (!remains && factor.kind != kernel::IndexFactor::Kind::kSymbol) continue;
      std::vector<bool> used(program_.symbols.size());
      if (remains) kernel::collect_symbols(*factor.dividend, used);
      else used[factor.symbol] = true;
      for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol) {
        if (!used[symbol] || axis_of_[symbol] < 0) continue;
        const Axis& axis = axes_[axis_of_[symbol]];
        if (static_cast<Symbol>(symbol) != (axis.lane >= 0 ? axis.lane : axis.block)) continue;
        const auto divisor = remains ? kernel::as_constant(*factor.divisor) : std::nullopt;
        runs.push_back({axis_of_[symbol], std::abs(static_cast<double>(term.coefficient)),  // either way
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

  // Borders that are reflected or repeated, shifts, resizing: but for few elements neighbours are moved together.
  double computed_share(const Access& access) const {
    double run = access.size;
    for (size_t axis = 0; axis < axes_.size(); ++axis)
      if (access.moves[axis]) run *= axes_[axis].width;
    return run / (run + kLostBytes);
  }

  double share_of(const Access& access) const {
    if (!access.gathers) return std::min(1.0, used_share(access) * side_by_side(access));
    for (const Run& one : runs_of(access.offset))
      if (one.coefficient == 1 && !access.moves[one.axis] && axes_[one.axis].extent > 1) return used_share(access);
    if (access.computes) return computed_share(access);
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
      const int64_t steps = (range.high - range.low) / std::abs(term.coefficient);
      const double count = static_cast<double>(steps + 1);
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
      if (access.axes[axis] && axes_[axis].block >= 0 && !axes_[axis].walked) innermost = axis + 1;
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      if (access.axes[axis]) {
        asked *= axes_[axis].extent;
        per_program *= axes_[axis].walked ? axes_[axis].extent : axes_[axis].width;
      } else if (!axes_[axis].walked) {
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
    const double in_flight = per_program * access.size *
                             std::min(work_.programs, static_cast<double>(device_.units) * 2);
    const double passes = access.passes;
    const double memory_passes = (stays || in_flight <= cache ? 1.0 : passes) * (stays ? 1.0 : again_far);
    const double requests = passes * again_far * again_near *
                            (access.gathers ? 1.0 : std::max(overlap(access, buffer), asked / std::max(elements, 1.0)));
    work_.estimate.memory_bytes += unique * memory_passes / share;
    work_.estimate.cache_bytes += unique * std::max(0.0, requests - memory_passes) / share;
    work_.bytes_asked += unique * passes;
  }

  const tile::Program& program_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<Axis> axes_;    // as blocks are numbered, then those that a block has whole
  std::vector<int> axis_of_;  // [symbol]
  const tile::Alike alike_;
  std::vector<std::vector<bool>> depends_;  // [value][axis]
  std::vector<bool> is_place_;              // [value] made of indices alone
  std::vector<bool> stacked_;               // [symbol] lanes along which tiles are stacked
  std::vector<std::vector<bool>> parts_;    // [value] of stacked tiles: which parts are there; empty: not stacked
  std::vector<Access> accesses_;
  std::vector<LoopLoad> loads_in_loop_;
  std::vector<Value> computed_;  // in loops
  GpuWork work_;
  bool has_loops_ = false;
  int loads_ = 0, loads_in_loops_ = 0;
  int carried_ = 0;  // values of folds
};

}  // namespace

KernelEstimate estimate_map_and_fold(const tile::Program& program, const DeviceDescription& device) {
  return MapAndFoldEstimate(program, device).run();
}

}  // namespace kw::triton
