#include "emit/runtime/triton/launch.hpp"

#include <algorithm>
#include <string_view>

namespace kw::triton {
namespace {

// `run` takes the grid, the stream, the function and its metadata, what hooks are told and the two hooks, and then the
// kernel's arguments, constants among them.
constexpr std::string_view kLaunch =
    R"py(COMPILED = {}  # (kernel, grid, device) → what Triton made of it, and its constants


def launch(kernel, grid, *tensors, **options):
    """kernel[grid](*tensors, **options), where nothing but the tensors' addresses changes between calls.

    What Triton compiled for addresses divisible by 16 is kept, and takes such addresses from then on.
    """
    if DEVICE == "cpu":
        kernel[grid](*tensors, **options)
        return
    driver = triton.runtime.driver.active
    device = driver.get_current_device()
    addresses = [tensor.data_ptr() for tensor in tensors]
    bits = 0
    for address in addresses:
        bits |= address
    place = id(kernel), grid, device
    if bits % 16 == 0 and place in COMPILED:
        compiled, constants = COMPILED[place]
        stream = driver.get_current_stream(device)
        blocks = *grid, *(1, 1, 1)[len(grid) :]
        nothing_told = None, None, None  # to hooks
        compiled.run(
            *blocks, stream, compiled.function, compiled.packed_metadata, *nothing_told, *addresses, *constants
        )
        return
    compiled = kernel[grid](*tensors, **options)
    if bits % 16 == 0 and compiled is not None:
        COMPILED[place] = compiled, [options[name] for name in kernel.arg_names[len(tensors) :]]
)py";

constexpr std::string_view kScratchPart = R"py(class Part:
    """As much of a tensor as a kernel asks for."""

    __slots__ = "address", "dtype"

    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


def scratch_part(scratch, start, shape, dtype):
    """The tensor of this shape and dtype that lies `start` bytes into the scratch memory."""
    if DEVICE == "cuda":
        return Part(scratch.data_ptr() + start, dtype)
    count = 1
    for extent in shape:
        count *= extent
    return scratch[start : start + count * dtype.itemsize].view(dtype).view(shape)
)py";

}  // namespace

bool takes_tensors_alone(const TileStep& step) { return !step.repetition; }

std::string launch_functions(const Program& program, bool splits_scratch) {
  const auto launches = [](const Step& step) {
    const auto* tiles = std::get_if<TileStep>(&step);
    return tiles && takes_tensors_alone(*tiles);
  };
  std::string text;
  if (std::any_of(program.steps.begin(), program.steps.end(), launches)) text += std::string(kLaunch) + "\n\n";
  if (splits_scratch) text += std::string(kScratchPart) + "\n\n";
  return text;
}

}  // namespace kw::triton
