// Python that checks many tensors at once: of a hundred, each looked at in turn, the checks take as long as a network's
// kernels.
#pragma once

#include <string_view>

namespace kw {

// GUARDS, checks by PyTorch of tensors like those that `remember` was called with: each is `check(*tensors)`, and false
// where the tensors' types, shapes, strides or devices, or PyTorch's own modes, are others.
std::string_view tensor_guards_text();

}  // namespace kw
