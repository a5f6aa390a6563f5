#include "cli/commands.hpp"

namespace kw::cli {

namespace {

constexpr Command kCommands[] = {
    {"verify", "Check a candidate against its problem",
     "Example:\n"
     "  kw verify model.py my_kernel.py --draws 10\n"
     "CANDIDATE is a Python file with class ModelNew, made by kw or by hand. docs/contract.md says what passes. Seeds are secret unless --seed\n"
     "gives one. Exit code 1 when it does not pass.",
     define_verify},
    {"measure", "Time a problem, and a candidate beside it",
     "Example:\n"
     "  kw measure model.py                                eager and torch.compile\n"
     "  kw measure model.py model_kw.py --budget 30\n"
     "All are interleaved in one process with the cache flushed before each call. Medians with 95% confidence intervals.",
     define_measure},
    {"archive", "List, show and export what was found so far",
     "Example:\n"
     "  kw archive list\n"
     "  kw archive show 3 --source > model_kw.py\n"
     "  kw archive export results.jsonl\n"
     "The archive is $KW_ARCHIVE, or kernelwright/archive.db under $XDG_DATA_HOME or ~/.local/share. Nothing in it is changed or deleted.",
     define_archive},
    {"device", "Measure what this machine's device can do",
     "Example:\n"
     "  kw device\n"
     "  kw device --target triton --fresh\n"
     "Memory bandwidth and FLOP rates, measured with PyTorch; the roofline in every report rests on them. Kept in the archive.",
     define_device},
    {"doctor", "Check that everything kw needs is there",
     "Example:\n"
     "  kw doctor\n"
     "Exit code 3 when something that kw needs is missing; what is only useful does not count.",
     define_doctor},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace kw::cli
