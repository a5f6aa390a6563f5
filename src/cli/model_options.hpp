// The options that say which language model, worded once for all commands that take one.
#pragma once

#include "llm/backend.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kw::cli {

CLI::Option* add_model(CLI::App& app, llm::ModelOptions& model);

}  // namespace kw::cli
