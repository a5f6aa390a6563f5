#include "support/text.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/error.hpp"
#include "support/streams.hpp"

namespace kw {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string out(buffer, result.ptr);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string read_file(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) throw Error(ErrorKind::kUser, "cannot read " + path + ": " + std::strerror(errno));
  std::string content;
  char buffer[1 << 16];
  for (size_t count; (count = std::fread(buffer, 1, sizeof buffer, file)) > 0;) content.append(buffer, count);
  const bool failed = std::ferror(file);
  std::fclose(file);
  if (failed) throw Error(ErrorKind::kUser, "cannot read " + path + ": " + std::strerror(errno));
  return content;
}

namespace {

// Closes `file`; false, with errno, when not everything has arrived.
bool write_and_close(FILE* file, std::string_view content) {
  if (!file) return false;
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int code = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = code;
  return written && closed;
}

// The file that a symbolic link leads to, so that it is written and the link stays.
std::string behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  std::filesystem::path place = path;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(place, error); ++links)
    place = place.parent_path() / std::filesystem::read_symlink(place, error);
  return place.string();
}

}  // namespace

bool is_stream(const std::string& path) {
  for (const char* opened : {"/dev/std", "/dev/fd/", "/proc/"})
    if (path.starts_with(opened)) return true;
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const bool stream = is_stream(path);
  const std::string target = stream ? path : behind_links(path), temporary = target + ".tmp" + std::to_string(getpid());
  const bool good = write_and_close(std::fopen(stream ? path.c_str() : temporary.c_str(), stream ? "ab" : "wb"),
                                    content) &&
                    (stream || std::rename(temporary.c_str(), target.c_str()) == 0);
  if (!good) {
    const int code = errno;
    const std::string reason = std::strerror(code);
    if (!stream) std::remove(temporary.c_str());
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
      throw Error(ErrorKind::kMissing, "cannot write " + path + ": " + reason + ".",
                  "Free some space, or write to another disk.");
    throw Error(ErrorKind::kUser, "cannot write " + path + ": " + reason,
                "Check that the folder exists, is writable and has space.");
  }
}

}  // namespace kw
