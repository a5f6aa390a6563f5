// How many tokens a text has, where no tokenizer is at hand.
#pragma once

#include <string_view>

namespace kw::llm {

// Code in the tokenizers of current models: 3 to 3.6 bytes a token. The low end, so that a budget holds.
int estimate_tokens(std::string_view text);

}  // namespace kw::llm
