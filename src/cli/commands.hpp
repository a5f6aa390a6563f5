// The table of commands. Adding one is a line in commands.cpp and a file beside its siblings.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cli/console.hpp"

namespace CLI {
class App;
}

namespace kw {
class CommandFiles;
}

namespace kw::cli {

// Exit codes beside those of kw::Error.
inline constexpr int kGood = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kMissing = 3;

// What every command has: --json FILE|- and --quiet.
struct CommonOptions {
  std::string json;
  bool quiet = false;
};

struct Invocation {
  CommonOptions common;
  std::function<int(Console&)> run;          // set by define(); returns the exit code
  std::function<void(CommandFiles&)> files;  // names what it reads and writes beside --json, before it runs; not set:
                                             // nothing
};

struct Command {
  const char* name;
  const char* summary;   // one line, for `kw --help`
  const char* teaching;  // below the options in `kw NAME --help`, in the form of help_text.hpp
  void (*define)(CLI::App& app, Invocation& invocation);
  bool hidden = false;
};

std::span<const Command> commands();

void define_optimize(CLI::App& app, Invocation& invocation);
void define_generate(CLI::App& app, Invocation& invocation);
void define_repl(CLI::App& app, Invocation& invocation);
void define_verify(CLI::App& app, Invocation& invocation);
void define_measure(CLI::App& app, Invocation& invocation);
void define_inspect(CLI::App& app, Invocation& invocation);
void define_bench(CLI::App& app, Invocation& invocation);
void define_bench_worker(CLI::App& app, Invocation& invocation);
void define_archive(CLI::App& app, Invocation& invocation);
void define_device(CLI::App& app, Invocation& invocation);
void define_doctor(CLI::App& app, Invocation& invocation);

}  // namespace kw::cli
