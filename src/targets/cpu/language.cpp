#include "targets/cpu/language.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "targets/cpu/example_form.hpp"
#include "targets/cpu/prompts.hpp"

namespace kw::cpu {

namespace {

using Json = nlohmann::ordered_json;

class Cpp : public KernelLanguage {
 public:
  std::string_view name() const override { return "C++"; }
  std::string_view form() const override { return kForm; }
  std::string_view example() const override { return kExample; }
  std::string_view mark() const override { return "extern \"C\""; }
  std::string_view helper() const override { return "compile_cpp"; }
  std::string_view helper_text() const override { return kHelper; }

  KernelFault check(const Json& facts, const std::string& source) const override {
    if (source.find("extern \"C\"") == std::string::npos)
      return {"no-kernel", "The file has no C++ kernel: no string with extern \"C\" functions."};
    const auto calls = [&](std::string_view end) {
      return std::any_of(facts["calls"].begin(), facts["calls"].end(),
                         [&](const Json& call) { return call["name"].get<std::string>().ends_with(end); });
    };
    if (!calls("compile_cpp") && !calls("CDLL") && !calls("load_inline"))
      return {"not-launched", "The C++ is never compiled: there is no call of compile_cpp."};
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
    return {"not-launched", "No function of the C++ is called."};
  }

  // Without the helpers that a model's C++ is given, or rewritten where it is the compiler's own.
  std::string own_part(const std::string& candidate) const override {
    const size_t helpers = candidate.find("integer, real = ctypes.c_int64");  // a model's own
    if (helpers == std::string::npos) return in_models_form(candidate);
    const std::string part = candidate.substr(std::min(candidate.size(), candidate.find('\n', helpers) + 1));
    return part.find(mark()) == std::string::npos ? "" : part;
  }
};

}  // namespace

const KernelLanguage& language() {
  static const Cpp language;
  return language;
}

}  // namespace kw::cpu
