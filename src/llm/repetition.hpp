// Small models that go round in circles: the same lines again and again until their tokens run out.
#pragma once

#include <cstddef>
#include <string_view>

namespace kw::llm {

// Does the text end in one piece of it, of at most 400 characters, that stands there so often that more would be the
// same? Sixteen times, and 600 characters at least: tables of constants repeat too.
constexpr size_t kCircleStep = 256;  // characters between two looks
bool goes_in_circles(std::string_view text);

}  // namespace kw::llm
