#include "judge/process_limit.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

namespace kw {

namespace fs = std::filesystem;

namespace {

constexpr int kRemovalTries = 200;
constexpr std::chrono::milliseconds kRemovalPause(5);  // processes that were killed leave a little later

// This process's own group among those that count processes: version 2's single tree, or version 1's of that name. From
// lines "NUMBER:CONTROLLERS:PATH".
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  std::string first, second;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':'), path = line.find(':', colon + 1);
    if (path == std::string::npos) continue;
    const std::string controllers = line.substr(colon + 1, path - colon - 1);
    if (controllers == "pids") first = "/sys/fs/cgroup/pids" + line.substr(path + 1);
    if (controllers.empty()) second = "/sys/fs/cgroup" + line.substr(path + 1);
  }
  return first.empty() ? second : first;
}

constexpr std::string_view kName = "kernelwright-";

// Groups of programs that ended before they could take them away.
void remove_left_over(const fs::path& group) {
  std::error_code fault;
  for (fs::directory_iterator one(group, fault), end; !fault && one != end; one.increment(fault)) {
    const std::string name = one->path().filename().string();
    if (!name.starts_with(kName)) continue;
    const pid_t owner = std::atoi(name.c_str() + kName.size());
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) rmdir(one->path().c_str());
  }
}

}  // namespace

ProcessLimit::ProcessLimit(long most) {
  static std::atomic<int> count = 0;
  const std::string group = own_group();
  if (most <= 0 || group.empty()) return;
  remove_left_over(group);
  const fs::path folder = fs::path(group) /
                          (std::string(kName) + std::to_string(getpid()) + "-" + std::to_string(++count));
  std::error_code fault;
  if (!fs::create_directory(folder, fault)) return;
  // Without the controller the group has no such file, and nothing can be made there.
  if (std::ofstream file(folder / "pids.max"); fs::exists(folder / "pids.max", fault) && file << most << std::flush)
    folder_ = folder;
  else fs::remove(folder, fault);
}

ProcessLimit::~ProcessLimit() {
  for (int i = 0; i < kRemovalTries && holds(); ++i) {
    if (rmdir(folder_.c_str()) == 0) return;
    std::this_thread::sleep_for(kRemovalPause);
  }
}

}  // namespace kw
