// The compiler's own CPU candidates as examples for a model: rewritten into the form that models are asked for
// (prompts/form.txt).
#pragma once

#include <string>

namespace kw::cpu {

// Without the loader, the guards and the copy of the problem that an emitted file carries. Empty where that is not a
// matter of rearranging text: library calls, inputs that are not plain tensors, a module that rests on other names of
// its file.
std::string in_models_form(const std::string& candidate);

}  // namespace kw::cpu
