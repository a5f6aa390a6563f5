// Numbers in single precision as sums of two halves, row by row (docs/precision.md): how an operand of a product lies
// so, what is computed for it, and the tensors of one that the kernel which makes it stores.
#pragma once

#include <string>
#include <vector>

#include "kernel/builder.hpp"
#include "plan/product.hpp"

namespace kw::plan {

enum class Side { kLeft, kRight };  // of a product's operands

// What stands for a number in single precision on tensor cores: the sum of two halves, or one, with TF32's 11 digits.
enum class Halves { kTwo, kOne };

// One dimension of an operand: an axis of the product, and the distance of neighbours along it.
struct OperandDimension {
  enum class Role { kBatch, kOuter, kDepth };  // outer: rows of the left operand, columns of the right one
  Role role = Role::kOuter;
  int batch = -1;
  int64_t extent = 1, stride = 0;
};

// In the order of memory, so that the last is the one along which neighbours lie side by side.
std::vector<OperandDimension> dimensions_of(const Product& product, Side side);
std::vector<OperandDimension> without_depth(std::vector<OperandDimension> dimensions);
Shape extents_of(const std::vector<OperandDimension>& dimensions);
Shape strides_of(const std::vector<OperandDimension>& dimensions);

// Halves have neighbours with zeros behind them, so that rows begin where the bulk copy engine wants them, and what is
// written is whole vectors: stores that end within one are made element by element (0.05 ms for 0.19 of 8205 rows of
// 2949).
std::vector<OperandDimension> padded(std::vector<OperandDimension> dimensions);
Shape padded_strides(const std::vector<OperandDimension>& dimensions);

// Of `count` numbers along these axes, scaled so that the largest lies between 2^14 and 2^15: how many at least are
// near the largest; whether more than a few are so small that sums of two halves (or one half) lose digits of them; and
// whether these count whatever they are multiplied by, for few are near the largest (docs/precision.md). `small`: how
// many there are, or more; 0 where there is none. `before`: what their names begin with.
struct LostDigits {
  kernel::ExprId near, small, has_small, loses;
};
LostDigits lost_digits(kernel::Builder& build, kernel::ExprId scaled, const std::vector<kernel::Symbol>& along,
                       int64_t count, const std::string& before = "", Halves halves = Halves::kTwo);

// A row (column) as a power of two times a sum of halves, or a half: `scaled` = value · 2^(14 − exponent), whose
// largest lies between 2^14 and 2^15. The others: LostDigits.
struct HalvesOfRow {
  kernel::ExprId exponent, scaled, near, small, has_small, loses;
};
HalvesOfRow halves_of_row(kernel::Builder& build, kernel::ExprId value, const std::vector<kernel::Symbol>& along,
                          int64_t count, const std::string& before = "", Halves halves = Halves::kTwo);
// 2^(exponent − 14): what `scaled` is to be multiplied by.
kernel::ExprId scale_back(kernel::Builder& build, kernel::ExprId exponent);

// What is stored of an operand: its halves (`low` is kNoExpr of one half), and of each row its scale, how many numbers
// are near its largest, and how many near ones of the other operand it needs, −1: none (ProductKernels::split).
struct SplitNumbers {
  kernel::ExprId high, low, scale, near, needs;
};
SplitNumbers split_numbers(kernel::Builder& build, const HalvesOfRow& row, int64_t count, Halves halves);

// How an operand is split: two that are split alike have the same halves.
struct SplitLayout {
  ValueId root = kNoValue;  // in whose storage it lies
  int64_t offset = 0;
  Halves halves = Halves::kTwo;
  std::vector<OperandDimension> dimensions;

  bool operator==(const SplitLayout& other) const;  // whatever batch axis a dimension is
};

// Tensors of an operand's halves that the kernel which makes it stores; by the numbers of tensors, which follow those
// of the graph's values.
struct StoredHalves {
  SplitLayout layout;
  int high = -1, low = -1, scale = -1, large = -1, needs = -1;  // of one half there is no `low`
  // [row] 1 where the operand itself is stored, for halves do not hold all its digits, and 0 where it is nowhere but in
  // its halves. −1: it is stored throughout.
  int whole = -1;
};

}  // namespace kw::plan
