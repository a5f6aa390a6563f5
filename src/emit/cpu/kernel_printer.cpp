#include "emit/cpu/kernel_printer.hpp"

#include <algorithm>

#include "emit/cpu/kernel_frame.hpp"
#include "emit/cpu/parts.hpp"
#include "emit/cpu/statements.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

namespace {

bool takes_threads(const Part& part) { return part.nest.threading != Threading::kNone; }

}  // namespace

bool refuses_indices(const Kernel& kernel) {
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                     [](const Expr& expr) { return expr.kind == ExprKind::kOp && expr.op == ScalarOp::kBounded; });
}

bool takes_threads(const Kernel& kernel) { return takes_threads(whole_of(kernel)); }

PrintedKernel print_kernel(const Kernel& kernel, HelperSet& helpers) {
  const Part part = whole_of(kernel);
  std::vector<std::string> buffers;
  Touches touches;
  std::string statements = print_statements(part, helpers, buffers, touches);
  if (refuses_indices(kernel))
    statements = "  const int64_t* refused = nullptr;\n" + statements + "  return refused;\n";
  const std::string comment = kernel.doc.empty() ? "" : "// " + kernel.doc + "\n";
  const bool threads = takes_threads(part);
  return {comment + signature(kernel, buffers, threads) + statements + "}\n", threads};
}

bool reads_before_it_writes(const Kernel& kernel, int read, int written) {
  if (scatters(kernel)) return false;  // every thread may walk all points
  const Part part = whole_of(kernel);
  HelperSet helpers;
  std::vector<std::string> buffers;
  Touches touches;
  print_statements(part, helpers, buffers, touches);
  const std::set<int>&reads = touches.reads[read], &writes = touches.writes[written];
  return reads.empty() || writes.empty() || *reads.rbegin() <= *writes.begin();
}

}  // namespace kw::cpu
