#include "judge/sandbox.hpp"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

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

}  // namespace

Sandbox::Sandbox() : limit_(geteuid() == 0 ? kProcesses : 0) {}

Json Sandbox::confinement(const std::string& device, const std::vector<std::string>& secrets) const {
  Json groups = Json::array();
  if (limit_.holds()) groups.push_back(limit_.joining_file());
  const std::string archive = Archive::default_path();
  // CUDA maps more than it uses.
  const long memory = device == "cuda" ? 0 : static_cast<long>(static_cast<double>(free_memory()) * kShareOfMemory);
  return {{"namespaces", true},
          {"processes", kProcesses},
          {"file_bytes", kLargestFile},
          {"memory_bytes", memory},
          {"groups", groups},
          {"hidden", Json::array({archive, archive + "-wal", archive + "-shm"})},
          {"unset", secrets}};
}

std::vector<std::string> Sandbox::missing(const std::string& device) const {
  std::vector<std::string> words;
  if (geteuid() == 0 && !limit_.holds())
    words.emplace_back("bounded processes: kw runs as root, and can make no control group here");
  if (device == "cuda") words.emplace_back("bounded memory: CUDA maps more than it uses");
  return words;
}

}  // namespace kw
