#include "propose/emitted_sources.hpp"

#include "support/error.hpp"
#include "support/hash.hpp"

namespace kw {

std::string EmittedSources::identity(const Schedule& schedule) {
  try {
    std::string source = with_schedule(first_, schedule, options_).source;
    std::string hash = sha256_hex(source);
    sources_[hash] = std::move(source);
    return hash;
  } catch (const Error& error) {
    unfit_ = "These parameters do not go together: " + error.text().message;
    return "";
  }
}

}  // namespace kw
