// The machine and the Python that the worker will use, found without importing PyTorch (which takes seconds).
#pragma once

#include <string>
#include <vector>

namespace kw {

struct Environment {
  std::string python;       // executable that was asked for: $KW_PYTHON, else python3
  std::string module_path;  // what goes on PYTHONPATH so that kernelwright.worker is found
  std::string python_version;
  std::string torch_version;   // empty: no PyTorch there
  std::string torch_cuda;      // "13.0", or empty for builds without CUDA
  std::string triton_version;  // empty: none
  std::string torch_stamp;     // changes when PyTorch is reinstalled
  std::string cpu_name;
  int cpu_threads = 1;
  std::string driver_version;     // NVIDIA's; empty: no driver
  std::vector<std::string> gpus;  // names, in the driver's order

  bool gpus_hidden = false;  // CUDA_VISIBLE_DEVICES is empty or -1
  bool has_gpu() const { return !driver_version.empty() && !torch_cuda.empty() && !gpus_hidden; }
  std::string description_json() const;  // everything above that a measurement depends on; its hash names the
                                         // environment
};

// Throws kMissing when there is no Python, no worker module, or no PyTorch 2.8 or later, with what to type.
Environment find_environment();

// The same without throwing: what is missing stays empty, for `kw doctor`.
Environment look_at_environment();

double cpu_cache_bytes();  // of the last level; 0 where the system does not say

// Version of everything that decides the emitted source; a stored result of another version does not answer.
std::string emitter_version();

}  // namespace kw
