#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/variables.hpp"
#include "judge/environment.hpp"
#include "propose/compiler.hpp"
#include "run/report_version.hpp"
#include "support/error.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

// Something kw looks for. `needed`: without it no candidate can be made; otherwise only a part of the work is lost.
struct Check {
  std::string name;
  bool found = false;
  bool needed = false;
  std::string what;    // what was found, or what is missing
  std::string advice;  // what to do when it is missing
};

Check check_compiler() {
  Check check{.name = "C++ compiler",
              .found = false,
              .needed = true,
              .what = "",
              .advice = "Install g++ (apt-get install g++), or set CXX to a compiler."};
  check.what = find_compiler();
  if ((check.found = !check.what.empty())) return check;
  check.what = "none on PATH; candidates for the CPU are compiled with one";
  return check;
}

Check check_archive() {
  Check check{.name = "archive", .found = false, .needed = true, .what = "", .advice = ""};
  try {
    Archive archive;
    check.found = true;
    check.what = fmt::format("{} ({} results)", archive.path(), archive.results().size());
  } catch (const Error& error) {
    check.what = error.text().message;
    check.advice = error.text().hint;
  }
  return check;
}

Check check_temporary_folder() {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  struct statvfs status{};
  Check check{.name = "temporary folder",
              .found = false,
              .needed = true,
              .what = folder,
              .advice = "Free some space, or set TMPDIR to another folder."};
  if (statvfs(folder.c_str(), &status) != 0 || access(folder.c_str(), W_OK) != 0) {
    check.what = folder + " cannot be written";
    return check;
  }
  const double gigabytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize) / 1e9;
  check.found = gigabytes > 0.1;
  check.what = fmt::format("{} ({:.1f} GB free)", folder, gigabytes);
  return check;
}

std::vector<Check> check_everything() {
  const Environment environment = look_at_environment();
  std::vector<Check> checks;
  const auto add = [&](std::string name, bool needed, bool found, std::string what, std::string advice) {
    checks.push_back({std::move(name), found, needed, std::move(what), std::move(advice)});
  };
  const bool has_python = !environment.python_version.empty();
  add("Python", true, has_python,
      has_python ? environment.python + " (" + environment.python_version + ")"
                 : "\"" + environment.python + "\" does not start",
      "Set KW_PYTHON to a Python with PyTorch, or start through ./kw, which finds or makes one.");
  std::string torch_problem;
  try {
    find_environment();
  } catch (const Error& error) { torch_problem = error.text().message; }
  const bool has_torch = !environment.torch_version.empty();
  add("PyTorch", true, has_torch && torch_problem.empty(),
      has_torch ? environment.torch_version +
                      (environment.torch_cuda.empty() ? " (CPU build)" : " (CUDA " + environment.torch_cuda + ")")
                : "not there",
      environment.python + " -m pip install --upgrade torch (2.8 or later)");
  add("Kernelwright's Python", true, !environment.module_path.empty(),
      environment.module_path.empty() ? "not found" : environment.module_path,
      "Set KW_PYTHONPATH to the folder that holds kernelwright/worker.py.");
  checks.push_back(check_compiler());
  checks.push_back(check_archive());
  checks.push_back(check_temporary_folder());
  add("NVIDIA GPU", false, !environment.gpus.empty() && !environment.driver_version.empty(),
      environment.gpus.empty() ? "none; --target cpu works"
                               : fmt::format("{} × {}", environment.gpus.size(), environment.gpus.front()),
      "Only --target triton needs one.");
  if (!environment.gpus.empty())
    add("PyTorch with CUDA", false, environment.has_gpu(),
        environment.has_gpu()     ? environment.torch_cuda
        : environment.gpus_hidden ? "CUDA_VISIBLE_DEVICES hides every GPU"
                                  : "this PyTorch is a CPU build",
        environment.gpus_hidden ? "Unset CUDA_VISIBLE_DEVICES."
                                : "Install PyTorch's CUDA build: --target triton needs it.");
  add("Triton", false, !environment.triton_version.empty(),
      environment.triton_version.empty() ? "not there" : environment.triton_version,
      environment.python + " -m pip install triton: --target triton needs it.");
  return checks;
}

// The table of variables that people set, with their present values.
std::string variables_text() {
  std::string text = "\nEnvironment variables:\n";
  for (const Variable& variable : variables()) {
    if (variable.internal) continue;
    const char* value = std::getenv(variable.name);
    const std::string now = value && *value ? fmt::format(" (now: {})", value) : " (not set)";
    text += fmt::format("{:<18} {}\n", variable.name, wrapped(variable.meaning + now, help_width(), 19, 19));
  }
  return text;
}

Json variables_json() {
  Json rows = Json::array();
  for (const Variable& variable : variables()) {
    const char* value = std::getenv(variable.name);
    rows.push_back({{"name", variable.name}, {"meaning", variable.meaning}, {"internal", variable.internal}});
    rows.back()["value"] = value ? Json(value) : Json();
  }
  return rows;
}

int diagnose(Console& console) {
  const std::vector<Check> checks = check_everything();
  std::string text;
  bool complete = true;
  Json rows = Json::array();
  for (const Check& check : checks) {
    text += fmt::format("{:<8} {:<22} {}\n",
                        check.found    ? "ok"
                        : check.needed ? "MISSING"
                                       : "without",
                        check.name, check.what);
    if (!check.found && !check.advice.empty()) text += fmt::format("{:<31} {}\n", "", check.advice);
    complete = complete && (check.found || !check.needed);
    rows.push_back({{"name", check.name},
                    {"found", check.found},
                    {"needed", check.needed},
                    {"what", check.what},
                    {"advice", check.found ? "" : check.advice}});
  }
  text += complete ? "Everything that kw needs is here.\n" : "Something that kw needs is missing: see above.\n";
  console.print(text + variables_text());
  console.write_json(
      {{"version", kReportVersion}, {"complete", complete}, {"checks", rows}, {"variables", variables_json()}});
  return complete ? kGood : kMissing;
}

}  // namespace

void define_doctor(CLI::App&, Invocation& invocation) { invocation.run = diagnose; }

}  // namespace kw::cli
