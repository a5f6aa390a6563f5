#include "support/progress.hpp"

#include <chrono>

namespace kw {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Stage::Stage(Progress& progress, const std::string& name) : progress_(progress), began_(seconds_now()) {
  progress_.begin(name);
}
Stage::~Stage() { progress_.end(seconds()); }
double Stage::seconds() const { return seconds_now() - began_; }

}  // namespace kw
