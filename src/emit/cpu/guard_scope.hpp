// The guards of folds: loops that stay within them, and what the loops around already see to.
#pragma once

#include <string>
#include <vector>

#include "emit/cpu/code_writer.hpp"
#include "emit/cpu/names.hpp"
#include "emit/cpu/placement.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

class GuardScope {
 public:
  GuardScope(const kernel_ir::Kernel& kernel, CodeWriter& writer, Names& names)
      : kernel_(kernel), writer_(writer), names_(names) {}

  // Where the loop at `depth` starts and ends so as to stay within the guards; empty: all the way, which is `whole`.
  Bounds bounds_within(const std::vector<kernel_ir::Guard>& guards, const std::vector<int>& loops, int depth,
                       const Bounds& whole, const AxisNames& axes);

  // A statement that leaves out the iterations of the loop at `depth` that are outside.
  void skip_outside(const std::vector<kernel_ir::Guard>& guards, const std::vector<int>& loops, int depth,
                    const AxisNames& axes);

  // The conditions that the loops around do not already see to.
  std::string remaining(const std::vector<kernel_ir::Guard>& guards, const AxisNames& axes) const;

  void clear() { implied_.clear(); }

 private:
  const kernel_ir::Kernel& kernel_;
  CodeWriter& writer_;
  Names& names_;
  std::vector<kernel_ir::Guard> implied_;  // hold wherever the innermost open loop is
};

}  // namespace kw::cpu
