// What a candidate's process may do. The worker starts that process and confines it
// (python/kernelwright/judge/nursing.py, host/confinement.py, host/system_calls.py).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "judge/process_limit.hpp"

namespace kw {

class Sandbox {
 public:
  Sandbox();

  // The worker's parameter "confinement" for a candidate on `device` ("cpu" or "cuda"), which is not to see the
  // environment variables `secrets`.
  nlohmann::ordered_json confinement(const std::string& device, const std::vector<std::string>& secrets) const;

  // Protections that are not there whatever the worker says, in words.
  std::vector<std::string> missing(const std::string& device) const;

 private:
  ProcessLimit limit_;  // root's processes, which resource limits do not count
};

}  // namespace kw
