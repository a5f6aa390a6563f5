// The two Python functions of a candidate that are not kernels: kernel_forward, which runs a Program's steps on
// tensors, and ModelNew.forward, which decides whether it may.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emit/kept_weights.hpp"
#include "emit/program.hpp"
#include "emit/target_printer.hpp"

namespace kw {

// Python names for tensors inside kernel_forward.
class TensorNames {
 public:
  TensorNames(const Graph& graph, const Program& program, const std::set<std::string>& reserved);
  const std::string& of(const std::string& name) const;  // a step's or a graph value's name
  const std::string& of(ValueId value) const;
  // What `of` knows the variable by that counts a step's launches, where the program calls their number `size`.
  static std::string counter(const std::string& size) { return "counter of " + size; }
  // The same of a tensor that begins so many elements into another, which such a step takes.
  static std::string part(const std::string& name, int64_t offset) { return name + " from " + std::to_string(offset); }

 private:
  const Graph& graph_;
  std::map<std::string, std::string> names_;
};

// The inputs of the graph that the program reads, returns or writes to, in the order of kernel_forward's parameters.
std::vector<GraphInput> used_inputs(const Graph& graph, const Program& program);

// The graph's outputs that kernel_forward returns, in order; the others are mutations that kernels make in place, or,
// where it is captured into a CUDA graph, that it makes itself.
std::vector<GraphOutput> returned_outputs(const Graph& graph, const Program& program, const TargetPrinter& target);

// The input that an output of the graph is the new contents of.
const GraphInput& mutated_input(const Graph& graph, const GraphOutput& output);

struct KernelForward {
  std::string source;              // of both functions, where there are two; so are the others
  bool restores_strides = false;   // calls restore_strides
  bool trains_batch_norm = false;  // calls train_batch_norm
  bool steps_rnn = false;          // calls rnn_steps
  bool steps_linear = false;       // calls linear_steps
  bool steps_lstm = false;         // calls lstm_steps
  bool steps_gru = false;          // calls gru_steps
  bool calls_library = false;      // uses aten
  bool counts_programs = false;    // calls ended_programs
  bool splits_scratch = false;     // calls scratch_part
  bool aligns_tensors = false;     // calls aligned
};
// With `kept`, prepared_weights stands before it, and kernel_forward takes what that returns first.
KernelForward kernel_forward_text(const Graph& graph, const Program& program, const TargetPrinter& target,
                                  const TensorNames& names, const std::optional<KeptWeights>& kept);

// Puts the prefix before every `use`, "len(" or "torch.cuda", whose first name stands on its own and not as an
// attribute.
std::string with_prefix(const std::string& text, std::string_view use, std::string_view prefix);

// The class with its guards, and the functions and tables that these need.
std::string model_class_text(const Graph& graph, const Program& program, const TargetPrinter& target, bool wraps_module,
                             const std::optional<KeptWeights>& kept);

}  // namespace kw
