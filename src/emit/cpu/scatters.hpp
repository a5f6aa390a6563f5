// Stores of Scatters: into an element that data decide, by one thread in the order of the points.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/kernel_printer.hpp"
#include "emit/cpu/names.hpp"
#include "emit/cpu/placement.hpp"

namespace kw::cpu {

class ScatterPrinter {
 public:
  ScatterPrinter(const kernel_ir::Kernel& kernel, const std::vector<std::string>& buffers, const AxisNames& axes,
                 CodeWriter& writer, Names& names, HelperSet& helpers)
      : kernel_(kernel),
        buffers_(buffers),
        axes_(axes),
        writer_(writer),
        names_(names),
        helpers_(helpers),
        is_accepted_(!refuses_indices(kernel)) {}

  // The loop over threads, each of which owns a range of the places that a store scatters to, with so many elements
  // side by side at each.
  void open_owners(int64_t elements_at_a_place);

  // In the body of loop `depth`: leaves out the loops inside where their place falls to another owner, or an index was
  // refused: what the caller holds is not to be written in a place that it did not name. `known`: the text of a value
  // that a variable holds, or nullptr.
  void skip_others(const Placement& placement, int depth, const std::function<const Text*(kernel_ir::ExprId)>& known);

  void print(const kernel_ir::Store& store, Text place, const Text& value,
             const std::function<std::string(const Text& place)>& element_at);

 private:
  struct Owned {
    std::string first, end;
  };

  const kernel_ir::Kernel& kernel_;
  const std::vector<std::string>& buffers_;
  const AxisNames& axes_;
  CodeWriter& writer_;
  Names& names_;
  HelperSet& helpers_;
  std::vector<Owned> owned_;  // per store
  bool is_own_ = false;       // whatever is printed stores to the thread's own places
  bool is_accepted_;          // and to places that the indices name
};

}  // namespace kw::cpu
