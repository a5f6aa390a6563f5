#include "propose/prompt_facts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "judge/target.hpp"
#include "propose/device_facts.hpp"
#include "propose/example_form.hpp"

namespace kw {

namespace {

constexpr int64_t kMostResults = 2000;
constexpr size_t kLongestExample = 8000;  // bytes; a long example teaches less than it costs

// The part of a candidate that a model is to write: without the copy of the problem above what kw emits, and without
// the helpers that a model's C++ is given. Empty where it is in a form that models are not asked for, or only calls the
// library.
std::string own_part(const std::string& source, const std::string& target) {
  if (target == "cpu") {
    const size_t helpers = source.find("integer, real = ctypes.c_int64");  // a model's own
    if (helpers == std::string::npos) return in_models_form(source);
    const std::string part = source.substr(std::min(source.size(), source.find('\n', helpers) + 1));
    return part.find("extern \"C\"") == std::string::npos ? "" : part;
  }
  const size_t border = source.find("# --- Kernels and the module that runs them");
  const std::string part = border == std::string::npos
                               ? source
                               : source.substr(std::min(source.size(), source.find('\n', border) + 1));
  return part.find("@triton.jit") == std::string::npos ? "" : part;
}

}  // namespace

std::string device_in_words(Archive& archive, const Environment& environment, const std::string& environment_hash,
                            const std::string& target) {
  std::string words = target == "cpu"            ? environment.cpu_name.empty()
                                                       ? "this CPU"
                                                       : "a CPU: " + environment.cpu_name + ", " +
                                                  std::to_string(environment.cpu_threads) + " threads"
                      : environment.gpus.empty() ? "an NVIDIA GPU"
                                                 : "a GPU: " + environment.gpus.front();
  const Ceilings ceilings = known_ceilings(archive, environment_hash, device_of(target)).value_or(Ceilings{});
  if (const auto& copy = ceilings.copy_bytes_per_second)
    words += fmt::format(", {:.3g} GB/s of memory bandwidth", *copy / 1e9);
  if (const double flops = ceilings.flops_in("fp32"); flops > 0)
    words += fmt::format(", {:.3g} TFLOP/s in fp32", flops / 1e12);
  return words;
}

llm::PromptFacts prompt_facts(Archive& archive, const Environment& environment, const std::string& environment_hash,
                              const ProblemFile& problem, const std::string& target, int shots) {
  llm::PromptFacts facts{.target = target,
                         .problem = problem.source,
                         .hardware = device_in_words(archive, environment, environment_hash, target),
                         .examples = {},
                         .shots = shots};
  if (shots < 2) return facts;
  struct Found {
    double likeness;
    llm::Example example;
  };
  std::vector<Found> found;
  for (const auto& [solved, hash] : archive.passed(target, kMostResults)) {
    if (solved == problem.hash()) continue;
    const std::string source = archive.problem_source(solved),
                      candidate = own_part(archive.candidate_source(hash), target);
    if (!candidate.empty() && candidate.size() <= kLongestExample && source != problem.source)
      found.push_back({llm::likeness(source, problem.source), {source, candidate}});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& one, const Found& other) { return one.likeness > other.likeness; });
  for (size_t i = 0; i < found.size() && i + 1 < static_cast<size_t>(shots); ++i)
    facts.examples.push_back(std::move(found[i].example));
  return facts;
}

}  // namespace kw
