#pragma once

#include "emit/target_printer.hpp"

namespace kw::toy {

bool can_print(kernel::ScalarOp op);
bool can_print(kernel::ReduceOp op);
std::unique_ptr<TargetPrinter> make_printer();

}  // namespace kw::toy
