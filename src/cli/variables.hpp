// The table of environment variables named KW_…: `kw doctor` prints it, docs/cli.md repeats it, and a test holds both
// to what the sources read.
#pragma once

#include <span>

namespace kw::cli {

struct Variable {
  const char* name;
  const char* meaning;
  bool internal = false;  // set by kw for its own parts, not by people
};

std::span<const Variable> variables();

}  // namespace kw::cli
