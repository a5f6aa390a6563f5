// Tensors that only kernels of ours read and write, as parts of one allocation: each costs the host as much time as a
// small kernel takes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "emit/program.hpp"

namespace kw {

struct ScratchMemory {
  std::map<std::string, int64_t> starts;  // in bytes, of each tensor by its name in the program's steps
  int64_t bytes = 0;
  std::string device;
};

// `apart`: tensors that have to stand alone, because they are returned, freed early or somebody else's memory. No parts
// where that would save no allocation.
ScratchMemory scratch_memory(const Graph& graph, const Program& program, const std::set<std::string>& apart);

}  // namespace kw
