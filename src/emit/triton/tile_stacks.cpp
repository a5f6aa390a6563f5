#include "emit/triton/tile_stacks.hpp"

#include <fmt/format.h>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::triton {
namespace {

// The helpers of fours know tiles of one and two dimensions.
std::string call_text(size_t parts, size_t dimensions, const std::string& of_two, const std::string& of_four,
                      const std::string& arguments, std::set<std::string>& helpers) {
  if ((parts != 2 && parts != 4) || dimensions < 1 || dimensions > 2)
    throw Error(ErrorKind::kInternal,
                fmt::format("a stack of {} tiles of {} dimensions has no Triton form", parts, dimensions));
  if (parts == 4) helpers.insert(of_four);
  return (parts == 4 ? of_four : of_two) + "(" + arguments + ")";
}

}  // namespace

std::string stack_text(const std::vector<std::string>& parts, size_t dimensions, std::set<std::string>& helpers) {
  return call_text(parts.size(), dimensions, "tl.join", "together", join(parts, ", "), helpers);
}

std::string unstack_text(const std::string& stacked, size_t parts, size_t dimensions, std::set<std::string>& helpers) {
  return call_text(parts, dimensions, "tl.split", "four_of", stacked, helpers);
}

}  // namespace kw::triton
