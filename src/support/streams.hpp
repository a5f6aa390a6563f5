#pragma once

#include <string>

namespace kw {

// A pipe, a device or what the shell opened: written to, for no file can or may stand in its place.
bool is_stream(const std::string& path);

}  // namespace kw
