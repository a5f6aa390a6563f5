// The options of asking a language model for kernels, worded once for `kw generate` and `kw bench`.
#pragma once

#include "driver/generate.hpp"

namespace CLI { class App; }

namespace kw::cli {

void add_sampling(CLI::App& app, GenerateOptions& options);

}  // namespace kw::cli
