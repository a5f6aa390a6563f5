#include "emit/runtime/triton/helpers.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "support/error.hpp"

namespace kw::triton {
namespace {

constexpr std::pair<std::string_view, std::string_view> kHelpers[] = {
    {"larger", R"(@triton.jit
def larger(left, right):
    """The larger of two values; NaN wins."""
    return tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"smaller", R"(@triton.jit
def smaller(left, right):
    """The smaller of two values; NaN wins."""
    return tl.minimum(left, right, propagate_nan=tl.PropagateNan.ALL)
)"},
    {"round_tf32", R"(@triton.jit
def round_tf32(value):
    """The nearest number with TF32's 11 digits. A product on tensor cores would cut what goes beyond them."""
    bits = (value.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(value == value, bits.to(tl.float32, bitcast=True), value)
)"},
    {"short_tanh", R"(@triton.jit
def short_tanh(value):
    """tanh, a few places of the last digit off at most: near 0 a polynomial, elsewhere 1 - 2 / (1 + e^2x)."""
    square = value * value
    factor = tl.fma(square, 0.016458826, -0.052684178)
    factor = tl.fma(square, factor, 0.13320943)
    factor = tl.fma(square, factor, -0.33332958)
    near = tl.fma(square * factor, value, value)
    far = 1.0 - libdevice.fast_dividef(2.0, 1.0 + tl.exp2(value * 2.8853900817779268))
    return tl.where(square < 0.3025, near, far)
)"},
    {"short_erf", R"(@triton.jit
def short_erf(value):
    """erf within 1e-7: 1 - 2^(-t p(t)), with t the value without its sign."""
    size = tl.abs(value)
    factor = tl.fma(size, 4.535856e-05, -0.00044550732)
    factor = tl.fma(size, factor, 0.0014894407)
    factor = tl.fma(size, factor, 0.0007746311)
    factor = tl.fma(size, factor, -0.028253682)
    factor = tl.fma(size, factor, 0.14848162)
    factor = tl.fma(size, factor, 0.9184164)
    factor = tl.fma(size, factor, 1.6279086)
    return libdevice.copysign(1.0 - tl.exp2(factor * size * -1.0), value)
)"},
    {"wait_for_all", R"(@triton.jit
def wait_for_all(arrived, count):
    """What blocks stored before is seen by all of them after: once so many came, those of earlier waits included."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()
)"},
    {"add", R"(@triton.jit
def add(left, right):
    return left + right
)"},
    {"multiply", R"(@triton.jit
def multiply(left, right):
    return left * right
)"},
    {"multiply_in_order", R"(@triton.jit
def multiply_in_order(products, axis: tl.constexpr, STEPS: tl.constexpr):
    """Running products of rows of 2 ** STEPS values, multiplied in the order of PyTorch's CUDA kernel: which overflow,
    and to what, is the same."""
    lane = tl.arange(0, 2 ** STEPS)
    if len(products.shape) == 2:
        lane = tl.broadcast_to(lane[None, :], products.shape)
    for step in tl.static_range(STEPS):
        right = ((lane >> step) & 1) == 1
        before = tl.gather(products, tl.where(right, ((lane >> step) << step) - 1, lane), axis)
        products = tl.where(right, products * before, products)
    return products
)"},
    {"last_in_row", R"(@triton.jit
def last_in_row(products, axis: tl.constexpr):
    """The last of each row, in all its places."""
    return tl.gather(products, tl.full(products.shape, products.shape[axis] - 1, tl.int32), axis)
)"},
    {"fold_into", R"(@triton.jit
def fold_into(start, offset, value, mask, fold: tl.constexpr):
    """Folds values into elements of memory where the mask holds: until no other program's fold came between reading an
    element and writing it."""
    if value.dtype.primitive_bitwidth == 64:
        bits = tl.int64
    elif value.dtype.primitive_bitwidth == 32:
        bits = tl.int32
    else:
        bits = tl.int16
    cell = (start + tl.where(mask, offset, 0)).to(tl.pointer_type(bits), bitcast=True)
    old = tl.load(cell)
    pending = mask
    while tl.max(pending.to(tl.int32)) > 0:
        folded = fold(old.to(value.dtype, bitcast=True), value).to(value.dtype).to(bits, bitcast=True)
        seen = tl.atomic_cas(cell, old, tl.where(pending, folded, old), sem="relaxed")
        pending = pending & (seen != old)
        old = seen
)"},
    {"raise_to", R"(@triton.jit
def raise_to(start, offset, value, mask):
    """Makes elements of memory at least values where the mask holds; NaN wins. Floats order as the integers of their
    bits, those below zero the other way round."""
    if value.dtype.primitive_bitwidth == 64:
        bits = tl.where(value != value, 0x7FF8000000000000, value.to(tl.int64, bitcast=True))
        signed = (start + offset).to(tl.pointer_type(tl.int64), bitcast=True)
        unsigned = (start + offset).to(tl.pointer_type(tl.uint64), bitcast=True)
    else:
        bits = tl.where(value != value, 0x7FC00000, value.to(tl.int32, bitcast=True))
        signed = (start + offset).to(tl.pointer_type(tl.int32), bitcast=True)
        unsigned = (start + offset).to(tl.pointer_type(tl.uint32), bitcast=True)
    # Most values change nothing, and what is NaN stays so.
    old = tl.load(start + offset, mask=mask, other=0.0)
    mask = mask & (old == old) & ((value > old) | (value != value))
    tl.atomic_max(signed, bits, mask=mask & (bits >= 0), sem="relaxed")
    tl.atomic_min(unsigned, bits.to(unsigned.dtype.element_ty, bitcast=True), mask=mask & (bits < 0), sem="relaxed")
)"},
    {"lower_to", R"(@triton.jit
def lower_to(start, offset, value, mask):
    """Makes elements of memory at most values where the mask holds; NaN wins. Floats order as the integers of their
    bits, those below zero the other way round."""
    if value.dtype.primitive_bitwidth == 64:
        bits = tl.where(value != value, -0x8000000000000, value.to(tl.int64, bitcast=True))
        signed = (start + offset).to(tl.pointer_type(tl.int64), bitcast=True)
        unsigned = (start + offset).to(tl.pointer_type(tl.uint64), bitcast=True)
    else:
        bits = tl.where(value != value, -0x400000, value.to(tl.int32, bitcast=True))
        signed = (start + offset).to(tl.pointer_type(tl.int32), bitcast=True)
        unsigned = (start + offset).to(tl.pointer_type(tl.uint32), bitcast=True)
    # Most values change nothing, and what is NaN stays so.
    old = tl.load(start + offset, mask=mask, other=0.0)
    mask = mask & (old == old) & ((value < old) | (value != value))
    tl.atomic_min(signed, bits, mask=mask & (bits >= 0), sem="relaxed")
    tl.atomic_max(unsigned, bits.to(unsigned.dtype.element_ty, bitcast=True), mask=mask & (bits < 0), sem="relaxed")
)"},
    {"bounded", R"(@triton.jit
def bounded(index, size, refused_ptr, real=True):
    """The index; one outside [0, size) is noted where the next call looks, and the nearest inside taken for it."""
    tl.store(refused_ptr + index * 0, index, mask=((index < 0) | (index >= size)) & real)
    return tl.minimum(tl.maximum(index, 0), size - 1)
)"},
    {"four_of", R"(@triton.jit
def four_of(tile):
    """The four tiles along the last dimension of a tile."""
    if len(tile.shape) == 2:
        pairs = tl.reshape(tile, [tile.shape[0], 2, 2])
    else:
        pairs = tl.reshape(tile, [tile.shape[0], tile.shape[1], 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth
)"},
    {"together", R"(@triton.jit
def together(first, second, third, fourth):
    """Four tiles along a new last dimension."""
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    if len(pairs.shape) == 3:
        tile = tl.reshape(pairs, [pairs.shape[0], 4])
    else:
        tile = tl.reshape(pairs, [pairs.shape[0], pairs.shape[1], 4])
    return tile
)"},
    {"larger_at", R"(@triton.jit
def larger_at(value, index, other, other_index):
    """The larger of two values and where it stands; NaN wins, the first of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index < other_index, (value > other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"smaller_at", R"(@triton.jit
def smaller_at(value, index, other, other_index):
    """The smaller of two values and where it stands; NaN wins, the first of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index < other_index, (value < other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"later_larger_at", R"(@triton.jit
def later_larger_at(value, index, other, other_index):
    """The larger of two values and where it stands; NaN wins, the last of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index > other_index, (value > other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"later_smaller_at", R"(@triton.jit
def later_smaller_at(value, index, other, other_index):
    """The smaller of two values and where it stands; NaN wins, the last of equals stays."""
    is_nan, other_is_nan = value != value, other != other
    equal = (value == other) | (is_nan & other_is_nan)
    keep = tl.where(equal, index > other_index, (value < other) | is_nan)
    return tl.where(keep, value, other), tl.where(keep, index, other_index)
)"},
    {"log_add_exp", R"(@triton.jit
def log_add_exp(left, right):
    """log(exp(left) + exp(right)); two equal infinities stay, NaN wins."""
    largest = tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)
    added = largest + libdevice.log1p(tl.exp(-tl.abs(left - right)))
    return tl.where(left == right, left + 0.6931471805599453, added)
)"},
    {"order_of", R"(@triton.jit
def order_of(value, zeros_are_equal: tl.constexpr, descending: tl.constexpr):
    """Whole numbers in the order in which values sort; NaN is the largest."""
    width: tl.constexpr = value.dtype.primitive_bitwidth
    if width == 64:
        order = value.to(tl.int64, bitcast=True)
    elif value.dtype.is_floating() and width == 32:
        order = value.to(tl.int32, bitcast=True)
    elif value.dtype.is_floating():
        order = value.to(tl.int16, bitcast=True).to(tl.int32)
    else:
        order = value.to(tl.int32)
    if value.dtype.is_floating():
        # Bits of floats below zero order the other way round.
        largest: tl.constexpr = 2 ** (width - 1) - 1
        order = order ^ ((order >> (order.dtype.primitive_bitwidth - 1)) & largest)
        order = tl.where(value != value, largest, order)
        if zeros_are_equal:
            order = tl.where(value == 0, 0, order)
    if descending:
        order = ~order
    return order
)"},
    {"value_of", R"(@triton.jit
def value_of(order, negative_zero, dtype: tl.constexpr, descending: tl.constexpr):
    """The values behind orders."""
    if descending:
        order = ~order
    if dtype.is_floating():
        width: tl.constexpr = dtype.primitive_bitwidth
        bits = order ^ ((order >> (order.dtype.primitive_bitwidth - 1)) & (2 ** (width - 1) - 1)) ^ (negative_zero << (width - 1))
        if width == 16:
            bits = bits.to(tl.int16)
        value = bits.to(dtype, bitcast=True)
    elif dtype == tl.int1:
        value = order != 0
    else:
        value = order.to(dtype)
    return value
)"},
    {"packed_with_places", R"(@triton.jit
def packed_with_places(value, place, descending: tl.constexpr):
    """A row's values and where they stand as one whole number each: the order of the value, the place, and which of the
    zeros it is. So equals keep their order."""
    order = order_of(value, True, descending)
    if value.dtype.primitive_bitwidth > 16:
        packed = (order.to(tl.int64) << 32) | (place.to(tl.int32) << 1)
    else:
        packed = (order << 16) | (place.to(tl.int32) << 1)
    if value.dtype.is_floating():
        negative_zero = (value == 0) & (order_of(value, False, False) < 0)
        packed = packed | negative_zero.to(packed.dtype)
    return packed
)"},
    {"elements_of", R"(@triton.jit
def elements_of(packed, dtype: tl.constexpr, descending: tl.constexpr):
    """The values in numbers that packed_with_places made."""
    half: tl.constexpr = packed.dtype.primitive_bitwidth // 2
    negative_zero = (packed & 1).to(tl.int32) if dtype.is_floating() else 0
    return value_of((packed >> half).to(tl.int32), negative_zero, dtype, descending)
)"},
    {"places_of", R"(@triton.jit
def places_of(packed):
    """The places in numbers that packed_with_places made."""
    half: tl.constexpr = packed.dtype.primitive_bitwidth // 2
    return ((packed & (2**half - 1)) >> 1).to(tl.int32)
)"},
    {"lowest_first", R"(@triton.jit
def lowest_first(numbers, count: tl.constexpr):
    """Each row in ascending order; or where count is not 0 its lowest ones in order, again and again."""
    if count == 0:
        result = tl.sort(numbers)
    else:
        lowest = tl.expand_dims(~tl.topk(~numbers, count), -2)
        times: tl.constexpr = numbers.shape[len(numbers.shape) - 1] // count
        result = tl.reshape(tl.broadcast_to(lowest, numbers.shape[:-1] + [times, count]), numbers.shape)
    return result
)"},
    {"pick_lowest", R"(@triton.jit
def pick_lowest(numbers, count: tl.constexpr):
    """The lowest numbers of each row in order, one after the other; no two of a row are equal."""
    last: tl.constexpr = 2 ** (numbers.dtype.primitive_bitwidth - 1) - 1
    place = tl.arange(0, numbers.shape[len(numbers.shape) - 1])
    if len(numbers.shape) == 2:
        place = place[None, :]
    result = numbers
    for index in tl.static_range(count):
        lowest = tl.min(numbers, axis=len(numbers.shape) - 1, keep_dims=True)
        result = tl.where(place == index, lowest, result)
        numbers = tl.where(numbers == lowest, last, numbers)
    return result
)"},
    {"floor_divide", R"(@triton.jit
def floor_divide(dividend, divisor):
    """Integer division towards minus infinity; Triton's own goes towards zero."""
    quotient = dividend // divisor
    inexact = (dividend % divisor != 0) & ((dividend < 0) != (divisor < 0))
    return tl.where(inexact, quotient - 1, quotient)
)"},
    {"remainder", R"(@triton.jit
def remainder(dividend, divisor):
    """Integer remainder with the sign of the divisor; Triton's own has the dividend's."""
    rest = dividend % divisor
    return tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)
)"},
    {"remainder_float", R"(@triton.jit
def remainder_float(dividend, divisor):
    """Remainder with the sign of the divisor."""
    rest = libdevice.fmod(dividend, divisor)
    return tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)
)"},
    {"floor_divide_float", R"(@triton.jit
def floor_divide_float(dividend, divisor):
    """Floor of the exact quotient, which the rounded quotient can miss by one."""
    rest = libdevice.fmod(dividend, divisor)
    quotient = (dividend - rest) / divisor
    quotient = tl.where((rest != 0) & ((rest < 0) != (divisor < 0)), quotient - 1, quotient)
    nearest = tl.floor(quotient)
    nearest = tl.where(quotient - nearest > 0.5, nearest + 1, nearest)
    return tl.where(divisor == 0, dividend / divisor, nearest)
)"},
    {"nonnegative_power", R"(@triton.jit
def nonnegative_power(base, exponent):
    """A base that is not negative to an exponent: 2 to the exponent times the base's logarithm, which is a sum of two numbers."""
    is_small = base < 1.1754943508222875e-38
    bits = tl.where(is_small, base * 16777216.0, base).to(tl.int32, bitcast=True)
    octave = (bits - 0x3F3504F3) & -0x800000
    above_one = (bits - octave).to(tl.float32, bitcast=True) - 1.0
    whole = (octave >> 23).to(tl.float32) - tl.where(is_small, 24.0, 0.0)
    # The logarithm between the roots of 1/2 and 2 is 2 / ln 2 · (q + q³/3 + q⁵/5 + …) of q = (m - 1) / (m + 1).
    share = 1.0 / (above_one + 2.0)
    quotient = above_one * share
    quotient_rest = tl.fma(quotient, -above_one, tl.fma(quotient, -2.0, above_one)) * share
    square = quotient * quotient
    tail = tl.fma(square, tl.fma(square, tl.fma(square, tl.fma(square, 0.26230818, 0.32059890), 0.41219857), 0.57707804), 0.96179670)
    first = quotient * 2.8853900432586670
    rest = tl.fma(quotient, 2.8853900432586670, -first)
    rest = tl.fma(tl.fma(quotient_rest, square, quotient_rest), 2.8853900432586670, rest)
    rest = tl.fma(quotient, 3.8519259e-08, rest)
    rest = tl.fma(quotient * square, tail, rest)
    part = first + rest
    rest = rest - (part - first)
    logarithm = whole + part
    rest = part - (logarithm - whole) + rest
    logarithm = tl.where((base > 0.0) & (base < float("inf")), logarithm, tl.where(base == 0.0, float("-inf"), base))
    product = exponent * logarithm
    product_rest = tl.fma(exponent, rest, tl.fma(exponent, logarithm, -product))
    power = tl.exp2(product)
    power = tl.where((power == 0.0) | (power == float("inf")), power, tl.fma(power, product_rest * 0.6931471805599453, power))
    return tl.where((base == 1.0) | (exponent == 0.0), 1.0, power)
)"},
    {"sign", R"(@triton.jit
def sign(value):
    return (value > 0).to(value.dtype) - (value < 0).to(value.dtype)
)"},
    // GPUs of capability 8.9 convert by way of half precision and round twice.
    {"hardware_float8", R"(def hardware_float8():
    """Whether the GPU converts single precision to 8-bit floats itself, rounding once."""
    return DEVICE == "cuda" and torch.cuda.get_device_capability() >= (9, 0)
)"},
    {"float_of_float8_e4m3fn", R"(@triton.jit
def float_of_float8_e4m3fn(code, HARDWARE_FLOAT8: tl.constexpr):
    """The number that a byte stands for: half precision's bits with an exponent that is 8 too small, and no infinity."""
    if HARDWARE_FLOAT8:
        return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    bits = code.to(tl.int16)
    magnitude = ((bits & 127) << 7).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    magnitude = tl.where((bits & 127) == 127, float("nan"), magnitude)
    return tl.where(bits >= 128, magnitude * -1.0, magnitude)
)"},
    {"SIX_PRODUCTS",
     R"(# Of bf16 numbers, three of which stand for each of fp32; Triton's interpreter has no name for it.
SIX_PRODUCTS = tl.constexpr("ieee" if triton.knobs.runtime.interpret else "bf16x6")
)"},
    {"float8_e4m3fn_of_float",
     R"(# PyTorch before 2.12 makes NaN of what would be rounded to more than the largest number.
FLOAT8_SATURATES = tl.constexpr(torch.tensor(1000.0).to(torch.float8_e4m3fn).float().item() == 448.0)


@triton.jit
def float8_e4m3fn_of_float(value, HARDWARE_FLOAT8: tl.constexpr):
    """The byte of the nearest number, ties to even; beyond the largest that one, or NaN."""
    if HARDWARE_FLOAT8:
        nearest = value.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
        return nearest if FLOAT8_SATURATES else tl.where(tl.abs(value) > 464.0, 0x7F, nearest).to(tl.uint8)
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude - 0x3BF80001 + ((magnitude >> 20) & 1)) >> 20
    subnormal = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    finite = tl.where(magnitude < 0x3C800000, subnormal, normal)
    special = tl.where(magnitude > (0x7F800000 if FLOAT8_SATURATES else 0x43E80000), 0x7F, 0x7E)
    code = tl.where(magnitude >= 0x43E00000, special, finite) | ((bits >> 24) & 0x80)
    return code.to(tl.uint8)
)"},
    {"float_of_float8_e5m2", R"(@triton.jit
def float_of_float8_e5m2(code, HARDWARE_FLOAT8: tl.constexpr):
    """The number that a byte stands for: the upper half of half precision's bits."""
    if HARDWARE_FLOAT8:
        return code.to(tl.float8e5, bitcast=True).to(tl.float32)
    return (code.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
)"},
    {"float8_e5m2_of_float", R"(@triton.jit
def float8_e5m2_of_float(value, HARDWARE_FLOAT8: tl.constexpr):
    """The byte of the nearest number, ties to even; infinity beyond the largest, as PyTorch has it and the hardware's
    conversion has not."""
    if HARDWARE_FLOAT8:
        nearest = value.to(tl.float8e5).to(tl.uint8, bitcast=True)
        return tl.where(tl.abs(value) >= 61440.0, tl.where(value < 0.0, 0xFC, 0x7C), nearest).to(tl.uint8)
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude - 0x37F00001 + ((magnitude >> 21) & 1)) >> 21
    subnormal = (magnitude.to(tl.float32, bitcast=True) + 128.0).to(tl.int32, bitcast=True) - 0x43000000
    finite = tl.where(magnitude < 0x38800000, subnormal, normal)
    special = tl.where(magnitude > 0x7F800000, 0x7F, 0x7C)
    code = tl.where(magnitude >= 0x47800000, special, finite) | ((bits >> 24) & 0x80)
    return code.to(tl.uint8)
)"},
};

}  // namespace

bool is_helper(const std::string& name) {
  return std::any_of(std::begin(kHelpers), std::end(kHelpers), [&](const auto& one) { return one.first == name; });
}

std::string helper_definitions(const std::set<std::string>& names) {
  std::string out;
  size_t found = 0;
  for (const auto& [name, source] : kHelpers) {
    if (!names.contains(std::string(name))) continue;
    if (!out.empty()) out += "\n\n";
    out += source;
    ++found;
  }
  KW_ASSERT(found == names.size(), "a kernel calls a helper that does not exist");
  return out;
}

}  // namespace kw::triton
