// `kw repl`: the loop, its commands and what it shows. What a person types comes through line_editor, what is done with
// it is run/conversation.
#pragma once

#include "cli/console.hpp"
#include "run/generate.hpp"

namespace kw::cli {

struct ReplOptions {
  GenerateOptions generate;
  std::string problem;  // opened at once; empty: none
};

int run_repl(const ReplOptions& options, Console& console);

// Is this all of an input? Commands and messages are one line; a module goes on until an empty line after its last
// part, or `:end`.
bool is_complete_input(const std::string& text);
bool looks_like_code(const std::string& text);

}  // namespace kw::cli
