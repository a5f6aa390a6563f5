// A folder for files that live as long as this object. It is locked (flock) for as long, so that the folders of
// programs that were killed can be told from those in use.
#pragma once

#include <string>
#include <string_view>

namespace kw {

class Scratch {
 public:
  Scratch();  // throws kMissing when the temporary folder cannot be written
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string write(const std::string& name, std::string_view content);  // returns the path
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  int lock_ = -1;
};

// Removes what programs that were killed have left in the temporary folder: scratch folders of kw and of its workers
// (kernelwright/running/scratch.py), this user's.
void remove_left_over_scratch();

}  // namespace kw
