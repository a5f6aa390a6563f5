// Where kernels begin in their tensors, moved out of them: steps of a loop, which read and write other slices of the
// same tensors, are one kernel then, which is given other addresses.
#pragma once

#include <string>
#include <vector>

#include "tile/program.hpp"

namespace kw::plan {

struct MovedOffsets {
  tile::Program program;
  std::vector<int64_t> offsets;  // [buffer] elements behind the tensor's first at which the program's buffer begins
};

// Of buffers that are rows of elements, as far as every access says where it begins. A buffer that begins at an address
// which 16 bytes need not divide says so.
MovedOffsets with_offsets_moved(tile::Program program);

// The program's text without the names that come from the graph, and without how long the rows of elements are that it
// reads and writes element by element: programs of the same text compute the same.
std::string identity_of(tile::Program program);

// The first program, whose rows are no longer than the other's either. Both have the same identity, so that each access
// of one is an access of the other.
void shorten_rows(tile::Program& program, const tile::Program& other);

}  // namespace kw::plan
