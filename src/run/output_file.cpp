#include "run/output_file.hpp"

#include <filesystem>

#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;

std::string OutputFile::absolute_path() const { return fs::absolute(path_).lexically_normal().string(); }

void OutputFile::remember() {
  if (!remembered_ && fs::exists(path_)) before_ = read_file(path_);
  remembered_ = true;
}

void OutputFile::write(const std::string& source) {
  remember();
  write_file_atomically(path_, source);
  written_ = source;
}

void OutputFile::put_back() {
  if (!remembered_) return;
  const bool is_there = fs::exists(path_);
  if (written_ && (!is_there || read_file(path_) != *written_)) return;
  if (before_) write_file_atomically(path_, *before_);
  else if (is_there) fs::remove(path_);
}

}  // namespace kw
