#pragma once

#include "emit/target_printer.hpp"

namespace kw::toy {

bool can_print(const kernel_ir::Kernel& kernel);
std::unique_ptr<TargetPrinter> make_printer();

}  // namespace kw::toy
