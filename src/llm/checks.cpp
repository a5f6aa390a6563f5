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

// The model's own class does the work through Triton: some kernel is launched as kernel[grid](…).
Fault triton_kernels(const Json& facts) {
  if (facts["kernels"].empty())
    return {"no-kernel", "The file has no Triton kernel: no function is decorated with @triton.jit.", ""};
  const auto launched = [&](const Json& kernel) {
    return std::find(facts["launched"].begin(), facts["launched"].end(), kernel) != facts["launched"].end();
  };
  if (std::none_of(facts["kernels"].begin(), facts["kernels"].end(), launched))
    return {"not-launched",
            "The kernel " + facts["kernels"][0].get<std::string>() + " is never launched as kernel[grid](…).", ""};
  return {};
}

Fault cpu_kernels(const Json& facts, const std::string& source) {
  if (source.find("extern \"C\"") == std::string::npos)
    return {"no-kernel", "The file has no C++ kernel: no string with extern \"C\" functions.", ""};
  const auto calls = [&](std::string_view end) {
    return std::any_of(facts["calls"].begin(), facts["calls"].end(),
                       [&](const Json& call) { return call["name"].get<std::string>().ends_with(end); });
  };
  if (!calls("compile_cpp") && !calls("CDLL") && !calls("load_inline"))
    return {"not-launched", "The C++ is never compiled: there is no call of compile_cpp.", ""};
  // Some function of the C++ is called by its name.
  for (const Json& call : facts["calls"]) {
    const std::string name = call["name"];
    const size_t point = name.rfind('.');
    if (point == std::string::npos) continue;
    const std::string function = name.substr(point + 1);
    for (size_t at = source.find(function + "("); at != std::string::npos; at = source.find(function + "(", at + 1)) {
      const size_t line = source.rfind('\n', at) + 1;
      if (source.substr(line, at - line).find("extern \"C\"") != std::string::npos ||
          source.substr(line, at - line).find("void ") != std::string::npos)
        return {};
    }
  }
  return {"not-launched", "No function of the C++ is called.", ""};
}

}  // namespace

Fault check(const Json& facts, const std::string& source, const std::string& target) {
  if (Fault fault = forbidden_in(facts); !fault.code.empty()) return fault;
  return target == "cpu" ? cpu_kernels(facts, source) : triton_kernels(facts);
}

}  // namespace kw::llm
