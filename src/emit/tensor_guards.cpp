#include "emit/tensor_guards.hpp"

namespace kw {
namespace {

// torch.compile's own. It is not public, so that it is tried first.
constexpr std::string_view kGuards = R"py(
GUARDS = []  # for the last few modes of PyTorch (no_grad, inference_mode) that there were calls in


@functools.cache
def tensor_guards():
    """PyTorch's check of many tensors in one call; None where it is not what it was: it is not public."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        one = torch.empty(2, 3)
        others = one.t(), torch.empty(3, 2).t(), one.double(), one.to("meta"), None
        guards = TensorGuards(one, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        return TensorGuards if guards.check(one) and not any([guards.check(other) for other in others]) else None
    except (ImportError, TypeError):
        return None


def remember(tensors):
    """Has PyTorch check later calls' tensors in one go, where they are like these, which are as EXPECTED says."""
    guards = tensor_guards()
    if guards is not None and len({id(tensor) for tensor in tensors}) == len(tensors):  # one given twice never passes
        GUARDS[:] = [guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None), *GUARDS[:3]]


)py";

}  // namespace

std::string_view tensor_guards_text() { return kGuards; }

}  // namespace kw
