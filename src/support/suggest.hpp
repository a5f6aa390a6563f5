// "Did you mean …": the nearest of several names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kw {

size_t edit_distance(std::string_view a, std::string_view b);  // Levenshtein, with swapped neighbours as one edit

// The candidate nearest to `word`, or empty when none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace kw
