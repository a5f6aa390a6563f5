// What the values of a tile program are made of, as far as it says how exactly they have to be computed.
#pragma once

#include <vector>

#include "tile/program.hpp"

namespace kw::lower {

struct PrecisionNeeds {
  // [value] Is it a sum with a constant that is no denormal? The hardware's inverse root takes denormals for zero,
  // which the epsilon of a normalisation rules out.
  std::vector<bool> has_epsilon;
  // [value] Do its operators alone, each rounded as PyTorch's, say every bit of it? The last places of sums depend on
  // their order, those of transcendental functions on who wrote them.
  std::vector<bool> known_to_the_bit;
  // [value] Is it made, element by element, of a product of matrices?
  std::vector<bool> is_of_product;
  // [value] Does something that follows turn its last place into a whole step: a rounding, a comparison, a cast to few
  // bits?
  std::vector<bool> decides;
  // Does something turn the last place of a float into a whole step: a rounding, a cast to few bits, a stored truth?
  bool has_steps = false;
  // May products and sums round once? Those behind a product of matrices, where nothing has steps: what the order of
  // its sums leaves open is more.
  bool contracts = false;
  bool maps_and_folds = false;  // nothing is multiplied, nothing walked

  // Has a quotient to be PyTorch's own? Triton's division of single floats is two units off at worst; but the mean of
  // equal powers of two is that power of two.
  bool asks_exact_quotient(tile::Value quotient, tile::Value dividend, tile::Value divisor) const {
    return asks_exact(quotient) || (known_to_the_bit[divisor] && !is_of_product[dividend]);
  }
  // Elsewhere than in programs without loops a step in any iteration may follow.
  bool asks_exact(tile::Value value) const { return maps_and_folds ? decides[value] : has_steps; }
};

PrecisionNeeds precision_needs(const tile::Program& program);

}  // namespace kw::lower
