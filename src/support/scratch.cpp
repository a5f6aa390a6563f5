#include "support/scratch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

// A folder has this name from the moment when it is locked, not before. kernelwright/running/scratch.py has it too.
constexpr std::string_view kMade = "kernelwright-", kInUse = "kernelwright-run-";

// An open and locked folder, or -1 where it is somebody else's.
int lock(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  if (descriptor >= 0) close(descriptor);
  return -1;
}

}  // namespace

Scratch::Scratch() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string pattern = (parent / (std::string(kMade) + "XXXXXX")).string();
  if (error || mkdtemp(pattern.data()) == nullptr)
    throw Error(
        ErrorKind::kMissing,
        "cannot create a folder in " + parent.string() + ": " + (error ? error.message() : std::strerror(errno)) + ".",
        "Free some space, or set TMPDIR to a folder that can be written.");
  lock_ = lock(pattern);
  folder_ = pattern;
  const fs::path locked = parent / (std::string(kInUse) + pattern.substr(pattern.size() - 6));
  fs::rename(folder_, locked, error);
  if (!error) folder_ = locked;
}

Scratch::~Scratch() {
  std::error_code error;
  fs::remove_all(folder_, error);
  if (lock_ >= 0) close(lock_);
}

void remove_left_over_scratch() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  for (fs::directory_iterator one(parent, error), end; !error && one != end; one.increment(error)) {
    if (!one->path().filename().string().starts_with(kInUse)) continue;
    const int descriptor = lock(one->path());
    std::error_code ignored;
    if (descriptor < 0) continue;
    fs::remove_all(one->path(), ignored);
    close(descriptor);
  }
}

std::string Scratch::write(const std::string& name, std::string_view content) {
  const std::string path = folder_ + "/" + name;
  write_file_atomically(path, content);
  return path;
}

}  // namespace kw
