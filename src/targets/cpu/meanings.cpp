#include "targets/cpu/meanings.hpp"

#include <utility>

namespace kw::cpu {

namespace {

using Meaning = std::pair<std::string_view, std::string_view>;

constexpr Meaning kMeanings[] = {
    {"across", "1: the SIMD loop runs along the window instead of across neighbouring windows"},
    {"along", "which axis the SIMD loop runs along: 0 the one that suits memory best, 1 the next"},
    {"block_channels", "channels of a convolution whose products are added at a time"},
    {"block_columns", "columns of a matrix product that a thread takes at a time"},
    {"block_depth", "terms of a matrix product's sums that are added at a time"},
    {"block_filters", "filters of a convolution that a thread takes at a time"},
    {"block_places", "tiles of two by two results of a convolution that a thread takes at a time"},
    {"block_rows", "rows of a matrix product that a thread takes at a time"},
    {"columns", "columns that are folded side by side; more keeps more partial results in registers and cache"},
    {"keys", "keys of attention that are folded at a time"},
    {"piece", "elements of a scan that are computed with SIMD at a time"},
    {"queries", "queries of attention that a thread takes at a time"},
    {"rows", "rows of a scan that are walked side by side"},
    {"share",
     "number of elements from which on threads share the work; a small one uses all threads, a huge one only one"},
    {"tile", "side of the square tiles where an operand is transposed"},
};

}  // namespace

std::string_view meaning_of(std::string_view parameter) {
  for (const auto& [name, meaning] : kMeanings)
    if (name == parameter) return meaning;
  return "";
}

}  // namespace kw::cpu
