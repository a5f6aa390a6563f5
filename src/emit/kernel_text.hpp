// The text form of KernelIR: what `kw inspect --stage kernels` shows and what tests are written in. Printing and
// parsing are inverse.
//
//   kernel softmax_kernel {
//     doc "Softmax over each row."
//     launch warps 8 stages 2
//     buffer x : f32[16000] input
//     buffer out : f32[16000] output unaligned
//     axis row = 16 parallel block 1
//     axis column = 1000 reduce block 1024
//     %x = load x[1000*row + column] if 0 <= row - 1 < 8 else -inf : f32
//     %row_max = reduce max(%x) : f32
//     %2 = sub(%x, %row_max) : f32
//     %value = exp(%2) : f32
//     %row_sum = reduce sum(%value) : f32
//     %5 = div(%value, %row_sum) : f32 named share
//     store %5 to out[1000*row + column]
//     body { let %x  init %row_max  loop { accumulate %row_max }  finish %row_max  …  store 0 }
//   }
//
// Constants: `%c = constant 1e-06 : f32`. Indices as values: `%i = index 4*row + (column // 8 % 4) : i64`.
// Components of a reduction: `reduce moments.1(%x)`. An expression whose name is unique is labelled with it, any other
// with its number; `named` keeps a name that is not unique. `body` is left out while arrange() has not run. `#` starts
// a comment.
#pragma once

#include <string>
#include <string_view>

#include "emit/kernel_ir.hpp"

namespace kw::kernel_ir {

using kernel::name_of;  // of operations

std::string print(const Kernel& kernel);
std::string print(const Kernel& kernel, const Index& index);  // "4*row + (column // 8 % 4)"

// Throws kUser with the line's number when the text is not a kernel.
Kernel parse_kernel(std::string_view text);

}  // namespace kw::kernel_ir
