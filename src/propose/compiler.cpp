#include "propose/compiler.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "support/error.hpp"

namespace kw {

namespace {

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return "";
}

}  // namespace

std::string find_compiler() {
  const char* chosen = std::getenv("CXX");
  const std::string words = chosen ? chosen : "";
  // $CXX may hold options, and a launcher such as ccache, as in a Makefile.
  for (const std::string& name :
       {words.substr(0, words.find(' ')), std::string("c++"), std::string("g++"), std::string("clang++")}) {
    if (name.empty()) continue;
    if (std::string path = find_program(name); !path.empty()) return path;
  }
  return "";
}

void need_compiler() {
  if (!find_compiler().empty()) return;
  throw Error(
      ErrorKind::kMissing,
      ErrorText{.message = "there is no C++ compiler on this machine; kernels for the CPU are compiled with one.",
                .where = "",
                .source = "",
                .hint = "Install g++ (apt-get install g++), or set CXX to a compiler.",
                .detail = "",
                .code = "no-compiler"});
}

}  // namespace kw
