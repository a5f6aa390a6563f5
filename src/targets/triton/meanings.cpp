#include "targets/triton/meanings.hpp"

#include <utility>

namespace kw::triton {

namespace {

using Meaning = std::pair<std::string_view, std::string_view>;

constexpr Meaning kMeanings[] = {
    {"block", "elements a program computes"},
    {"columns", "results side by side in a row that a thread computes from what it has read"},
    {"cooperative_block",
     "elements of a long row that each program keeps on chip in a cooperative reduction; 0: programs share no rows"},
    {"last_block", "1: the last program of the launch to end combines all parts; 0: a launch of its own does"},
    {"layout", "0 flat, 1 row by row, 2 square tiles, 3 tiles of whole rows, 4 tiles of rows of several short axes"},
    {"num_warps", "warps a program has, of 32 threads each"},
    {"persistent", "1: a row is kept on chip and read once; 0: it is walked in blocks"},
    {"prefetch", "blocks of a row that a scan loads before it works on the first of them"},
    {"r_block", "elements of the folded axis a program takes at a time"},
    {"rows", "rows of results that a thread computes from what it has read"},
    {"rows_together", "neighbouring rows of a convolution's result that read one window of the image"},
    {"columns_together", "neighbouring columns of a convolution's result that read one window of the image"},
    {"segments", "1: rows are cut into segments of one program each"},
    {"slices", "slices of a volume that a thread computes from what it has read"},
    {"split", "parts a row is cut into, so that more programs work on few rows"},
    {"x_block", "rows, or elements of the fastest axis, that a program computes"},
    {"y_block", "rows of results that a program computes"},
};

}  // namespace

std::string_view meaning_of(std::string_view parameter) {
  for (const auto& [name, meaning] : kMeanings)
    if (name == parameter) return meaning;
  return "";
}

}  // namespace kw::triton
