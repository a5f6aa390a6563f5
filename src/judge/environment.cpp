#include "judge/environment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/text.hpp"

#ifndef KW_VERSION
#error "KW_VERSION comes from CMake"
#endif

namespace kw {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// find_spec locates a top-level package without running any of it.
constexpr const char* kProbe = R"py(
import sys
sys.path[:] = filter(None, sys.path)   # without the current folder, whose files may have the names of modules
import importlib.util, json, os, re
def package(name):
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        return None
    folder = os.path.dirname(spec.origin)
    path = os.path.join(folder, "version.py")
    if not os.path.exists(path):
        path = spec.origin
    text = open(path, encoding="utf-8", errors="replace").read()
    status = os.stat(path)
    found = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", text)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.M)
    stamp = f"{path} {status.st_mtime_ns} {status.st_size}"
    return {"version": found and found.group(1), "cuda": cuda and cuda.group(1), "stamp": stamp}
print(json.dumps({"python": sys.version.split()[0], "torch": package("torch"), "triton": package("triton"),
                  "worker": importlib.util.find_spec("kernelwright") is not None}))
)py";

std::string find_module_path() {
  if (const char* given = std::getenv("KW_PYTHONPATH"); given && *given) return given;
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  // From the build folder of a checkout, from an installed wheel (kernelwright/bin/kw), from a copied prefix.
  for (const char* relative : {"../python", "../..", "../share/kernelwright/python", "python", "../../python"}) {
    const fs::path folder = (binary.parent_path() / relative).lexically_normal();
    if (fs::exists(folder / "kernelwright" / "worker.py", error)) return folder.string();
  }
  return "";
}

// Output of `program arguments…`; empty when it cannot be started or fails, but nothing where it was killed.
std::optional<std::string> output_once(std::vector<std::string> command, const std::string& module_path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    if (std::strncmp(*variable, "PYTHONPATH=", 11) != 0) variables.emplace_back(*variable);
  const char* inherited = std::getenv("PYTHONPATH");
  variables.push_back("PYTHONPATH=" + module_path + (inherited && *inherited ? ":" + std::string(inherited) : ""));
  variables.push_back("PYTHONDONTWRITEBYTECODE=1");
  std::vector<char*> argv, envp;
  for (std::string& word : command) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  int status = 0;
  if (!failed) {
    char buffer[4096];
    for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
      out.append(buffer, static_cast<size_t>(count));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status != 0) out.clear();
  }
  close(ends[0]);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return std::nullopt;
  return out;
}

std::string output_of(const std::vector<std::string>& command, const std::string& module_path) {
  for (int attempt = 0; attempt < 2; ++attempt)
    if (std::optional<std::string> out = output_once(command, module_path)) return *out;
  return "";
}

std::string first_match(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) {
      const size_t colon = line.find(':');
      const size_t start = line.find_first_not_of(" \t", colon + 1);
      return start == std::string::npos ? "" : line.substr(start);
    }
  return "";
}

void find_gpus(Environment& environment) {
  std::ifstream version("/proc/driver/nvidia/version");
  std::getline(version, environment.driver_version);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error))
    environment.gpus.push_back(first_match((entry.path() / "information").string(), "Model"));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  environment.gpus_hidden = visible && (!*visible || std::string_view(visible).starts_with("-"));
}

std::string text_or_empty(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

bool is_at_least(const std::string& version, int major, int minor) {
  int found_major = 0, found_minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &found_major, &found_minor) == 2 &&
         (found_major > major || (found_major == major && found_minor >= minor));
}

}  // namespace

std::string Environment::description_json() const {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  Json json = {{"python", python},
               {"python_version", python_version},
               {"torch", torch_version},
               {"torch_cuda", torch_cuda},
               {"torch_stamp", torch_stamp},
               {"triton", triton_version},
               {"cpu", cpu_name},
               {"cpu_threads", cpu_threads},
               {"driver", driver_version},
               {"gpus", gpus}};
  // Which of several different GPUs is used matters; among equal ones it does not.
  if (visible && gpus.size() > 1 && gpus.front() != gpus.back()) json["visible_gpus"] = visible;
  return json.dump();
}

Environment look_at_environment() {
  Environment environment;
  const char* python = std::getenv("KW_PYTHON");
  environment.python = python && *python ? python : "python3";
  environment.module_path = find_module_path();
  environment.cpu_name = first_match("/proc/cpuinfo", "model name");
  cpu_set_t cores;
  environment.cpu_threads = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  find_gpus(environment);
  const std::string answer = output_of({environment.python, "-c", kProbe}, environment.module_path);
  const Json json = Json::parse(answer, nullptr, false);
  if (json.is_discarded()) return environment;
  environment.python_version = text_or_empty(json, "python");
  if (!json.value("worker", false)) environment.module_path.clear();
  if (json.contains("torch")) {
    environment.torch_version = text_or_empty(json["torch"], "version");
    environment.torch_cuda = text_or_empty(json["torch"], "cuda");
    environment.torch_stamp = text_or_empty(json["torch"], "stamp");
  }
  if (json.contains("triton")) environment.triton_version = text_or_empty(json["triton"], "version");
  return environment;
}

Environment find_environment() {
  Environment environment = look_at_environment();
  const std::string& python = environment.python;
  if (environment.python_version.empty())
    throw Error(
        ErrorKind::kMissing, "the Python \"" + python + "\" cannot be started.",
        "Set KW_PYTHON to a Python that has PyTorch 2.8 or later, or start through ./kw, which finds or makes one.");
  if (environment.torch_version.empty())
    throw Error(ErrorKind::kMissing, "the Python " + python + " has no PyTorch.",
                "Install it (" + python +
                    " -m pip install torch), set KW_PYTHON to a Python that has it, or start through ./kw, which finds "
                    "or makes one.");
  if (!is_at_least(environment.torch_version, 2, 8))
    throw Error(ErrorKind::kMissing,
                "the Python " + python + " has PyTorch " + environment.torch_version + "; 2.8 or later is needed.",
                "Upgrade it (" + python + " -m pip install --upgrade torch), or set KW_PYTHON to another Python.");
  if (environment.module_path.empty())
    throw Error(ErrorKind::kMissing, "Kernelwright's Python part is not beside the program.",
                "Set KW_PYTHONPATH to the folder that holds kernelwright/worker.py (python/ in a checkout).");
  return environment;
}

std::string emitter_version() {
  // The program's own bytes: whatever may change what is emitted changes them.
  static const std::string version = KW_VERSION "+" + sha256_hex(read_file("/proc/self/exe")).substr(0, 12);
  return version;
}

double cpu_cache_bytes() {
  double largest = 0;
  for (const char* index : {"2", "3"}) {
    std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
    double kilobytes = 0;
    if (file >> kilobytes) largest = std::max(largest, kilobytes * 1024);
  }
  return largest;
}

}  // namespace kw
