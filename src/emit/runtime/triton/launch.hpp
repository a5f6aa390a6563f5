// The Python functions through which the emitted module launches its kernels: Triton looks at every argument of every
// launch, 16 µs of the host with ten tensors, and kernels of fixed shapes need no more than their tensors' addresses.
#pragma once

#include <string>

#include "emit/program.hpp"

namespace kw::triton {

// Whether the step's kernel takes tensors alone, and is launched as launch(kernel, grid, *tensors, **options).
bool takes_tensors_alone(const TileStep& step);

// That function, where the program calls it, and scratch_part(scratch, start, shape, dtype), what a launch takes for a
// tensor in scratch memory.
std::string launch_functions(const Program& program, bool splits_scratch);

}  // namespace kw::triton
