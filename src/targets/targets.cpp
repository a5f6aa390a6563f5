#include "targets/targets.hpp"

#include <algorithm>

#include "support/error.hpp"
#include "support/text.hpp"
#include "targets/cpu/target.hpp"
#include "targets/triton/target.hpp"

namespace kw {

const std::vector<const Target*>& targets() {
  static const std::vector<const Target*> table = {
      &triton_target(),
      &cpu_target(),
  };
  return table;
}

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  return found == targets().end() ? nullptr : *found;
}

std::vector<std::string> names_of(const std::vector<const Target*>& targets) {
  std::vector<std::string> names;
  for (const Target* target : targets) names.emplace_back(target->name());
  return names;
}

const Target& target_named(std::string_view name) {
  if (const Target* found = find_target(name)) return *found;
  throw Error(ErrorKind::kUser, "there is no target \"" + std::string(name) + "\".",
              "Use " + join(names_of(targets()), " or ") + ".");
}

const Target& resolve_target(const std::string& asked, const Environment& environment, bool needs_device) {
  if (asked == "auto")
    return **std::ranges::find_if(targets(), [&](const Target* one) { return one->can_run(environment); });
  const Target& target = target_named(asked);
  if (needs_device) target.need_device(environment);
  return target;
}

DeviceDescription default_device(std::string_view target) { return target_named(target).default_device(); }

}  // namespace kw
