// What each scheduler may be told: one table per scheduler and target. A search's space, the check of schedules that
// come from outside and the lowering all read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kw::plan {

using Parameters = std::map<std::string, int64_t>;

// Values worth trying for one parameter of one group.
struct ParameterRange {
  std::string name;
  std::vector<int64_t> values;
  int64_t unsaid = 0;  // what a schedule that leaves the parameter out stands for
};

struct ParameterSpec {
  std::string_view name;
  int64_t least = 0, most = 0;
  int64_t unsaid = 0;          // what a schedule that leaves it out stands for
  bool powers_of_two = false;  // and 0, where that is the least
  std::vector<int64_t> tried;  // by a search, ascending

  bool allows(int64_t value) const;
  std::string allowed() const;  // "a power of two from 1 to 64"
};

class ParameterTable {
 public:
  ParameterTable(std::vector<ParameterSpec> specs);  // asserts that each spec allows what it tries and its `unsaid`

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const ParameterSpec* find(std::string_view name) const;  // nullptr when there is none
  // The parameter's value, or its `unsaid`. The table must have the name.
  int64_t read(const Parameters& parameters, std::string_view name) const;
  // The values that a search tries, of those from `least` to `most`. The table must have the name.
  ParameterRange range(std::string_view name, int64_t least, int64_t most) const;
  ParameterRange range(std::string_view name) const;
  // Those of all parameters that a search tries.
  std::vector<ParameterRange> ranges() const;
  // Throws kUser for an unknown name and for a value that is not allowed. `group` names the group and its scheduler.
  void check(const Parameters& parameters, const std::string& group) const;

 private:
  const ParameterSpec& at(std::string_view name) const;

  std::vector<ParameterSpec> specs_;
};

}  // namespace kw::plan
