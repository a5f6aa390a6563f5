#include "targets/triton/language.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "targets/triton/prompts.hpp"

namespace kw::triton {

namespace {

using Json = nlohmann::ordered_json;

class Triton : public KernelLanguage {
 public:
  std::string_view name() const override { return "Triton"; }
  std::string_view form() const override { return kForm; }
  std::string_view example() const override { return kExample; }
  std::string_view mark() const override { return "@triton.jit"; }

  // The model's own class does the work through Triton: some kernel is launched as kernel[grid](…).
  KernelFault check(const Json& facts, const std::string& /*source*/) const override {
    if (facts["kernels"].empty())
      return {"no-kernel", "The file has no Triton kernel: no function is decorated with @triton.jit."};
    const auto launched = [&](const Json& kernel) {
      return std::find(facts["launched"].begin(), facts["launched"].end(), kernel) != facts["launched"].end();
    };
    if (std::none_of(facts["kernels"].begin(), facts["kernels"].end(), launched))
      return {"not-launched",
              "The kernel " + facts["kernels"][0].get<std::string>() + " is never launched as kernel[grid](…)."};
    return {};
  }

  // Without the copy of the problem above the kernels that kw emits.
  std::string own_part(const std::string& candidate) const override {
    const size_t border = candidate.find("# --- Kernels and the module that runs them");
    const std::string part = border == std::string::npos
                                 ? candidate
                                 : candidate.substr(std::min(candidate.size(), candidate.find('\n', border) + 1));
    return part.find(mark()) == std::string::npos ? "" : part;
  }
};

}  // namespace

const KernelLanguage& language() {
  static const Triton language;
  return language;
}

}  // namespace kw::triton
