// Indices that PyTorch would refuse: a kernel notes them in memory of the host, and the next call raises. Waiting for
// the device to say so would take longer than most kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emit/program.hpp"

namespace kw::triton {

inline constexpr const char* kRefusedPointer = "refused_ptr";  // i64 [sizes_held_against]: an index out of range, or 0

// The sizes of dimensions that the kernel holds indices against, each once; empty: it takes no kRefusedPointer.
std::vector<int64_t> sizes_held_against(const tile::Program& program);
// Where the kernel notes an index outside of such a size: "refused_ptr + 1".
std::string place_of_refused(const tile::Program& program, int64_t size);

// What a launch of the kernel of that name passes.
std::string refused_argument(const std::string& kernel);

// The Python functions that make and read what the kernels note, and the statement that has the next call raise; both
// empty where no kernel of the program holds indices against sizes.
std::string refused_definitions(const Program& program);
std::string raise_refused(const Program& program);

}  // namespace kw::triton
