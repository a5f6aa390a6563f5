#include "plan/parameters.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "support/error.hpp"
#include "support/suggest.hpp"
#include "support/text.hpp"

namespace kw::plan {

bool ParameterSpec::allows(int64_t value) const {
  if (value < least || value > most) return false;
  return !powers_of_two || value == 0 || std::has_single_bit(static_cast<uint64_t>(value));
}

std::string ParameterSpec::allowed() const {
  const std::string end = " to " + std::to_string(most);
  if (!powers_of_two) return "a whole number from " + std::to_string(least) + end;
  if (least > 0) return "a power of two from " + std::to_string(least) + end;
  return "0 or a power of two up" + end;
}

ParameterTable::ParameterTable(std::vector<ParameterSpec> specs) : specs_(std::move(specs)) {
  for (const ParameterSpec& spec : specs_) {
    KW_ASSERT(spec.allows(spec.unsaid), "a parameter's table does not allow what it stands for unsaid");
    for (const int64_t value : spec.tried)
      KW_ASSERT(spec.allows(value), "a parameter's table does not allow what a search tries");
  }
}

const ParameterSpec* ParameterTable::find(std::string_view name) const {
  const auto found = std::find_if(specs_.begin(), specs_.end(),
                                  [&](const ParameterSpec& spec) { return spec.name == name; });
  return found == specs_.end() ? nullptr : &*found;
}

const ParameterSpec& ParameterTable::at(std::string_view name) const {
  const ParameterSpec* spec = find(name);
  KW_ASSERT(spec, "a scheduler reads the parameter '" + std::string(name) + "', which its table does not have");
  return *spec;
}

int64_t ParameterTable::read(const Parameters& parameters, std::string_view name) const {
  const ParameterSpec& spec = at(name);
  const auto found = parameters.find(std::string(name));
  return found == parameters.end() ? spec.unsaid : found->second;
}

ParameterRange ParameterTable::range(std::string_view name, int64_t least, int64_t most) const {
  const ParameterSpec& spec = at(name);
  ParameterRange range{std::string(name), {}, spec.unsaid};
  for (const int64_t value : spec.tried)
    if (value >= least && value <= most) range.values.push_back(value);
  return range;
}

ParameterRange ParameterTable::range(std::string_view name) const {
  return range(name, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

std::vector<ParameterRange> ParameterTable::ranges() const {
  std::vector<ParameterRange> ranges;
  for (const ParameterSpec& spec : specs_)
    if (!spec.tried.empty()) ranges.push_back(range(spec.name));
  return ranges;
}

void ParameterTable::check(const Parameters& parameters, const std::string& group) const {
  for (const auto& [name, value] : parameters) {
    const ParameterSpec* spec = find(name);
    const std::string given = "the schedule gives " + group + " the parameter '" + name +
                              "' = " + std::to_string(value);
    if (spec && spec->allows(value)) continue;
    if (spec)
      throw Error(ErrorKind::kUser, {.message = given + ", which is not allowed",
                                     .where = {},
                                     .source = {},
                                     .hint = "'" + name + "' takes " + spec->allowed() + ".",
                                     .detail = {},
                                     .code = "bad-schedule-parameter"});
    std::vector<std::string> names;
    for (const ParameterSpec& one : specs_) names.emplace_back(one.name);
    const std::string near = nearest(name, names);
    throw Error(ErrorKind::kUser,
                {.message = given + ", which it does not take",
                 .where = {},
                 .source = {},
                 .hint = (near.empty() ? "" : "Did you mean '" + near + "'? ") +
                         (names.empty() ? "It takes no parameters." : "It takes " + join(names, ", ") + "."),
                 .detail = {},
                 .code = "unknown-schedule-parameter"});
  }
}

}  // namespace kw::plan
