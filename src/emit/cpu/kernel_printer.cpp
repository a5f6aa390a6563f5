#include "emit/cpu/kernel_printer.hpp"

#include <algorithm>

#include "emit/cpu/kernel_frame.hpp"
#include "emit/cpu/parts.hpp"
#include "emit/cpu/statements.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;

namespace {

bool takes_threads(const std::vector<Part>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.nest.threading != Threading::kNone; });
}

std::string in_block(const std::string& place, const std::string& statements) {
  std::string text = "  {  // " + place + "\n";
  for (const std::string& line : split_lines(statements))
    text += (line.empty() || line[0] == '#' ? "" : "  ") + line + "\n";
  return text + "  }\n";
}

}  // namespace

bool refuses_indices(const Kernel& kernel) {
  return std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                     [](const Expr& expr) { return expr.kind == ExprKind::kOp && expr.op == ScalarOp::kBounded; });
}

bool takes_threads(const Kernel& kernel) { return takes_threads(parts_of(kernel)); }

PrintedKernel print_kernel(const Kernel& kernel, HelperSet& helpers) {
  const std::vector<Part> parts = parts_of(kernel);
  std::vector<std::string> buffers;
  std::string statements;
  for (const Part& part : parts) {
    Touches touches;
    const std::string printed = print_statements(part, helpers, buffers, touches);
    statements += part.place.empty() ? printed : in_block(part.place, printed);
  }
  if (refuses_indices(kernel))
    statements = "  const int64_t* refused = nullptr;\n" + statements + "  return refused;\n";
  const std::string comment = kernel.doc.empty() ? "" : "// " + kernel.doc + "\n";
  const bool threads = takes_threads(parts);
  return {comment + signature(kernel, buffers, threads) + statements + "}\n", threads};
}

bool reads_before_it_writes(const Kernel& kernel, int read, int written) {
  if (scatters(kernel)) return false;  // every thread may walk all points
  const std::vector<Part> parts = parts_of(kernel);
  return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    if (part.nest.copies) return false;
    HelperSet helpers;
    std::vector<std::string> buffers;
    Touches touches;
    print_statements(part, helpers, buffers, touches);
    const std::set<int>&reads = touches.reads[read], &writes = touches.writes[written];
    return reads.empty() || writes.empty() || *reads.rbegin() <= *writes.begin();
  });
}

}  // namespace kw::cpu
