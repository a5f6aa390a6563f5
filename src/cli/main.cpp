// Parses the command line, runs one command, and turns every way in which it may end into one paragraph and an exit
// code.
#include <unistd.h>

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "support/suggest.hpp"
#include "run/output_files.hpp"
#include "run/report_version.hpp"
#include "support/error.hpp"
#include "support/error_json.hpp"
#include "support/interrupt.hpp"

namespace {

using namespace kw;
using namespace kw::cli;

constexpr int kUserError = 2;

// Those that help shows, of the command and of those above it, whose options may follow it.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command = &app; command; command = command->get_fallthrough() ? command->get_parent() : nullptr)
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        if (option->get_group() != kHidden) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
    names.push_back(command->get_name());
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
  const std::vector<std::string> extras = app.remaining(true), commands = command_names(command);
  std::string message = error.what(), hint;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error)) {
    const std::string word = extras.empty() ? "" : extras.front(), name = word.substr(0, word.find('='));
    if (word.starts_with("-")) {
      message = "there is no option " + name + " for `" + full_name(command) + "`";
      hint = nearest(name, option_names(command));
    } else if (!word.empty() && !commands.empty()) {
      message = "there is no command \"" + word + "\"" + (&command == &app ? "" : " of `" + full_name(command) + "`");
      hint = nearest(word, commands);
    } else if (!word.empty()) {
      message = "`" + word + "` is one argument too many for `" + full_name(command) + "`";
    } else if (!commands.empty()) {
      message = fmt::format("`{}` needs one of its commands: {}", full_name(command), fmt::join(commands, ", "));
    }
  }
  std::fprintf(stderr, "error: %s%s\n", message.c_str(), message.ends_with("?") ? "" : ".");
  if (!hint.empty()) std::fprintf(stderr, "  hint: did you mean %s?\n", hint.c_str());
  std::fprintf(stderr, "  `%s --help` shows what there is.\n", full_name(command).c_str());
  return kUserError;
}

// Commands inherit the option -h, but not its group.
void show_help_in_general(CLI::App& app) {
  app.get_help_ptr()->group(kGeneral);
  for (CLI::App* command : app.get_subcommands({})) show_help_in_general(*command);
}

// Before the work, which may take minutes; a file that must not be written is not written to tell so.
void check_files(const Invocation& invocation, Console& console) {
  CommandFiles files;
  try {
    if (invocation.files) invocation.files(files);
    if (const std::string& json = invocation.common.json; !json.empty() && json != "-")
      files.writes_json(json, "--json");
    files.check();
  } catch (const Error&) {
    console.give_up_json_file();
    throw;
  }
}

int run(const std::string& command, const Invocation& invocation) {
  Console console(invocation.common.json, invocation.common.quiet);
  try {
    try {
      check_files(invocation, console);
      return invocation.run(console);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::kMissing, "there is not enough memory on this machine.");
    } catch (const nlohmann::json::exception& error) { throw Error(ErrorKind::kInternal, error.what()); }
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
      console.write_json({{"version", kReportVersion},
                          {"command", command},
                          {"exit_code", error.exit_code()},
                          {"error", to_json(error)}});
    } catch (const Error& second) { console.warn(render(second)); }
    return error.exit_code();
  } catch (const std::exception& error) {
    console.warn(render(Error(ErrorKind::kInternal, error.what())));
    return 4;
  }
}

// Its workers tell others who wait for them on whose behalf they have the device; a bench's processes do so on the
// bench's.
void name_for_others(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "bench-worker") return;
  std::string text = std::to_string(getpid()) + " kw";
  for (int i = 1; i < argc; ++i) text += std::string(" ") + argv[i];
  setenv("KW_ON_BEHALF", text.c_str(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  install_interrupt_handler();
  name_for_others(argc, argv);
  CLI::App app(
      "Turns a PyTorch module into a verified, faster kernel module, and says how right and how fast it "
      "is",
      "kw");
  app.formatter(help_formatter(help_width()));
  app.set_help_flag("-h,--help", "Show this help")->group(kGeneral);
  app.set_version_flag("--version", std::string("kw ") + KW_VERSION, "Show the version")->group(kGeneral);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer(
      "`kw COMMAND --help` explains one, with examples. `kw doctor` lists the environment variables that kw "
      "reads.\n"
      "$ kw optimize examples/transformer_mlp.py # a first try");

  std::vector<std::unique_ptr<Invocation>> invocations;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    if (command.hidden) sub->group(kHidden);
    sub->footer(command.teaching);
    auto invocation = std::make_unique<Invocation>();
    command.define(*sub, *invocation);
    sub->add_option("--json", invocation->common.json, "Write the result as JSON to a file too; - is standard output")
        ->default_str("none")
        ->type_name("FILE|-")
        ->check(a_name)
        ->group(kInputOutput);
    sub->add_flag("-q,--quiet", invocation->common.quiet, "Print nothing but errors")->group(kGeneral);
    invocations.push_back(std::move(invocation));
  }
  show_help_in_general(app);
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return kUserError;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) { return app.exit(help); } catch (const CLI::ParseError& error) {
    return refuse_arguments(app, error);
  }
  for (size_t i = 0; i < invocations.size(); ++i)
    if (app.got_subcommand(commands()[i].name)) return run(commands()[i].name, *invocations[i]);
  return kUserError;
}
