// What a module in evaluation mode makes of its weights alone: made once, and again when a weight has changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emit/program.hpp"
#include "emit/target_printer.hpp"

namespace kw {

// A program in two: `prepares` reads the module's own tensors alone, `rest` reads what that has made as well.
struct KeptWeights {
  Program prepares, rest;
  std::vector<std::string> sources;  // what `prepares` reads of the module's tensors, by name
  std::vector<std::string> made;     // what `rest` reads of it
  int64_t bytes = 0;                 // of that, kept between calls
};

// nullopt in training mode, where weights change with every call, and where little would be kept.
std::optional<KeptWeights> kept_weights(const Graph& graph, const Program& program, const TargetPrinter& target);

// kept_weights(module, tensors), which returns what `prepared_weights` makes, and the class behind it. `sources`: their
// places among kernel_forward's inputs.
std::string kept_class_text(const std::vector<size_t>& sources);

}  // namespace kw
