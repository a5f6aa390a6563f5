// What a target adds to the Python file that module_writer.hpp prints: kernel sources and how one is launched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emit/program.hpp"

namespace kw {

class TargetPrinter {
 public:
  virtual ~TargetPrinter() = default;
  virtual std::string device_text() const = 0;  // of tensors: what DEVICE is, as Python text
  // Whether the host goes on while kernels run, on a device of which there may be several.
  virtual bool runs_ahead() const { return false; }
  // Whether the kernel is done with each element of the buffer `read` when it stores the same place of `written`, so
  // that both may be one tensor. The caller has seen to it that both are accessed at equal indices, by one program
  // each, and that no scan, gather or scatter takes part.
  virtual bool reads_before_it_writes(const lower::Lowered&, int /*read*/, int /*written*/) const { return false; }
  // Whether the kernel may access that buffer only where 16 bytes divide its address.
  virtual bool needs_alignment(const lower::Lowered&, int /*buffer*/) const { return false; }
  // Whether new memory costs time, so that kernels should write where something lies that nothing reads any more.
  virtual bool gains_by_reuse() const { return false; }
  // Whether launches take tensors by address, so that scratch memory need not be cut into tensors, which costs the host
  // time, but by scratch_part(scratch, start, shape, dtype).
  virtual bool launches_by_address() const { return false; }
  // Python text that defines the functions that launches call.
  virtual std::string launch_functions(const Program&, bool /*splits_scratch*/) const { return ""; }
  virtual std::string imports(const Program& program) const = 0;  // Python lines at the top of the kernels' part
  virtual std::string kernels(const Program& program) const = 0;  // Python text that defines every kernel of the
                                                                  // program
  // Names of kernels in the source that are made of no tile program.
  virtual std::vector<std::string> kernels_by_hand(const Program&) const { return {}; }
  // The function that a launch of `step` calls, `last` with it (below).
  virtual std::string function(const Program& program, const TileStep& step, const TileStep*) const {
    return program.tiles[step.program].name;
  }
  // Python lines, unindented. `last`: the step that the launch's last program does as well, or nullptr.
  virtual std::string launch(const Program& program, const TileStep& step, const TileStep* last) const = 0;
  virtual std::string prologue(const Program&) const {
    return "";
  }  // Python statements with which kernel_forward begins, unindented
  virtual std::string host_checks(const Program&) const {
    return "";
  }  // Python statements that have to run on the host before each call's launches, unindented
  virtual std::string requirements(const Program&) const {
    return "";
  }  // Python statements in why_not(), unindented: return what stands against a launch
  virtual std::string trailer(const Program& program) const = 0;  // Python text after ModelNew (KERNEL_SIGNATURES), or
                                                                  // empty
};

std::unique_ptr<TargetPrinter> make_triton_printer();  // emit/triton/
std::unique_ptr<TargetPrinter> make_cpu_printer();     // emit/cpu/

}  // namespace kw
