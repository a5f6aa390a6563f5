// The options of asking a language model for kernels, worded once for `kw generate` and `kw bench`.
#pragma once

#include "driver/generate.hpp"

namespace CLI { class App; }

namespace kw::cli {

void add_sampling(CLI::App& app, GenerateOptions& options);
void add_sampling_seed(CLI::App& app, GenerateOptions& options);   // --seed, which is something else where a compiler takes part

}  // namespace kw::cli
