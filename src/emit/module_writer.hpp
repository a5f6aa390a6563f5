// Writes a candidate: one Python file that runs alone with PyTorch (and Triton) and nothing of ours.
#pragma once

#include <string>

#include "emit/program.hpp"
#include "emit/target_printer.hpp"

namespace kw {

struct ModuleText {
  std::string header;          // comment lines: what made the file, what it computes, which share is library calls
  std::string problem_source;  // the user's file, verbatim; empty for in-memory modules
};

// The file holds, in this order: the problem's own source (so Model is there), the kernels, `class ModelNew(Model)`.
// ModelNew.forward checks shapes, dtypes, devices, strides and constants of the call and, when grad mode is on, that
// nothing needs gradients; where that fails it warns once and returns super().forward(...). Otherwise it calls
// `kernel_forward(parameters, buffers and constants…, inputs…) -> flat tuple`, applies buffer and input mutations, and
// builds forward's result. For in-memory modules there is no Model: `class ModelNew(torch.nn.Module)` wraps the
// original module handed to its constructor.
std::string write_module(const Graph& graph, const Program& program, const TargetPrinter& target,
                         const ModuleText& text);

}  // namespace kw
