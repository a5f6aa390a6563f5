// What language models are told of kernels for this target, and how those are known in an answer.
#pragma once

#include "target/kernel_language.hpp"

namespace kw::triton {

const KernelLanguage& language();

}  // namespace kw::triton
