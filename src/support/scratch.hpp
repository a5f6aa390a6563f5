// A folder for files that live as long as this object.
#pragma once

#include <string>
#include <string_view>

namespace kw {

class Scratch {
 public:
  Scratch();                 // throws kMissing when the temporary folder cannot be written
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string write(const std::string& name, std::string_view content);   // returns the path
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace kw
