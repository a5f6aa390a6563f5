#include "driver/sandbox.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/subprocess.hpp"
#include "support/text.hpp"

namespace kw {

namespace {

constexpr double kTrySeconds = 10;
constexpr long kLargestFile = 1L << 30;
constexpr long kProcesses = 512;         // beside those that the user has: threads count, and PyTorch starts one a core
constexpr double kShareOfMemory = 0.75;  // of what is free when the process starts

long free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    long kilobytes = 0;
    file >> kilobytes;
    std::getline(file, unit);
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

// Where runs on this machine take turns at timing: those inside take part. What is to be bound has to be there; where it cannot be made the worker says why.
std::string lock_folder() {
  namespace fs = std::filesystem;
  const char* given = std::getenv("KW_LOCK_DIR");
  const fs::path folder = fs::absolute(given && *given ? given : "/tmp/kernelwright-locks");
  std::error_code error;
  if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::all | fs::perms::sticky_bit, error);
  return folder.string();
}

}  // namespace

Sandbox::Sandbox(const std::string& device, std::vector<std::string> secrets) : device_(device), secrets_(std::move(secrets)), locks_(lock_folder()) {
  std::string why = "bubblewrap (bwrap) is not installed";
  try {
    Subprocess::Options options;
    options.command = words("");
    options.command.push_back("true");
    Subprocess trial(options);
    std::string nothing;
    trial.read(1, steady_seconds() + kTrySeconds, nothing);
    const ExitStatus status = trial.wait();
    if (status.code == 0 && status.signal == 0) kind_ = "bubblewrap";
    else why = "bubblewrap is not permitted here (" + (trial.error_tail().empty() ? "exit code " + std::to_string(status.code) : split_lines(trial.error_tail()).front()) + ")";
  } catch (const Error&) {
    // Not there.
  }
  if (kind_ == "none")
    for (const char* what : {"no network", "a read-only file system", "processes of its own"}) missing_.push_back(std::string(what) + ": " + why);
  // Resource limits do not count root's processes.
  if (geteuid() == 0 && !ProcessLimit(kProcesses).holds()) missing_.push_back("bounded processes: kw runs as root, and can make no control group here");
  if (device_ == "cuda") missing_.push_back("bounded memory: CUDA maps more than it uses");
}

std::vector<std::string> Sandbox::words(const std::string& folder) const {
  std::vector<std::string> words = {"bwrap", "--die-with-parent", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--ro-bind", "/", "/"};
  for (const char* word : {device_ == "cuda" ? "--dev-bind" : "--dev", "/dev"}) words.push_back(word);
  if (device_ == "cuda") words.push_back("/dev");
  for (const char* word : {"--proc", "/proc"}) words.push_back(word);
  if (!folder.empty()) words.insert(words.end(), {"--bind", folder, folder});
  words.insert(words.end(), {"--bind-try", locks_, locks_});
  for (const std::string& name : secrets_) words.insert(words.end(), {"--unsetenv", name});
  return words;
}

Confinement Sandbox::around(const std::string& folder) const {
  Confinement result;
  if (geteuid() == 0) {
    // One for each, so that a worker that fills its own leaves room for the next.
    result.limit = std::make_shared<const ProcessLimit>(kProcesses);
    result.command = result.limit->words();
  }
  if (kind_ == "bubblewrap")
    for (const std::string& word : words(folder)) result.command.push_back(word);
  else
    for (const std::string& name : secrets_) result.environment.push_back(name + "=");
  for (const char* name : {"TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"}) result.environment.push_back(std::string(name) + "=" + folder);
  const long memory = device_ == "cuda" ? 0 : static_cast<long>(static_cast<double>(free_memory()) * kShareOfMemory);
  result.environment.push_back("KW_LIMITS=" + std::to_string(kProcesses) + "," + std::to_string(kLargestFile) + "," + std::to_string(memory));
  return result;
}

}  // namespace kw
