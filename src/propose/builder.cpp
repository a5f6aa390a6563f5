#include "propose/builder.hpp"

#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kLimitSeconds = 300;

}  // namespace

Builder::Builder(const Environment& environment, int jobs, int sm)
    : worker_(WorkerOptions{environment.python, environment.module_path, {}}), jobs_(jobs), sm_(sm) {
  worker_.start();
}

Builder::~Builder() {
  try {
    wait_for_all();
  } catch (...) {
    // Interrupted: the process is gone, and with it what was to be built.
  }
}

void Builder::start(const std::vector<std::string>& paths) {
  // The worker answers one request at a time: each batch waits for the one before.
  last_ = std::async(std::launch::async, [this, paths, before = last_] {
            if (before.valid()) before.wait();
            return build(paths);
          }).share();
  for (const std::string& path : paths) running_[path] = last_;
}

Builder::Faults Builder::build(const std::vector<std::string>& paths) {
  Faults faults;
  try {
    const Json reply = worker_.request("build", {{"candidates", paths}, {"jobs", jobs_}, {"sm", sm_}}, kLimitSeconds);
    for (const Json& one : reply["results"])
      if (!one.value("ok", false)) faults[one["path"]] = one.value("error", "");
  } catch (const WorkerFailure&) {
    // Whoever runs the candidate will compile it, and see what is wrong with it.
  } catch (const Error&) {}
  return faults;
}

std::string Builder::fault(const std::string& path) {
  const auto found = running_.find(path);
  if (found == running_.end()) return "";
  const Faults& faults = found->second.get();
  const auto fault = faults.find(path);
  return fault == faults.end() ? "" : fault->second.empty() ? "could not be built" : fault->second;
}

void Builder::wait_for_all() {
  if (last_.valid()) last_.get();
}

}  // namespace kw
