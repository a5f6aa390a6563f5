// The user's file as text: what is wrong with it that needs no Python to see, and what its identity rests on.
#pragma once

#include <string>
#include <vector>

namespace kw {

class Target;

struct ProblemFile {
  std::string path;                  // absolute
  std::string name;                  // the file's stem
  std::string source;                // its text
  std::string source_with_imports;   // followed by that of the local modules it imports, in the order found
  std::vector<std::string> imports;  // paths of those modules
  std::string size;                  // which of its SIZES was chosen; empty where it has none

  std::string title() const;  // file name and size, for people
  std::string hash() const;   // of source_with_imports, as the archive computes it
};

// Throws kUser for a missing, unreadable, empty or binary file and for a folder.
ProblemFile read_problem_file(const std::string& path);

// Whether a file of this text has a table SIZES, and a get_inputs() that takes one of their names.
bool has_sizes(const std::string& source);

// The same at one of its sizes: `asked`, or when that is empty the target's usual one. The
// size becomes part of what the archive knows the problem by. Throws kUser when a size is asked for by name and the
// file has none.
ProblemFile read_problem_file(const std::string& path, const std::string& asked, const Target& target);

}  // namespace kw
