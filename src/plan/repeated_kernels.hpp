// Kernels that make what an earlier one of the program has made.
#pragma once

#include "emit/program.hpp"

namespace kw {

// The program without them: several products of one operand split it once (queries, keys and values of one input), and
// convolutions of one image lay it out once. Kernels are equal where they are one program on the same contents, and are
// spared where all that they write lies in tensors between kernels, whose readers then read those of the first.
Program with_each_kernel_once(Program program);

}  // namespace kw
