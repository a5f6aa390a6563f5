// Where candidates run that nobody vouches for: bubblewrap, as far as this machine has and permits it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/process_limit.hpp"

namespace kw {

// How a worker is started.
struct Confinement {
  std::vector<std::string> command = {};       // words before it
  std::vector<std::string> environment = {};   // "NAME=value"
  std::shared_ptr<const ProcessLimit> limit = {};   // root's; kept for as long as the worker lives
};

class Sandbox {
 public:
  // Looks once whether bubblewrap is there and permitted, by starting it. `device`: "cpu" or "cuda". `secrets`: variables that are not passed on.
  Sandbox(const std::string& device, std::vector<std::string> secrets);

  // For a process whose only writable folder is `folder`.
  Confinement around(const std::string& folder) const;

  bool is_complete() const { return missing_.empty(); }
  const std::string& kind() const { return kind_; }                       // "bubblewrap", "none"
  const std::vector<std::string>& missing() const { return missing_; }    // protections that are not there, in words

 private:
  std::vector<std::string> words(const std::string& folder) const;
  std::string device_, kind_ = "none";
  std::vector<std::string> secrets_, missing_;
  std::string locks_;                          // the folder of python/kernelwright/device_lock.py
};

}  // namespace kw
