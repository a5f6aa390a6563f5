// Seconds of a tile program on a CPU. Constants were measured with attention of single precision; they tell it from
// the library's, and good blocks from bad ones.
#include <algorithm>
#include <cmath>

#include "kernel/operations.hpp"
#include "lower/lane_order.hpp"
#include "lower/memory_operands.hpp"
#include "targets/cpu/cost.hpp"

namespace kw::cpu {

namespace {

using tile::Instruction;
using tile::Kind;

// Of the rate of the library's largest products, that add_product reaches. 2.3 on an AMD EPYC with AVX-512, where MKL
// may not take its fastest path, 0.9 on one with AVX2; others were not measured. Of products of products (attention) it
// is told from the library's rate with smaller ones.
constexpr double kProductShare = 0.9, kWideProductShare = 1.5;
// Of products with the same weights in every step of a recurrence (docs/measurements/cpu.md).
constexpr double kRepeatedProductShare = 0.6;
constexpr double kInstructionsOfCycle = 2;    // of SIMD loops that nothing interrupts; an exponential per score: 0.6 ns
constexpr double kScatteredInstructions = 3;  // of an element that SIMD cannot take side by side
constexpr double kMaskedInstructions = 4;     // of one that lies across its neighbours and is asked for

class TileEstimate {
 public:
  TileEstimate(const tile::Program& program, const DeviceDescription& device)
      : program_(program),
        device_(device),
        ranges_(tile::ranges_of(program)),
        ranks_(lower::rank_lanes(program)),
        in_memory_(lower::find_memory_operands(program)),
        moved_(program.buffers.size()),
        made_of_products_(program.values.size()) {
    for (const tile::Symbol symbol : program.grid)
      blocks_ *= static_cast<double>(kernel::range_of(program.symbols[symbol].count, ranges_).high);
  }

  KernelEstimate run() {
    walk(program_.body, blocks_);
    double memory_bytes = 0, moved_bytes = 0;
    for (size_t place = 0; place < program_.buffers.size(); ++place) {
      moved_bytes += moved_[place];
      memory_bytes += std::min(bytes_of(program_.buffers[place]), moved_[place]);
    }
    const double cache = device_.cache_bytes_per_second > 0 ? device_.cache_bytes_per_second
                                                            : kCacheOverMemory * device_.copy_bytes_per_second;
    const double memory = memory_bytes / device_.copy_bytes_per_second + (moved_bytes - memory_bytes) / cache;
    // The last wave of blocks leaves cores idle.
    const double units = static_cast<double>(std::max<int64_t>(device_.units, 1));
    const double waves = std::ceil(blocks_ / units), at_work = waves > 0 ? blocks_ / waves : 1;
    const bool is_wide = has_chain_ || device_.vector_bytes >= kVectorBytesOfAvx512;
    const double share = is_wide ? kWideProductShare : kProductShare;
    const double products = products_ / share + repeated_products_ / kRepeatedProductShare;
    const double arithmetic = products / (device_.fp32_flops * at_work / units) +
                              instructions_ / (kInstructionsOfCycle * kInstructionsPerSecond * at_work);
    const double synchronise = device_.synchronise_seconds > 0 ? device_.synchronise_seconds : kSynchroniseSeconds;
    // Less than either hides the other entirely.
    KernelEstimate estimate;
    estimate.memory_bytes = memory_bytes;
    estimate.cache_bytes = moved_bytes - memory_bytes;
    estimate.flops = products_ + repeated_products_ + instructions_;
    estimate.seconds = std::max(memory, arithmetic) + 0.2 * std::min(memory, arithmetic) + synchronise;
    return estimate;
  }

 private:
  // Of loops: g++ prefers registers of 32 bytes where there are larger ones.
  double lanes() const { return std::max(1.0, static_cast<double>(std::min<int64_t>(device_.vector_bytes, 32)) / 4); }

  double points(tile::Value value) const {
    double count = 1;
    for (const tile::Symbol lane : program_.values[value].type.lanes)
      count *= static_cast<double>(tile::width_of(program_, lane));
    return count;
  }

  double bytes_of(const tile::Buffer& buffer) const {
    double bytes = static_cast<double>(size_of(buffer.dtype));
    for (const tile::Index& size : buffer.shape) bytes *= static_cast<double>(kernel::range_of(size, ranges_).high);
    return bytes;
  }

  // A loop that ends where a block's position says is half as long for all blocks together.
  double iterations(const Instruction& loop) const {
    const auto range = kernel::range_of(loop.end - loop.begin, ranges_);
    return std::ceil(static_cast<double>(std::max<int64_t>(range.low, 0) + range.high) / 2 /
                     static_cast<double>(loop.step));
  }

  void walk(const std::vector<Instruction>& body, double times) {
    for (const Instruction& one : body) {
      const bool is_made = one.kind == Kind::kDot || std::any_of(one.operands.begin(), one.operands.end(),
                                                                 [&](tile::Value of) { return made_of_products_[of]; });
      for (const tile::Value result : one.results) made_of_products_[result] = is_made;
      if (one.kind == Kind::kFor) {
        in_steps_ += one.step == 1 ? 1 : 0;
        walk(one.body, times * iterations(one));
        in_steps_ -= one.step == 1 ? 1 : 0;
      } else if (one.kind == Kind::kIf) {
        // What a mask asks for of whole blocks (lower/skip_masked.hpp) is the exception.
      } else if (one.kind == Kind::kStore || one.kind == Kind::kLoad) {
        const tile::Value value = one.kind == Kind::kStore ? one.operands[0] : one.results[0];
        double& moved = moved_[one.access.buffer];
        // The rate of products has an operand that they read where it lies, unless each block fetches it anew.
        const double whole = bytes_of(program_.buffers[one.access.buffer]);
        if (in_memory_[value] && whole <= static_cast<double>(device_.unit_cache_bytes)) {
          moved = std::max(moved, whole);
          continue;
        }
        moved += times * points(value) * static_cast<double>(size_of(program_.values[value].type.dtype));
        instructions_ += times * points(value) * instructions_of(one.access);
      } else if (one.kind == Kind::kDot) {
        if (in_steps_ > 0) {
          repeated_products_ += times * flops_of(one);
        } else {
          has_chain_ = has_chain_ || made_of_products_[one.operands[1]] || made_of_products_[one.operands[2]];
          products_ += times * flops_of(one);
        }
        instructions_ += times * 2 * points(one.results[0]) / lanes();  // sums are loaded and stored
      } else if (one.kind == Kind::kOp) {
        instructions_ += times * points(one.results[0]) * kernel::vector_instructions_of(one.op) / lanes();
      } else if (one.kind == Kind::kFold || one.kind == Kind::kScan) {
        instructions_ += times * points(one.operands[0]) / lanes();
      }
    }
  }

  // Of an element.
  double instructions_of(const tile::Access& access) const {
    if (is_dense(access)) return 1 / lanes();
    const auto lanes = tile::lanes_of(program_, access);
    const auto is_along = [&](tile::Symbol lane) {
      return tile::stride_along(program_, access, lane) == tile::Index(1);
    };
    const bool turns = std::any_of(lanes.begin(), lanes.end(), is_along);
    return turns && access.mask != tile::kNoValue ? kMaskedInstructions : kScatteredInstructions;
  }

  // Do neighbours along the innermost loop lie side by side in memory?
  bool is_dense(const tile::Access& access) const {
    const auto lanes = tile::lanes_of(program_, access);
    if (lanes.empty()) return true;
    const auto ranked_below = [&](tile::Symbol left, tile::Symbol right) { return ranks_[left] < ranks_[right]; };
    const tile::Symbol inner = *std::max_element(lanes.begin(), lanes.end(), ranked_below);
    const tile::Buffer& buffer = program_.buffers[access.buffer];
    for (size_t place = 0; place < access.coordinates.size(); ++place) {
      const bool side_by_side = buffer.strides.empty() ? place + 1 == access.coordinates.size()
                                                       : buffer.strides[place] == tile::Index(1);
      if (side_by_side && tile::has_lane(tile::lanes_of(program_, access.coordinates[place].index), inner)) return true;
    }
    return false;
  }

  double flops_of(const Instruction& dot) const {
    double flops = 2 * points(dot.results[0]);
    const auto& lanes_of_result = program_.values[dot.results[0]].type.lanes;
    for (const tile::Symbol lane : program_.values[dot.operands[1]].type.lanes)
      if (!tile::has_lane(lanes_of_result, lane)) flops *= static_cast<double>(tile::width_of(program_, lane));
    return flops;
  }

  const tile::Program& program_;
  const DeviceDescription& device_;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<int> ranks_;
  std::vector<bool> in_memory_;  // [value] is it an operand that is read where it lies?
  std::vector<double> moved_;    // [buffer] bytes loaded and stored
  double blocks_ = 1, products_ = 0, repeated_products_ = 0, instructions_ = 0;
  std::vector<bool> made_of_products_;  // [value]
  bool has_chain_ = false;              // a product of such a value
  int in_steps_ = 0;                    // loops around that go point by point
};

}  // namespace

KernelEstimate estimate_of(const tile::Program& program, const DeviceDescription& device) {
  return program.grid.empty() ? estimate_loops(program, device) : TileEstimate(program, device).run();
}

}  // namespace kw::cpu
