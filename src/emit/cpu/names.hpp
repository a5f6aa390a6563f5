// Names inside one printed function: unique, and never a keyword, a function of C's library or one of the helpers
// before the kernels.
#pragma once

#include <set>
#include <string>

namespace kw::cpu {

class Names {
 public:
  Names();
  void release(const std::string& name) { taken_.erase(name); }                        // of a block that has ended
  std::string fresh(const std::string& wanted, const std::string& suffix = "_value");  // wanted, or wanted_value,
                                                                                       // wanted_2, …

 private:
  std::set<std::string> taken_;
};

}  // namespace kw::cpu
