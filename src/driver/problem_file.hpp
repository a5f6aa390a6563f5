// The user's file as text: what is wrong with it that needs no Python to see, and what its identity rests on.
#pragma once

#include <string>
#include <vector>

namespace kw {

struct ProblemFile {
  std::string path;                    // absolute
  std::string name;                    // the file's stem
  std::string source;                  // its text
  std::string source_with_imports;     // followed by that of the local modules it imports, in the order found
  std::vector<std::string> imports;    // paths of those modules

  std::string hash() const;            // of source_with_imports, as the archive computes it
};

// Throws kUser for a missing, unreadable, empty or binary file and for a folder.
ProblemFile read_problem_file(const std::string& path);

}  // namespace kw
