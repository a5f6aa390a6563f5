// What can be said of a candidate before it runs. Not a protection (the sandbox is): it saves a process for what cannot
// pass, and tells the model why in words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "llm/extract.hpp"

namespace kw::llm {

// `facts` of a source without a syntax error. Forbidden calls, whether there is a kernel in the language, and
// whether it is launched.
Fault check(const nlohmann::ordered_json& facts, const std::string& source, const KernelLanguage& language);

}  // namespace kw::llm
