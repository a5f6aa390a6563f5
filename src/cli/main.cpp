// Parses the command line, runs one command, and turns every way in which it may end into one paragraph and an exit code.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/suggest.hpp"
#include "driver/error_json.hpp"
#include "driver/report_version.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace {

using namespace kw;
using namespace kw::cli;

constexpr int kUserError = 2;

// CLI11's own help starts each option's text at column 30 and does not wrap; these columns fit 100.
void set_up_formatter(CLI::App& app) { app.get_formatter()->column_width(34); }

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) names.push_back(command->get_name());
  return names;
}

// The deepest command that the arguments name.
const CLI::App& chosen(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

int refuse_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  std::string message = error.what(), hint;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error)) {
    const std::vector<std::string> extras = app.remaining(true);
    if (!extras.empty()) {
      const std::string& word = extras.front();
      const std::string name = word.substr(0, word.find('='));
      if (word.starts_with("-")) {
        message = "there is no option " + name + " for `kw" + (&command == &app ? "" : " " + command.get_name()) + "`";
        hint = nearest(name, option_names(command));
      } else if (&command == &app) {
        message = "there is no command \"" + word + "\"";
        hint = nearest(word, command_names(app));
      } else {
        message = "`" + word + "` is one argument too many for `kw " + command.get_name() + "`";
      }
    }
  }
  std::fprintf(stderr, "error: %s.\n", message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "  hint: did you mean %s?\n", hint.c_str());
  std::fprintf(stderr, "  `kw %s%s--help` shows what there is.\n", &command == &app ? "" : command.get_name().c_str(), &command == &app ? "" : " ");
  return kUserError;
}

int run(const std::string& command, const Invocation& invocation) {
  Console console(invocation.common.json, invocation.common.quiet);
  std::string problem;
  try {
    try {
      return invocation.run(console);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::kMissing, "there is not enough memory on this machine.");
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorKind::kInternal, error.what());
    }
  } catch (const Interrupted& interrupt) {
    console.warn(interrupt.kept.empty() ? "interrupted" : "interrupted; " + interrupt.kept);
    return kInterruptedExitCode;
  } catch (const Error& error) {
    // The terminal's Ctrl-C may surface as a failed call of whatever was going on.
    if (interrupted()) {
      console.warn("interrupted");
      return kInterruptedExitCode;
    }
    console.warn(render(error));
    try {
      console.write_json({{"version", kReportVersion}, {"command", command}, {"exit_code", error.exit_code()}, {"error", to_json(error)}});
    } catch (const Error& second) {
      console.warn(render(second));
    }
    return error.exit_code();
  } catch (const std::exception& error) {
    console.warn(render(Error(ErrorKind::kInternal, error.what())));
    return 4;
  }
}

}  // namespace

int main(int argc, char** argv) {
  install_interrupt_handler();
  CLI::App app("Turns a PyTorch module into a verified, faster kernel module, and says how right and how fast it is.", "kw");
  app.set_version_flag("--version", std::string("kw ") + KW_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer("`kw COMMAND --help` explains one, with an example. Start with: kw optimize examples/transformer_mlp.py");
  set_up_formatter(app);

  std::vector<std::unique_ptr<Invocation>> invocations;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    if (command.hidden) sub->group("");
    sub->footer(command.teaching);
    auto invocation = std::make_unique<Invocation>();
    command.define(*sub, *invocation);
    sub->add_option("--json", invocation->common.json, "Write the result as JSON to a file, or to standard output for -")->type_name("FILE|-");
    sub->add_flag("-q,--quiet", invocation->common.quiet, "Print nothing but errors");
    invocations.push_back(std::move(invocation));
  }
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return kUserError;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return refuse_arguments(app, error);
  }
  for (size_t i = 0; i < invocations.size(); ++i)
    if (app.got_subcommand(commands()[i].name)) return run(commands()[i].name, *invocations[i]);
  return kUserError;
}
