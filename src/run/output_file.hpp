// The file that a candidate is written to. One stands there from its verification on, so that an interrupt keeps it;
// where it is not to stay, what was there before comes back.
#pragma once

#include <optional>
#include <string>

namespace kw {

class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string absolute_path() const;
  void remember();                        // what put_back() restores; the first write() does so, too
  void write(const std::string& source);  // whole or not at all
  void put_back();                        // nothing where nothing was remembered, or another command has written since

 private:
  std::string path_;
  bool remembered_ = false;
  std::optional<std::string> before_, written_;
};

}  // namespace kw
