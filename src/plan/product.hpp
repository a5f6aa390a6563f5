// Matrix products among a graph's nodes: what the contraction scheduler takes, as strides over the operands' storage.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "plan/domain.hpp"

namespace kw::plan {

// Rows or columns of a product of which one block can have all, for what follows to fold its result over them.
constexpr int64_t kMostFolded = 256;
constexpr int64_t kWidestHead = 256;  // features of a query or value of attention that one kernel keeps as a tile
// Of decoding, which reads keys and values once, however many tiles they are in: the features, and the rows of queries
// that share a head of keys. Products of as many rows in single precision are bound by the cores for it.
constexpr int64_t kWidestHeadOfFew = 1024, kFewRows = 16, kFewRowsInHalves = 128;

// left[batch…, row, depth] · right[batch…, depth, column]: one of the two, or what is added to their product. Strides
// are in elements of the root's storage; 0 where all points share an element.
struct ProductOperand {
  ValueId root = kNoValue;  // the value whose storage it lies in
  std::string name;         // the root's, in the graph
  DType dtype = DType::f32;
  int64_t offset = 0;   // elements from the root's first to its own
  bool aligned = true;  // the root's data pointer is divisible by 16 bytes
  Shape batch;          // stride along each batch axis
  int64_t row = 0;      // along rows; of the right one 0
  int64_t column = 0;   // along columns; of the left one 0
  int64_t depth = 0;    // along what is summed over; of an addend 0
};

// result = alpha · Σ over depth of left · right + beta · addend. The result has no gaps; batch axes along which `right`
// is shared are rows where the strides allow it.
struct Product {
  NodeId node = kNoNode;
  ValueId result = kNoValue;
  Shape batch;
  int64_t rows = 1, columns = 1, depth = 1;
  Shape strides;  // of the result: batch axes, row, column; empty: row-major
  ProductOperand left, right;
  std::optional<ProductOperand> addend;
  double alpha = 1.0, beta = 1.0;
  bool rounded = false;  // PyTorch may round operands in f32 to TF32's 11 digits

  int64_t batches() const { return kw::product(batch); }
  Shape result_shape() const;
  Shape result_strides() const;
  double flops() const;  // a product and a sum count as two
};

// mm, bmm, matmul of matrices, linear, addmm and baddbmm, in f32, f16 or bf16, with no empty size. nullopt for all
// else. Axes along which operands can be walked as one are one, unless `all_axes`.
std::optional<Product> product_of(const GraphFacts& facts, NodeId node, bool all_axes = false);

// The two tensors that such a node multiplies.
struct Factors {
  ValueId left = kNoValue, right = kNoValue;
};
Factors factors_of(const Node& node);

// Where a tensor lies.
ProductOperand placed(const GraphFacts& facts, ValueId value);
// The stride along each of `batch` of a tensor whose axes but the last `inner` are broadcast to it. nullopt: they are
// not.
std::optional<Shape> batch_strides(const TensorType& type, int64_t inner, const Shape& batch);

// The one node among `nodes` that is a product; kNoNode where there is none, or another library call.
NodeId product_among(const GraphFacts& facts, std::span<const NodeId> nodes);

}  // namespace kw::plan
