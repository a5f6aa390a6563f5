#include "propose/prompt_facts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "propose/device_facts.hpp"

namespace kw {

namespace {

constexpr int64_t kMostResults = 2000;
constexpr size_t kLongestExample = 8000;  // bytes; a long example teaches less than it costs

}  // namespace

std::string device_in_words(Archive& archive, const Environment& environment, const std::string& environment_hash,
                            const Target& target) {
  std::string words = target.in_words(environment);
  const Ceilings ceilings = known_ceilings(archive, environment_hash, std::string(target.tensors()))
                                .value_or(Ceilings{});
  if (const auto& copy = ceilings.copy_bytes_per_second)
    words += fmt::format(", {:.3g} GB/s of memory bandwidth", *copy / 1e9);
  if (const double flops = ceilings.flops_in("fp32"); flops > 0)
    words += fmt::format(", {:.3g} TFLOP/s in fp32", flops / 1e12);
  return words;
}

llm::PromptFacts prompt_facts(Archive& archive, const Environment& environment, const std::string& environment_hash,
                              const ProblemFile& problem, const Target& target, int shots) {
  llm::PromptFacts facts{.language = language_of(target),
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
  for (const auto& [solved, hash] : archive.passed(std::string(target.name()), kMostResults)) {
    if (solved == problem.hash()) continue;
    const std::string source = archive.problem_source(solved),
                      candidate = facts.language.own_part(archive.candidate_source(hash));
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
