// A line by which a file that kw wrote and nobody has edited since is known.
#pragma once

#include <string>
#include <string_view>

namespace kw {

// `source` with a second line that holds the hash of all the others.
std::string stamped(const std::string& source);

// Is this the text of a file as stamped() made it?
bool is_unedited(std::string_view content);

}  // namespace kw
