// Which targets there are, by name: for the edges of the program, where names come in. Everything behind them is handed
// the target, or a device of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "target/target.hpp"

namespace kw {

// In the order in which `auto` prefers them; the last one runs everywhere.
const std::vector<const Target*>& targets();

const Target* find_target(std::string_view name);   // nullptr when there is none
const Target& target_named(std::string_view name);  // throws kUser, and says which there are
std::vector<std::string> names_of(const std::vector<const Target*>& targets);

// `asked`, or for "auto" the first that can run in this environment. Throws kMissing, where its device is needed and
// is not there.
const Target& resolve_target(const std::string& asked, const Environment& environment, bool needs_device);

DeviceDescription default_device(std::string_view target);  // throws kUser for a name that no target has

}  // namespace kw
