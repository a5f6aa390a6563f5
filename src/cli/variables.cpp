#include "cli/variables.hpp"

namespace kw::cli {

namespace {

constexpr Variable kVariables[] = {
    {"KW_ARCHIVE", "the archive's file; otherwise kernelwright/archive.db under $XDG_DATA_HOME or ~/.local/share"},
    {"KW_LIBRARY", "libkernelwright.so for the Python package; found beside it otherwise"},
    {"KW_LOCK_DIR",
     "the folder by which runs on this machine keep out of each other's timing; "
     "/tmp/kernelwright-locks otherwise"},
    {"KW_PYTHON",
     "the Python of the worker, with PyTorch 2.8 or later; otherwise the active environment's, python3, "
     "or one that ./kw makes"},
    {"KW_PYTHONPATH", "the folder that holds kernelwright/worker.py; found beside the program otherwise"},
    {"KW_SKIP_PACKAGES", "when it is not empty, ./kw neither looks for system packages nor installs any"},
    {"KW_HOME", "the checkout that ./kw belongs to", true},
    {"KW_ON_BEHALF", "the process and command that a worker has a device for, for others who wait", true},
    {"KW_PYTHON_KEY", "what ./kw's choice of a Python rested on", true},
};

}  // namespace

std::span<const Variable> variables() { return kVariables; }

}  // namespace kw::cli
