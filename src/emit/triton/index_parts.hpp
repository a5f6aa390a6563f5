// Quotients and remainders within indices.
#pragma once

#include <functional>
#include <string>

#include "kernel/index.hpp"

namespace kw::triton {

// Calls visit(part) for each quotient and remainder in the index as often as it is written there, inner ones first.
void for_each_part(const kernel::Index& index, const std::function<void(const kernel::Index&)>& visit);

// A name that says what the quotient or remainder is: "phase_over_2_mod_2" for `phase // 2 % 2`.
std::string name_of_part(const kernel::Index& part, const std::function<std::string(kernel::Symbol)>& name);

}  // namespace kw::triton
