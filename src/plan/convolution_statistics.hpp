// Means and squared deviations of a convolution's result (docs/precision.md): what the places of a block fold to, and
// the kernel that combines these parts.
#pragma once

#include <vector>

#include "plan/convolution_operands.hpp"
#include "plan/split.hpp"

namespace kw::plan {

class ConvolutionStatistics : protected ConvolutionOperands {
 protected:
  ConvolutionStatistics(const LoweredGroup& group, const ConvolutionBlocks& blocks)
      : ConvolutionOperands(group, blocks) {}

  // Does a block lie in one sample?
  bool is_of_one_sample() const;
  // As many as are counted of a sample: threads have several rows of them, windows several places.
  int64_t places_of_sample() const;
  // Of those a block has some.
  int64_t counted_places() const { return (is_of_one_sample() ? 1 : one_.samples) * places_of_sample(); }

  // What a block makes of each of its rows.
  struct Part {
    Index sample, filter;       // where blocks lie in one sample; of all groups
    Index row, phase;           // of a group: a filter in a phase of the inner dimensions; the number of the outer ones
    Index block;                // along places
    Index left;                 // places from the block's first on
    std::vector<Symbol> lanes;  // that are folded
  };

  void declare_parts();
  // The mean of those that count and the sum of their squared deviations from it, as exact as two walks make them, of
  // each of `folded`. `mask`: where they are stored.
  void store_parts(ScheduledDraft& draft, const Part& part, const std::vector<ExprId>& folded, ExprId counts,
                   ExprId mask) const;
  void combine();

 private:
  int64_t blocks_of_places() const { return ceil_divide(counted_places(), blocks_.positions); }
  // Places that a block has, were it full.
  int64_t whole_block() const { return blocks_.positions * blocks_.rows; }
  bool has_phases() const { return one_.phases() > 1; }
  Shape parts_shape() const;
  std::vector<Index> place_of(const KernelDraft& draft, const Part& part) const;

  MadeParts parts_;
};

}  // namespace kw::plan
