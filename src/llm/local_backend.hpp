// A model in the host's own memory: GGUF through llama.cpp, or a Hugging Face folder through transformers.
#pragma once

#include "llm/backend.hpp"
#include "llm/host.hpp"

namespace kw::llm {

class LocalBackend : public Backend {
 public:
  LocalBackend(ModelPlace place, const ModelOptions& options, std::shared_ptr<Host> host);

  Completion generate(const Prompt& prompt, const Sampling& sampling, const OnToken& on_token) override;
  int count_tokens(const Prompt& prompt) override;
  int context_tokens() override;
  std::string name() override;

 private:
  void load();
  ModelPlace place_;
  ModelOptions options_;
  std::shared_ptr<Host> host_;
  nlohmann::ordered_json loaded_;
};

}  // namespace kw::llm
