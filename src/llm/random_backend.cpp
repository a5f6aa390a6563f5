#include "llm/random_backend.hpp"

#include <nlohmann/json.hpp>

#include "llm/choices.hpp"
#include "support/error.hpp"

namespace kw::llm {

Completion RandomBackend::generate(const Prompt&, const Sampling& sampling, const OnToken& on_token) {
  if (sampling.schema.empty())
    throw Error(ErrorKind::kUser, ErrorText{.message = "Chance picks schedules and writes no kernels.",
                                            .where = "",
                                            .source = "",
                                            .hint = "Give --edits with --model random.",
                                            .detail = "",
                                            .code = "no-model"});
  Completion completion;
  completion.text = uniform_answer(nlohmann::ordered_json::parse(sampling.schema), sampling.seed.value_or(0));
  completion.finish = "stop";
  completion.model = name();
  if (on_token && !on_token(completion.text)) completion.finish = "cancelled";
  return completion;
}

}  // namespace kw::llm
