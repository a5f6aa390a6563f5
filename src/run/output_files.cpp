#include "run/output_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "archive/archive.hpp"
#include "judge/problem_file.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/stamp.hpp"
#include "support/streams.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

constexpr size_t kProbeBytes = 1 << 16;  // about what the largest of our outputs takes

[[noreturn]] void refuse(const std::string& message, const std::string& hint) {
  throw Error(
      ErrorKind::kUser,
      ErrorText{.message = message, .where = "", .source = "", .hint = hint, .detail = "", .code = "bad-output"});
}

bool is_there(const struct stat& status) { return status.st_ino != 0; }

// Through symbolic links; st_ino is 0 where there is nothing.
struct stat look_at(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) status = {};
  return status;
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

void probe_output(const std::string& path, const std::string& what) {
  const struct stat status = look_at(path);
  if (S_ISDIR(status.st_mode))
    refuse(what + " " + path + " is a folder.",
           "Name a file in it, such as " + (fs::path(path) / "name").string() + ".");
  if (is_stream(path)) return;
  const fs::path folder = folder_of(path);
  std::error_code error;
  if (!fs::is_directory(folder, error))
    refuse("there is no folder " + folder.string() + " for " + what + " " + path + ".",
           "Create it, or name another place.");
  if (is_there(status) && access(path.c_str(), W_OK) != 0)
    refuse(what + " " + path + " cannot be written: " + std::strerror(errno) + ".", "Name another place.");
  // The folder's permissions alone say little: it may be on a full disk, or on one that is mounted read-only.
  try {
    const std::string probe = path + ".probe" + std::to_string(getpid());
    write_file_atomically(probe, std::string(kProbeBytes, '\n'));
    fs::remove(probe, error);
  } catch (const Error& failure) {
    if (failure.kind() == ErrorKind::kMissing)
      throw Error(ErrorKind::kMissing, ErrorText{.message = "there is no space for " + what + " " + path + ".",
                                                 .where = "",
                                                 .source = "",
                                                 .hint = "Free some, or write to another disk.",
                                                 .detail = failure.text().message,
                                                 .code = "disk-full"});
    refuse("the folder " + folder.string() + " cannot be written, where " + what + " " + path + " is to go (" +
               failure.text().message + ").",
           "Name another place.");
  }
}

void check_replaceable(const std::string& path, const std::string& hint) {
  const struct stat status = look_at(path);
  if (!S_ISREG(status.st_mode) || is_stream(path) || status.st_size == 0) return;
  const std::string content = read_file(path);
  if (is_unedited(content)) return;
  const bool ours = content.starts_with("# Made by Kernelwright");
  refuse(ours ? path + " was edited since Kernelwright wrote it, or an earlier version wrote it."
              : "there is a file " + path + " already, and Kernelwright did not write it.",
         hint);
}

CommandFiles::CommandFiles() {
  try {
    const std::string archive = Archive::default_path();
    for (const char* suffix : {"", "-wal", "-shm"}) inputs_.push_back(place_of(archive + suffix, "the archive"));
  } catch (const Error&) {
    // The commands that need an archive say that there is no place for one.
  }
}

CommandFiles::Place CommandFiles::place_of(const std::string& path, const std::string& what) {
  const struct stat status = look_at(path);
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const fs::path resolved = fs::weakly_canonical(absolute, error);
  return {.given = path,
          .what = what,
          .resolved = (error ? absolute.lexically_normal() : resolved).string(),
          .device = status.st_dev,
          .inode = status.st_ino,
          .regular = !is_stream(path)};
}

bool CommandFiles::same(const Place& one, const Place& other) {
  if (!one.regular || !other.regular) return false;
  return one.resolved == other.resolved || (one.inode != 0 && one.inode == other.inode && one.device == other.device);
}

void CommandFiles::reads(const std::string& path, const std::string& what) {
  if (is_there(look_at(path))) inputs_.push_back(place_of(path, what));
}

void CommandFiles::reads_problem(const std::string& path) {
  reads(path, "the problem file");
  try {
    for (const std::string& import : read_problem_file(path).imports) reads(import, "a module of the problem,");
  } catch (const Error&) {
    // The command says what is wrong with the file.
  }
}

void CommandFiles::writes(const std::string& path, const std::string& what) {
  outputs_.push_back(place_of(path, what));
}

void CommandFiles::writes_json(const std::string& path, const std::string& what) {
  writes(path, what);
  json_.push_back(path);
}

void CommandFiles::check() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Place& output = outputs_[i];
    for (const Place& input : inputs_)
      if (same(output, input))
        refuse(output.what + " " + output.given + " would overwrite " + input.what + " " + input.given + ".",
               "Name another file.");
    for (size_t j = 0; j < i; ++j)
      if (same(output, outputs_[j]))
        refuse(outputs_[j].what + " " + outputs_[j].given + " and " + output.what + " " + output.given +
                   " are the same file.",
               "Name another for one of them.");
  }
  // The archive is written, too.
  for (const Place& archive : inputs_)
    for (const Place& input : inputs_)
      if (archive.what == "the archive" && input.what != archive.what && same(archive, input))
        refuse("the archive's path " + archive.given + " (KW_ARCHIVE) is " + input.what + " itself.",
               "Set KW_ARCHIVE to another file.");
  for (const std::string& path : json_) {
    const struct stat status = look_at(path);
    if (!S_ISREG(status.st_mode) || is_stream(path)) continue;
    const std::string content = read_file(path);
    const size_t first = content.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && content[first] != '{')
      refuse("there is a file " + path + " already, and it holds no JSON.", "Remove it, or name another file.");
  }
  for (const Place& output : outputs_) probe_output(output.given, output.what);
}

std::string output_path(const std::string& asked, const std::string& problem) {
  return asked.empty() ? fs::path(problem).stem().string() + "_kw.py" : asked;
}

std::string resolve_output(const std::string& asked, const std::string& problem, bool force) {
  const std::string output = output_path(asked, problem);
  CommandFiles files;
  files.reads_problem(problem);
  files.writes(output, "the output");
  files.writes(rejected_path(output), "the file for a candidate that fails,");
  files.check();
  if (!force)
    for (const std::string& path : {output, rejected_path(output)}) check_replaceable(path);
  return output;
}

std::string rejected_path(const std::string& output) {
  const fs::path path(output);
  return (path.parent_path() / (path.stem().string() + ".rejected.py")).string();
}

}  // namespace kw
