// Builds candidates ahead of their first run, in a worker process of its own (docs/worker-protocol.md, "build"): batch
// after batch, in the background.
#pragma once

#include <future>
#include <map>
#include <string>
#include <vector>

#include "judge/environment.hpp"
#include "measure/worker_client.hpp"

namespace kw {

class Builder {
 public:
  // `jobs` at once; `sm` is the GPU's, for Triton kernels.
  Builder(const Environment& environment, int jobs, int sm);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  void start(const std::vector<std::string>& paths);
  // Waits until all that was started is built. Path → why it could not be; empty where it could, or where the building
  // process itself failed: then the first run builds. Throws Interrupted.
  std::string fault(const std::string& path);
  void wait_for_all();

 private:
  using Faults = std::map<std::string, std::string>;
  Faults build(const std::vector<std::string>& paths);

  WorkerClient worker_;
  int jobs_, sm_;
  std::map<std::string, std::shared_future<Faults>> running_;  // by path
  std::shared_future<Faults> last_;
};

}  // namespace kw
