// Products as exact as f32 on tensor cores: the scheme `fp16x3` of a schedule.
#pragma once

#include "tile/program.hpp"

namespace kw::lower {

// Writes out each dot of the precision fp16x3. An operand is the sum of a half and of what that lacks, as a half, too:
// the two that it is made of, where it is such a sum, or a half that it is rounded to. The two small products come
// first, and the sum of all three is added to the total in f32: tensor cores round sums down to the accumulator's last
// place, so that what is summed so far stays out of them.
void write_three_products(tile::Program& program);

}  // namespace kw::lower
