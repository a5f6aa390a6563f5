// Names inside one printed function: unique, and never a keyword or a function that the function calls.
#pragma once

#include <set>
#include <string>

namespace kw::cpu {

class Names {
 public:
  Names();
  std::string fresh(const std::string& wanted);   // wanted, or wanted_value, wanted_2, …

 private:
  std::set<std::string> taken_;
};

// "kInnerColumnCount" for axis inner_column.
std::string constant_name(const std::string& axis, const std::string& what);

}  // namespace kw::cpu
