// Chance, at the interface of a model: what a model's picks have to be better than.
#pragma once

#include "llm/backend.hpp"

namespace kw::llm {

class RandomBackend : public Backend {
 public:
  // Throws kUser where there is no schema to pick from: chance writes no code.
  Completion generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token) override;
  int count_tokens(const Prompt&) override { return 0; }
  int context_tokens() override { return 0; }
  std::string name() override { return "random"; }
};

}  // namespace kw::llm
