// The files that a command reads and writes: none may be both, no two of those it writes may be one, and a file that
// somebody edited is not overwritten.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace kw {

// Throws kUser when `path` is a folder, lies in none or in one that cannot be written, or may itself not be written;
// kMissing when the disk has no room for a few kilobytes. `what` names it in the message: "the output", "--json". Pipes
// and devices pass.
void probe_output(const std::string& path, const std::string& what);

// Throws kUser when a file of the user's stands at `path`: one that kw did not write, or one that was edited since.
void check_replaceable(const std::string& path,
                       const std::string& hint = "--force overwrites it; -o names another place.");

// Looked at before a command begins its work.
class CommandFiles {
 public:
  // Beside what is added, every command keeps its hands off the archive.
  CommandFiles();

  void reads(const std::string& path, const std::string& what);  // nothing where there is no such file
  void reads_problem(const std::string& path);                   // and the modules that it imports from its own folder
  void writes(const std::string& path, const std::string& what);
  void writes_json(const std::string& path, const std::string& what);  // what stands there must be JSON or empty to be
                                                                       // replaced

  // Throws kUser or kMissing for the first output that cannot be had.
  void check() const;

 private:
  struct Place {
    std::string given, what, resolved;
    dev_t device = 0;
    ino_t inode = 0;      // 0: no such file yet
    bool regular = true;  // or not there
  };
  static Place place_of(const std::string& path, const std::string& what);
  static bool same(const Place& one, const Place& other);

  std::vector<Place> inputs_, outputs_;
  std::vector<std::string> json_;
};

// Where the candidate goes: `asked`, or STEM_kw.py in the current folder.
std::string output_path(const std::string& asked, const std::string& problem);

// The same. Throws kUser when it cannot be written there, or (without `force`) when a file stands there that kw did not
// write or that was edited since.
std::string resolve_output(const std::string& asked, const std::string& problem, bool force);
std::string rejected_path(const std::string& output);  // where a candidate that failed is kept

}  // namespace kw
