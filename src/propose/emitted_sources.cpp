#include "propose/emitted_sources.hpp"

#include "support/error.hpp"
#include "support/hash.hpp"

namespace kw {

std::string EmittedSources::identity(const Schedule& schedule) {
  try {
    Compiled compiled = with_schedule(first_, schedule, options_);
    std::string hash = sha256_hex(compiled.source);
    emitted_[hash] = {std::move(compiled.source), whole_schedule(compiled)};
    return hash;
  } catch (const Error& error) {
    unfit_ = "These parameters do not go together: " + error.text().message;
    return "";
  }
}

}  // namespace kw
