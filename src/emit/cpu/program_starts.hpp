// Where a program's part of a buffer starts: the terms of an index that are the same for the whole program, each sum
// computed once into a variable before the program's loops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/loop_nest.hpp"
#include "emit/cpu/names.hpp"

namespace kw::cpu {

class ProgramStarts {
 public:
  ProgramStarts(const kernel_ir::Kernel& kernel, const LoopNest& nest) : kernel_(kernel), nest_(nest) {}

  // Prints a variable for each start that the loads and stores need. `buffers`: the buffers' names in the kernel.
  void print(const std::vector<std::string>& buffers, const AxisNames& axes, Names& names, CodeWriter& writer);

  // buffer[start + what differs within the program + gathered]; `gathered`: where a Gather's offset stands, or null.
  std::string element(const kernel_ir::Access& access, const std::string& buffer, const AxisNames& axes,
                      const Text* gathered) const;

 private:
  std::vector<kernel_ir::IndexTerm> start_of(const kernel_ir::Index& index) const;  // empty where a variable is not
                                                                                    // worth it
  const std::string* find(const std::vector<kernel_ir::IndexTerm>& start) const;

  const kernel_ir::Kernel& kernel_;
  const LoopNest& nest_;
  std::vector<std::pair<std::vector<kernel_ir::IndexTerm>, std::string>> variables_;
};

}  // namespace kw::cpu
