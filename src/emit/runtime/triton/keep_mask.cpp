#include "emit/runtime/triton/keep_mask.hpp"

#include <fmt/format.h>

#include <set>

namespace kw::triton {
namespace {

// Philox4x32-10 (Salmon et al. 2011) makes four numbers of a key, the generator's seed, and a counter: how often a
// thread has had some since the seed was set, and the thread's number. PyTorch shares the elements of a dropout out by
// vectors of 16 bytes where addresses and counts allow, and else, as in every other distribution, leaves as many
// elements between a thread's four as there are threads.
constexpr std::string_view kDefinition =
    R"(@triton.jit(do_not_specialize=["seed", "counter", "below", "threads", "elements"])
def keep_mask_kernel(
    mask_ptr, seed: tl.int64, counter: tl.int64, below: tl.uint32, threads: tl.int32, elements: tl.int32, VECTOR: tl.constexpr
):
    """Marks the elements whose numbers of PyTorch's stream are less than `below`. A thread takes VECTOR elements side
    by side, or four that lie far apart."""
    thread = tl.program_id(0) * 256 + tl.arange(0, 256)
    turn = tl.program_id(1)
    none = thread * 0
    if VECTOR == 8:
        half = tl.arange(0, 2)[None, :]
        at = counter + turn * 2 + half
        first, second, third, fourth = tl.philox(
            seed, at.to(tl.uint32) + none[:, None].to(tl.uint32), (at >> 32).to(tl.uint32), thread[:, None], none[:, None]
        )
        place = (turn * threads + thread)[:, None] * 2 + half
    else:
        at = counter + turn
        first, second, third, fourth = tl.philox(
            seed, none.to(tl.uint32) + at.to(tl.uint32), none.to(tl.uint32) + (at >> 32).to(tl.uint32), thread, none
        )
        place = turn * threads + thread
    limit = below.to(tl.uint32)
    first, second = (first < limit).to(tl.int32), (second < limit).to(tl.int32)
    third, fourth = (third < limit).to(tl.int32), (fourth < limit).to(tl.int32)
    if VECTOR == 1:
        element = turn * threads * 4 + thread
        tl.store(mask_ptr + element, first.to(tl.uint8), mask=element < elements)
        tl.store(mask_ptr + element + threads, second.to(tl.uint8), mask=element + threads < elements)
        tl.store(mask_ptr + element + threads * 2, third.to(tl.uint8), mask=element + threads * 2 < elements)
        tl.store(mask_ptr + element + threads * 3, fourth.to(tl.uint8), mask=element + threads * 3 < elements)
    elif VECTOR == 2:
        pairs = mask_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
        tl.store(pairs + place, (first | (second << 8)).to(tl.int16), mask=place * 2 < elements)
    else:
        fours = mask_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
        tl.store(fours + place, first | (second << 8) | (third << 16) | (fourth << 24), mask=place * 4 < elements)


@functools.cache
def least_beyond(keep):
    """The least of 32-bit numbers that becomes `keep` or more, where n becomes n / 2³² + 1 / 2³³ in single precision."""
    def single(number):
        return torch.tensor(number, dtype=torch.float64).float().item()

    low, high = 0, 2**32 - 1
    while low < high:
        middle = (low + high) // 2
        if single(single(middle) / 2**32 + 1 / 2**33) < single(keep):
            low = middle + 1
        else:
            high = middle
    return low


@functools.cache
def threads_of(elements, device):
    """How many threads PyTorch starts for a distribution over so many elements: blocks of 256, as many as the device holds at once."""
    properties = torch.cuda.get_device_properties(device)
    resident = properties.multi_processor_count * (properties.max_threads_per_multi_processor // 256)
    return 256 * min(resident, (elements + 255) // 256)


def take_numbers(count, device):
    """The default generator's seed and how many numbers a thread has had, by fours; `count` more are taken."""
    generator = torch.cuda.default_generators[device.index]
    offset, seed = generator.get_offset(), generator.initial_seed()
    generator.set_offset(offset + count)
    return seed - 2**64 if seed >= 2**63 else seed, offset // 4


def keep_mask(size, keep, dtype, device, dropout=True, beside=None):
    """Which elements a dropout keeps with probability `keep`, or where Bernoulli numbers are 1: PyTorch's own numbers, and
    its generator as PyTorch leaves it."""
    # A graph has new numbers at every replay, for which only PyTorch's kernels look.
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        values = torch.empty(size, dtype=dtype, device=device)
        return aten.native_dropout(values, 1.0 - keep, True)[1] if dropout else values.bernoulli_(keep).bool()
    mask = torch.empty(size, dtype=torch.bool, device=device)
    elements, bytes_each = mask.numel(), dtype.itemsize
    vector, address = 16 // bytes_each if dropout else 1, 0 if beside is None else beside.data_ptr()
    while vector > 1 and (elements % vector or address % (vector * bytes_each)):
        vector //= 2
    threads = threads_of(elements, device)
    seed, counter = take_numbers(((elements - 1) // (threads * 4) + 1) * 4, device)
    turns = (elements - 1) // (threads * (4 if vector == 1 else vector)) + 1
    keep_mask_kernel[(threads // 256, turns)](
        mask.view(torch.uint8), seed, counter, least_beyond(keep), threads, elements, VECTOR=vector, num_warps=4, enable_fp_fusion=False
    )
    return mask
)";

std::set<int64_t> vectors_of(const Program& program) {
  std::set<int64_t> vectors;
  for (const Step& step : program.steps)
    if (const auto* call = std::get_if<ExternStep>(&step); call && call->mask_vector > 0)
      vectors.insert(call->mask_vector);
  return vectors;
}

}  // namespace

std::string keep_mask_definition(const Program& program) {
  return vectors_of(program).empty() ? "" : std::string(kDefinition);
}

std::string keep_mask_signatures(const Program& program) {
  std::string text;
  for (const int64_t vector : vectors_of(program))
    text += fmt::format(
        "    {{\"kernel\": \"{}\",\n     \"signature\": {{\"mask_ptr\": \"*u8\", \"seed\": \"i64\", \"counter\": "
        "\"i64\", "
        "\"below\": \"u32\", \"threads\": \"i32\", \"elements\": \"i32\"}},\n"
        "     \"constexprs\": {{\"VECTOR\": {}}}, \"num_warps\": 4, \"enable_fp_fusion\": False, \"divisible_by_16\": "
        "[\"mask_ptr\"]}},\n",
        kKeepMaskKernel, vector);
  return text;
}

}  // namespace kw::triton
