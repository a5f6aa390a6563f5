#include "llm/checks.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

// Whole modules, and single names of others. What a kernel file has no use for, and what tampers with its judge would
// use.
constexpr std::string_view kModules[] = {"subprocess",  "socket",     "multiprocessing", "threading", "asyncio",
                                         "shutil",      "requests",   "urllib",          "http",      "signal",
                                         "gc",          "inspect",    "importlib",       "pickle",    "kernelwright",
                                         "ctypes.util", "webbrowser", "resource"};
constexpr std::string_view kCalls[] = {"eval",
                                       "exec",
                                       "compile",
                                       "open",
                                       "input",
                                       "__import__",
                                       "breakpoint",
                                       "globals",
                                       "exit",
                                       "quit",
                                       "os.system",
                                       "os.popen",
                                       "os.fork",
                                       "os.kill",
                                       "os._exit",
                                       "os.abort",
                                       "os.remove",
                                       "os.unlink",
                                       "os.rmdir",
                                       "os.removedirs",
                                       "os.rename",
                                       "os.replace",
                                       "os.execv",
                                       "os.execve",
                                       "os.spawnv",
                                       "os.dup2",
                                       "os.write",
                                       "sys.exit",
                                       "sys._getframe",
                                       "torch.save",
                                       "torch.load",
                                       "torch.manual_seed",
                                       "torch.set_num_threads",
                                       "torch.set_default_dtype",
                                       "torch.cuda.synchronize"};
constexpr std::string_view kStores[] = {"torch", "time", "sys", "nn.Module", "builtins"};  // attributes of these are
                                                                                           // not a candidate's to set

Fault forbidden(const std::string& what, int line) {
  return {"forbidden",
          "The file " + what + (line ? " (line " + std::to_string(line) + ")" : "") + ", which a candidate may not.",
          ""};
}

bool is_or_is_in(const std::string& name, std::string_view module) {
  return name == module || (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.');
}

Fault forbidden_in(const Json& facts) {
  for (const Json& import : facts["imports"])
    for (const std::string_view module : kModules)
      if (is_or_is_in(import.get<std::string>(), module)) return forbidden("imports " + std::string(module), 0);
  for (const Json& call : facts["calls"])
    for (const std::string_view name : kCalls)
      if (call["name"] == name) return forbidden("calls " + std::string(name), call["line"]);
  for (const Json& stored : facts["attributes"]) {
    const std::string name = stored;
    for (const std::string_view owner : kStores)
      if (name.starts_with(std::string(owner) + ".")) return forbidden("sets " + name, 0);
  }
  return {};
}

}  // namespace

Fault check(const Json& facts, const std::string& source, const KernelLanguage& language) {
  if (Fault fault = forbidden_in(facts); !fault.code.empty()) return fault;
  const KernelFault lacks = language.check(facts, source);
  return {lacks.code, lacks.message, ""};
}

}  // namespace kw::llm
