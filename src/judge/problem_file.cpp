#include "judge/problem_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>

#include "archive/records.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "target/target.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const char* code, std::string message, std::string hint) {
  throw Error(ErrorKind::kUser, ErrorText{.message = std::move(message),
                                          .where = "",
                                          .source = "",
                                          .hint = std::move(hint),
                                          .detail = "",
                                          .code = code});
}

// Modules beside the file that it imports by name. Only what can change the problem's meaning without changing its own
// text matters here, so a textual look is enough: what it misses is at worst a stale answer that --fresh redoes.
std::vector<std::string> local_imports(const fs::path& folder, const std::string& source) {
  static const std::regex pattern(R"(^\s*(?:from\s+\.?([A-Za-z_]\w*)[\w.]*\s+import\b|import\s+([A-Za-z_]\w*)))");
  std::vector<std::string> found;
  for (const std::string& line : split_lines(source)) {
    if (line.find("import") == std::string::npos || line.size() > 1000) continue;
    std::smatch match;
    if (!std::regex_search(line, match, pattern)) continue;
    const std::string module = match[1].matched ? match[1].str() : match[2].str();
    for (const fs::path& path : {folder / (module + ".py"), folder / module / "__init__.py"}) {
      std::error_code error;
      if (fs::is_regular_file(path, error)) found.push_back(path.string());
    }
  }
  return found;
}

}  // namespace

std::string ProblemFile::title() const {
  return fs::path(path).filename().string() + (size.empty() ? "" : ", size " + size);
}

std::string ProblemFile::hash() const { return hash_of(ProblemRecord{name, path, source_with_imports}); }

ProblemFile read_problem_file(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      refuse("no-such-file", "there is no file " + path + ".", "Check the path.");
    refuse("unreadable", path + " cannot be read: " + std::strerror(errno) + ".",
           "Check the permissions of the file and its folders.");
  }
  if (S_ISDIR(status.st_mode))
    refuse("is-a-folder", path + " is a folder, not a Python file.", "Name one file in it; `kw bench` takes folders.");
  if (access(path.c_str(), R_OK) != 0)
    refuse("unreadable", path + " cannot be read: " + std::strerror(errno) + ".", "Check the file's permissions.");
  if (!S_ISREG(status.st_mode)) refuse("not-a-file", path + " is not a regular file.", "Give a Python source file.");
  constexpr int64_t kLargestSource = 64 << 20;
  if (status.st_size > kLargestSource)
    refuse("not-text", path + " is larger than 64 MiB, so it is no Python source.",
           "Give a Python source file (UTF-8).");

  ProblemFile file;
  file.path = fs::absolute(path).lexically_normal().string();
  file.name = fs::path(path).stem().string();
  file.source = read_file(path);
  if (file.source.find_first_not_of(" \t\r\n\f\v") == std::string::npos)
    refuse("empty-file", path + " is empty.", "A problem file defines Model, get_inputs() and get_init_inputs().");
  if (file.source.find('\0') != std::string::npos)
    refuse("not-text", path + " is not a text file, so it cannot be Python.", "Give a Python source file (UTF-8).");

  file.source_with_imports = file.source;
  std::set<std::string> seen{file.path};
  std::vector<std::pair<fs::path, std::string>> waiting{{fs::path(file.path).parent_path(), file.source}};
  constexpr size_t kMostImports = 200;
  while (!waiting.empty()) {
    const auto [folder, source] = waiting.back();
    waiting.pop_back();
    for (const std::string& import : local_imports(folder, source)) {
      if (!seen.insert(import).second || seen.size() > kMostImports) continue;
      const std::string text = read_file(import);
      file.imports.push_back(import);
      file.source_with_imports += "\n# " + fs::path(import).filename().string() + "\n" + text;
      waiting.emplace_back(fs::path(import).parent_path(), text);
    }
  }
  return file;
}

bool has_sizes(const std::string& source) {
  static const std::regex takes_size(R"(^def get_inputs\(\s*size\b)");
  bool table = false, taken = false;
  for (const std::string& line : split_lines(source)) {
    if (line.starts_with("SIZES")) table = true;
    if (line.starts_with("def get_inputs(")) taken = taken || std::regex_search(line, takes_size);
  }
  return table && taken;
}

ProblemFile read_problem_file(const std::string& path, const std::string& asked, const Target& target) {
  ProblemFile file = read_problem_file(path);
  if (!has_sizes(file.source)) {
    if (!asked.empty())
      refuse("no-sizes", path + " has one size only, so --size " + asked + " means nothing to it.",
             "Leave --size out, or add a table SIZES and write get_inputs(size=...) as docs/cli.md shows.");
    return file;
  }
  file.size = !asked.empty() ? asked : std::string(target.usual_size());
  file.source_with_imports += "\n# size: " + file.size + "\n";
  return file;
}

}  // namespace kw
