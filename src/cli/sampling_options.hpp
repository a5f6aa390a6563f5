// The options of asking a language model for kernels, worded once for `kw generate` and `kw bench`.
#pragma once

#include "run/generate.hpp"

namespace CLI {
class App;
}

namespace kw {
class CommandFiles;
}

namespace kw::cli {

// The files that a model and its prompt are read from.
void reads_model(CommandFiles& files, const GenerateOptions& options);

void add_sampling(CLI::App& app, GenerateOptions& options);
void add_answer_form(CLI::App& app, GenerateOptions& options);  // of these, what says how one answer is written
// --seed, which is something else where a compiler takes part; `otherwise` says what happens without it.
void add_sampling_seed(CLI::App& app, GenerateOptions& options, const std::string& otherwise);

}  // namespace kw::cli
