// Graph → the kernel of one fusion group: expressions, loads and stores over the group's domain, one axis per
// dimension, not yet scheduled.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/group_kernel.hpp"
#include "plan/convolution.hpp"
#include "plan/domain.hpp"
#include "plan/halves.hpp"
#include "plan/recurrence.hpp"

namespace kw::plan {

struct LoweredGroup;

// What becomes of attention's weights between the softmax and the product with the values (kept_weights.hpp).
struct KeptWeights {
  // What keeps or drops them: behind what the softmax yields, its product, a kernel that has the condition under which
  // a weight is kept. nullptr: none is dropped.
  std::shared_ptr<const LoweredGroup> group;
  ExprId kept = kNoExpr;
  double scale = 1.0;  // of all weights
};

// Of attention: softmax(alpha · queries · keys…) · values, before the product with the values. Without the softmax, two
// products with what stands between them element by element.
struct Attention {
  // The product of queries and keys, and what stands between it and the softmax (the values): its one store is of the
  // softmax's operand, over the product's places. An operator of attention has nothing of the kind in the graph: no
  // kernel.
  std::shared_ptr<const LoweredGroup> scores;
  bool has_softmax = true;
  KeptWeights weights;                 // behind the softmax
  std::optional<ProductOperand> mask;  // along queries (rows) and keys (columns): kept where true, or added
  bool is_causal = false;              // a query attends to keys up to its own place
  bool nothing_is_zero = false;        // rows that attend to no key are 0 (PyTorch's operator), else NaN (a softmax)
};

// What makes a convolution's image element by element, to be computed where the convolution's kernels read it. The
// kernel stores the whole image, and what others read of its other results.
struct ImageProducer {
  std::shared_ptr<const LoweredGroup> group;
  bool is_stored = false;  // others read the image, too

  const Store& image_store(ValueId image) const;
};

// Digits of a number, outermost first, and the distance of neighbours along each.
struct DigitStride {
  int64_t extent = 1, stride = 0;
  bool operator==(const DigitStride&) const = default;
};
using DigitStrides = std::vector<DigitStride>;

// An operand of linear attention's products: where its element at a number of the batch, of its rows (columns) and of
// the depth lies, and what makes it, unless memory has it.
struct LinearOperand {
  ProductOperand memory;  // its strides say nothing
  int64_t elements = 1;   // of the root, with its gaps
  DigitStrides batch, outer, depth;
  std::optional<ImageProducer> producer;
};

// Of linear attention: the product (queries · summary) is the group's, with one batch axis, and
// summary[batch, row, column] = Σ over keys of left[batch, row, key] · right[batch, key, column].
struct LinearAttention {
  LinearOperand left, right, query;
  int64_t rows = 1, columns = 1, keys = 1;
  bool transposed = false;  // the summary's rows are the columns of what queries are multiplied by
  // The weight of a query is its product with one operand's sums over the keys: that of rows, or of columns where
  // transposed. The group's kernel loads it; kNoValue: nothing is weighted.
  ValueId weight = kNoValue;
};

// Means and squared deviations that a group folds of its product: of each row over everything else, or of each of a
// sample's groups of rows over its columns.
struct FoldedStatistics {
  std::shared_ptr<const LoweredGroup> group;  // a kernel of what those folds lead to (new running statistics)
  int64_t groups_of_sample = 0;               // 0: of rows

  bool are_of_samples() const { return groups_of_sample > 0; }
};

struct LoweredGroup {
  GroupKernel kernel;
  std::vector<ValueId> buffers;  // per kernel buffer: the graph value whose storage it is (kNoValue: scratch)
  bool windowed = false;         // its reductions fold sliding windows or bags
  bool is_rounded = false;       // the last places of what it stores say nothing (rounded_values.hpp)
  bool bags = false;             // only the data tell how many elements each of them folds
  // Of a group with a matrix product: the kernel is what follows it, and loads the product where it would lie.
  std::optional<Product> product;
  std::vector<StoredHalves> halves;  // of its operands, those that the kernels which make them store
  // Of a group whose product is that of attention's weights, which stand nowhere in memory, and values.
  std::optional<Attention> attention;
  // Of a group whose product is that of queries and a summary of keys and values.
  std::optional<LinearAttention> linear_attention;
  // Of a group whose product is a convolution's: its operands and windows.
  std::optional<Convolution> convolution;
  std::optional<ImageProducer> producer;  // where nothing has made its image before
  // Of a group that also folds its product: the group's own kernel is pointwise; it "stores" what the k-th fold takes
  // in buffer −1 − k, and blocks fold that into parts.
  std::optional<FoldedStatistics> statistics;
  // Of a group that is a recurrent layer's node: no kernel but its name.
  std::optional<Recurrence> recurrence;
};

// nullopt when the nodes cannot be one kernel (analyse() says so, or an op has no expression).
std::optional<LoweredGroup> lower_group(const GraphFacts& facts, std::span<const NodeId> nodes,
                                        const std::vector<ValueId>& outputs);

}  // namespace kw::plan
