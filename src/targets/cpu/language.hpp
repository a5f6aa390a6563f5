// What language models are told of kernels for this target, and how those are known in an answer.
#pragma once

#include "target/kernel_language.hpp"

namespace kw::cpu {

const KernelLanguage& language();

}  // namespace kw::cpu
