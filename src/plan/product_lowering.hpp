// A group of a matrix product and what follows it, element by element or folded over one dimension: the kernel of what
// follows, and where in it the product's elements stand.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/group_lowering.hpp"

namespace kw::plan {

// nullopt where what follows is not pointwise over the product's own elements, or cannot be embedded (embedding.hpp).
// The result may also be folded over the product's rows or columns (a convolution's over its filters), where one block
// can have all of them or parts be combined, or over windows of columns. Of a convolution's filters it may want means
// and variances (LoweredGroup::statistics).
std::optional<LoweredGroup> lower_with_product(const GraphFacts& facts, std::span<const NodeId> nodes, NodeId product,
                                               const std::vector<ValueId>& outputs);

// The same of what follows a product of the caller's, whose node is not among `nodes`. It may be folded over any one
// dimension of the product; where its columns are the points of these dimensions (`lengths`, outermost first), also
// over windows of columns, and with `statistics` to means and variances of rows over all others.
std::optional<LoweredGroup> lower_after_product(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                const Product& product, const std::vector<ValueId>& outputs,
                                                const Shape& lengths = {}, bool statistics = false);

// Do the nodes (ascending) make an operand of this one, other than views of `but_for`?
bool makes_operand(const GraphFacts& facts, std::span<const NodeId> nodes, NodeId node, ValueId but_for = kNoValue);

// Such a group of a product among `nodes`, named for all of them.
std::optional<LoweredGroup> lower_with(const GraphFacts& facts, std::span<const NodeId> nodes, const Product& product,
                                       const std::vector<ValueId>& outputs, const Shape& lengths, bool statistics);

// Does the kernel fold anything?
bool folds(const GroupKernel& kernel);

// The dimension of the product (batch axes, row, column) that the group's kernel folds; nullopt where it folds nothing.
std::optional<size_t> folded_dimension(const LoweredGroup& group);

// How many neighbouring columns the group's kernel folds together, a power of two of which tiles have several; 1: it
// folds something else, or nothing.
int64_t folded_columns(const LoweredGroup& group);

// Is that the columns, so few that a block can have all of them?
bool can_have_whole_rows(const LoweredGroup& group);

// Does it fold rows or columns such that blocks can fold what they have of these, and one more kernel combine it: no
// fold needs another's result, and nothing is stored along them that does? Squared deviations are not: the last block
// may have fewer points than the others.
bool can_fold_in_parts(const LoweredGroup& group);

// Along each of these dimensions of the product's columns, how many neighbours the group's kernel folds together, all
// of it but folds of that kind being for each such window, sample and row. nullopt: it folds something else. Columns
// beyond the last whole window count for nothing.
std::optional<std::vector<int64_t>> folded_windows(const LoweredGroup& group, const Shape& lengths);

// Does the access meet every one of `elements` once, in the order of memory along some order of the kernel's axes?
bool covers(const GroupKernel& kernel, const Access& access, int64_t elements);

// The buffer through which the group's kernel reads its product.
int product_buffer(const LoweredGroup& group);

// [axis] of the group's kernel: the distance of neighbours along it in the product's memory. Of the element at position
// p the axis has the value p / distance % extent.
std::vector<int64_t> distances_in_product(const LoweredGroup& group);

}  // namespace kw::plan
