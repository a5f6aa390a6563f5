#include "cli/commands.hpp"

namespace kw::cli {

namespace {

constexpr Command kCommands[] = {
    {"archive", "List, show and export what was found so far",
     "Example:\n"
     "  kw archive list\n"
     "  kw archive show 3 --source > model_kw.py\n"
     "  kw archive export results.jsonl\n"
     "The archive is $KW_ARCHIVE, or kernelwright/archive.db under $XDG_DATA_HOME or ~/.local/share. Nothing in it is changed or deleted.",
     define_archive},
    {"doctor", "Check that everything kw needs is there",
     "Example:\n"
     "  kw doctor\n"
     "Exit code 3 when something that kw needs is missing; what is only useful does not count.",
     define_doctor},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace kw::cli
