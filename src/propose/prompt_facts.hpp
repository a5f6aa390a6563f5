// What goes into a prompt beside the problem: the device in words, and solved problems of the archive that are like
// this one.
#pragma once

#include "archive/archive.hpp"
#include "judge/environment.hpp"
#include "judge/problem_file.hpp"
#include "llm/prompts.hpp"

namespace kw {

// The device's name, and what was measured of it.
std::string device_in_words(Archive& archive, const Environment& environment, const std::string& environment_hash,
                            const Target& target);

llm::PromptFacts prompt_facts(Archive& archive, const Environment& environment, const std::string& environment_hash,
                              const ProblemFile& problem, const Target& target, int shots);

}  // namespace kw
