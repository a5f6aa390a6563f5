#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "run/bench.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {

namespace fs = std::filesystem;

namespace {

// Digits compare as numbers, so that 2_x stands before 10_x.
bool naturally_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (!a.empty() && !b.empty()) {
    if (digit(a[0]) && digit(b[0])) {
      const auto length = [&](std::string_view text) {
        return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), digit) - text.begin());
      };
      const std::string_view left = a.substr(0, length(a)), right = b.substr(0, length(b));
      const auto value = [](std::string_view text) {
        return text.substr(std::min(text.find_first_not_of('0'), text.size()));
      };
      if (value(left).size() != value(right).size()) return value(left).size() < value(right).size();
      if (value(left) != value(right)) return value(left) < value(right);
      a.remove_prefix(left.size());
      b.remove_prefix(right.size());
      continue;
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

bool defines_model(const fs::path& path) {
  for (const std::string& line : split_lines(read_file(path.string())))
    if (line.starts_with("class Model(") || line.starts_with("class Model:") || line.starts_with("Model ="))
      return true;
  return false;
}

}  // namespace

std::vector<BenchProblem> find_problems(const std::vector<std::string>& paths) {
  std::vector<BenchProblem> problems;
  std::set<std::string> seen;
  const auto add = [&](const fs::path& path, const std::string& category) {
    const std::string absolute = fs::absolute(path).lexically_normal().string();
    if (seen.insert(absolute).second) problems.push_back({absolute, path.stem().string(), category});
  };
  for (const std::string& given : paths) {
    std::error_code error;
    if (!fs::exists(given, error))
      throw Error(ErrorKind::kUser, "there is no file or folder " + given + ".", "Check the path.");
    if (!fs::is_directory(given, error)) {
      add(given, fs::path(given).parent_path().filename().string());
      continue;
    }
    const size_t before = problems.size();
    std::vector<fs::path> files;
    for (auto entry = fs::recursive_directory_iterator(given, fs::directory_options::skip_permission_denied, error);
         entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (entry->is_directory(error) && (name.starts_with(".") || name == "__pycache__"))
        entry.disable_recursion_pending();
      else if (entry->path().extension() == ".py" && !name.ends_with("_kw.py") && entry->is_regular_file(error) &&
               defines_model(entry->path()))
        files.push_back(entry->path());
    }
    std::sort(files.begin(), files.end(),
              [](const fs::path& a, const fs::path& b) { return naturally_less(a.string(), b.string()); });
    const fs::path root = fs::absolute(given).lexically_normal();
    for (const fs::path& file : files) {
      const fs::path relative = fs::absolute(file).lexically_normal().parent_path().lexically_relative(root);
      add(file, relative == "." || relative.empty() ? root.filename().string() : relative.string());
    }
    if (problems.size() == before)
      throw Error(ErrorKind::kUser, "the folder " + given + " holds no problem.",
                  "A problem is a Python file with class Model, get_inputs() and get_init_inputs().");
  }
  return problems;
}

}  // namespace kw
