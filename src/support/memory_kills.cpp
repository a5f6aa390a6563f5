#include "support/memory_kills.hpp"

#include <fstream>
#include <string>

namespace kw {

int64_t memory_kills() {
  std::ifstream file("/proc/vmstat");
  int64_t count = 0;
  for (std::string name; file >> name >> count;)
    if (name == "oom_kill") return count;
  return -1;
}

}  // namespace kw
