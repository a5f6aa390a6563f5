#include "support/scratch.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;

Scratch::Scratch() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string pattern = (parent / "kernelwright-XXXXXX").string();
  if (error || mkdtemp(pattern.data()) == nullptr)
    throw Error(ErrorKind::kMissing, "cannot create a folder in " + parent.string() + ": " + (error ? error.message() : std::strerror(errno)) + ".",
                "Free some space, or set TMPDIR to a folder that can be written.");
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

std::string Scratch::write(const std::string& name, std::string_view content) {
  const std::string path = folder_ + "/" + name;
  write_file_atomically(path, content);
  return path;
}

}  // namespace kw
