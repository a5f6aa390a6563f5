// Seconds of tile programs that fold and multiply.
#include <algorithm>
#include <cmath>
#include <map>

#include "targets/triton/cost.hpp"
#include "tile/consumers.hpp"

namespace kw::triton {

namespace {

using tile::Instruction;
using tile::Kind;

// The last cache serves several times what memory does, where nothing better was measured.
constexpr double kCacheOverMemory = 2.5;
// Triton's dots of f32 without tensor cores, of what the cores could do.
constexpr double kIeeeShare = 0.5;

// Warps that add while others multiply, over one block that does both in turn.
constexpr double kConsumersGain = 1.25;

// Tiles of fewer rows are multiplied by the older instruction, of this share of the rate.
constexpr double kRowsOfWgmma = 64, kSmallTileShare = 0.3;

// Of all blocks' waiting for each other, and of the loads, products and stores between, which follow each other.
constexpr double kWaitSeconds = 2e-6;

// Of a launch among many that wait for each other: its blocks load, multiply and store one after the other.
constexpr double kRepeatedSeconds = 1.5e-6;

// Products on tensor cores run at the full clock for so long; behind twice that power limits it. Between, the loss
// grows evenly, so that the longer of two kernels never seems the faster one.
constexpr double kCoolSeconds = 2e-3;

// Blocks along a dimension of the grid of which loops that are not equally long are counted, and such dimensions.
constexpr int64_t kBlocksTaken = 64;
constexpr size_t kMostVarying = 2;

class TileEstimate {
 public:
  TileEstimate(const tile::Program& program, const DeviceDescription& device)
      : program_(program), device_(device), ranges_(tile::ranges_of(program)), moved_(program.buffers.size()) {
    for (const tile::Symbol symbol : program.grid)
      blocks_ *= static_cast<double>(kernel::range_of(program.symbols[symbol].count, ranges_).high);
  }

  KernelEstimate run() {
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (one.results.size() == 1) makers_[one.results[0]] = &one;
    });
    walk(program_.body, blocks_);
    double memory_bytes = 0;
    for (size_t place = 0; place < program_.buffers.size(); ++place) {
      if (moved_[place] == 0) continue;
      const tile::Buffer& buffer = program_.buffers[place];
      double elements = 1;
      for (const tile::Index& size : buffer.shape)
        elements *= static_cast<double>(kernel::range_of(size, ranges_).high);
      memory_bytes += std::min(elements * static_cast<double>(size_of(buffer.dtype)), moved_[place]);
    }
    const double cache = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                            : kCacheOverMemory * device_.copy_bytes_per_second;
    const double units = static_cast<double>(std::max<int64_t>(device_.units, 1));
    const bool shared = program_.consumers.count > 1 && program_.consumers.along >= 0;
    const double together = shared ? static_cast<double>(program_.consumers.count) : 1;
    const double waves = std::max(blocks_ / together / units, 1e-9),
                 idle = std::max({1.0, std::ceil(waves) / waves, idle_of_uneven_programs()});
    const double arithmetic = 2 * operations_ / std::max(device_.fp32_flops, 1.0);  // peaks count two an instruction
    // Of consumers one computes while the other's products run.
    const double products = sustained(core_seconds_ * idle) + dot_seconds_ * idle;
    const double dots = program_.consumers.count > 1 ? std::max(products, arithmetic) : products + arithmetic;
    const double memory = memory_bytes / device_.copy_bytes_per_second;
    KernelEstimate estimate;
    estimate.memory_bytes = memory_bytes;
    estimate.cache_bytes = loaded_bytes_;
    estimate.flops = operations_;
    if (!is_repeated()) {
      estimate.seconds = waits_ * kWaitSeconds + std::max({dots, loaded_bytes_ / cache, memory});
      return estimate;
    }
    // The last cache holds what the launch before read, and gives each multiprocessor its share.
    const bool fits = memory_bytes <= static_cast<double>(device_.cache_bytes);
    estimate.seconds = kRepeatedSeconds + std::max({dots, loaded_bytes_ / cache * idle, fits ? 0.0 : memory});
    return estimate;
  }

 private:
  // A run-time size says which of many launches this is: each reads and writes a part of its buffers.
  bool is_repeated() const {
    return std::any_of(program_.symbols.begin(), program_.symbols.end(),
                       [](const tile::SymbolInfo& symbol) { return symbol.kind == tile::SymbolKind::kSize; });
  }

  double points(const tile::TileType& type) const {
    double count = 1;
    for (const tile::Symbol lane : type.lanes) count *= static_cast<double>(tile::width_of(program_, lane));
    return count;
  }

  double bytes_of(const tile::TileType& type) const { return static_cast<double>(tile::bytes_of(program_, type)); }

  void walk(const std::vector<Instruction>& body, double times) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kFor) {
        walk(one.body, times * steps_of(one));
      } else if (one.kind == Kind::kStore) {
        moved_[one.access.buffer] += times * bytes_of(program_.values[one.operands[0]].type);
      } else if (one.kind == Kind::kLoad) {
        const bool once = program_.consumers.count > 1 && program_.consumers.along >= 0 &&
                          one.mode == tile::CopyMode::kBulk && !tile::is_of_consumer(program_, one);
        const double bytes = times / (once ? static_cast<double>(program_.consumers.count) : 1.0) *
                             share_within(one.access.mask) * bytes_of(program_.values[one.results[0]].type);
        moved_[one.access.buffer] += bytes;
        loaded_bytes_ += bytes;
      } else if (one.kind == Kind::kBarrier && one.scope == tile::Scope::kGrid) {
        waits_ += times / blocks_;
      } else if (one.kind == Kind::kDot) {
        (runs_on_tensor_cores(one) ? core_seconds_ : dot_seconds_) += times * seconds_of(one);
      } else if (one.kind == Kind::kOp || one.kind == Kind::kFold) {
        operations_ += times * points(program_.values[one.kind == Kind::kOp ? one.results[0] : one.operands[0]].type);
      }
    }
  }

  // Of programs that do one block after another, how much longer the last takes than all in the mean, where some
  // blocks' loops are longer than others'.
  double idle_of_uneven_programs() const {
    if (program_.consumers.count == 1 || program_.consumers.programs == 0) return 1;
    const Instruction& loop = tile::consuming_loop(program_);
    if (kernel::as_constant(loop.end - loop.begin)) return 1;
    const tile::LoopShares shares = tile::loop_shares(program_);
    return static_cast<double>(shares.most * shares.programs) / static_cast<double>(std::max<int64_t>(shares.all, 1));
  }

  // As many as blocks have in the mean, of blocks that are spread evenly over the grid.
  double steps_of(const Instruction& loop) const {
    const tile::Index points = loop.end - loop.begin;
    const auto steps = [&](int64_t count) {
      return std::ceil(static_cast<double>(count) / static_cast<double>(loop.step));
    };
    std::vector<bool> found;
    kernel::collect_symbols(points, found);
    std::vector<tile::Symbol> vary;
    for (size_t symbol = 0; symbol < found.size(); ++symbol)
      if (found[symbol]) vary.push_back(static_cast<tile::Symbol>(symbol));
    const bool by_block = std::all_of(vary.begin(), vary.end(), [&](tile::Symbol symbol) {
      return std::count(program_.grid.begin(), program_.grid.end(), symbol) > 0;
    });
    if (vary.empty() || !by_block || vary.size() > kMostVarying) return steps(kernel::range_of(points, ranges_).high);
    std::vector<int64_t> values(program_.symbols.size(), 0);
    double sum = 0, blocks = 0;
    const auto add = [&](const auto& self, size_t at) -> void {
      if (at == vary.size()) {
        sum += steps(kernel::evaluate(points, values));
        ++blocks;
        return;
      }
      const int64_t count = ranges_[vary[at]].high + 1, taken = std::min(count, kBlocksTaken);
      for (int64_t place = 0; place < taken; ++place) {
        values[vary[at]] = (2 * place + 1) * count / (2 * taken);
        self(self, at + 1);
      }
    };
    add(add, 0);
    return sum / blocks;
  }

  // Of a load, what is there whatever the block: lanes below a number.
  double share_within(tile::Value mask) const {
    const auto found = makers_.find(mask);
    if (found == makers_.end() || found->second->kind != Kind::kOp) return 1;
    const Instruction& made = *found->second;
    if (made.op == tile::ScalarOp::kLogicalAnd) return share_within(made.operands[0]) * share_within(made.operands[1]);
    if (made.op != tile::ScalarOp::kLess) return 1;
    const auto left = makers_.find(made.operands[0]), right = makers_.find(made.operands[1]);
    if (left == makers_.end() || right == makers_.end() || left->second->kind != Kind::kIndex ||
        right->second->kind != Kind::kConstant)
      return 1;
    const auto lane = kernel::as_symbol(left->second->index);
    if (!lane || program_.symbols[*lane].kind != tile::SymbolKind::kLane) return 1;
    return std::clamp(
        static_cast<double>(right->second->integer) / static_cast<double>(tile::width_of(program_, *lane)), 0.0, 1.0);
  }

  double rows_of(const tile::TileType& result) const {
    return result.lanes.size() < 2
               ? 1.0
               : static_cast<double>(tile::width_of(program_, result.lanes[result.lanes.size() - 2]));
  }

  // Of products on tensor cores that would take so long at the rate of short ones.
  double sustained(double seconds) const {
    const double warm = std::clamp(seconds / kCoolSeconds - 1, 0.0, 1.0);
    return seconds * (1 + warm * (1 / device_.sustained_share - 1));
  }

  bool runs_on_tensor_cores(const Instruction& dot) const {
    using tile::DotPrecision;
    return size_of(program_.values[dot.operands[1]].type.dtype) <= 2 || dot.precision == DotPrecision::kTf32 ||
           dot.precision == DotPrecision::kTf32x3 || dot.precision == DotPrecision::kBf16x6;
  }

  double seconds_of(const Instruction& dot) const {
    const tile::TileType &result = program_.values[dot.results[0]].type, &left = program_.values[dot.operands[1]].type;
    double operations = 2 * points(result);
    for (const tile::Symbol lane : left.lanes)
      if (std::find(result.lanes.begin(), result.lanes.end(), lane) == result.lanes.end())
        operations *= static_cast<double>(tile::width_of(program_, lane));
    double rate = device_.fp32_flops * kIeeeShare;
    if (size_of(left.dtype) <= 2) rate = device_.half_flops * (rows_of(result) < kRowsOfWgmma ? kSmallTileShare : 1.0);
    else if (dot.precision == tile::DotPrecision::kTf32) rate = device_.half_flops / 2;
    else if (dot.precision == tile::DotPrecision::kTf32x3 || dot.precision == tile::DotPrecision::kBf16x6)
      rate = device_.half_flops / 6;
    if (program_.consumers.count > 1) rate *= kConsumersGain;
    return operations / std::max(rate, 1.0);
  }

  const tile::Program& program_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  std::map<tile::Value, const Instruction*> makers_;
  std::vector<double> moved_;  // [buffer] bytes loaded and stored
  double blocks_ = 1, waits_ = 0, core_seconds_ = 0, dot_seconds_ = 0, operations_ = 0, loaded_bytes_ = 0;
};

}  // namespace

KernelEstimate estimate_products(const tile::Program& program, const DeviceDescription& device) {
  return TileEstimate(program, device).run();
}

}  // namespace kw::triton
