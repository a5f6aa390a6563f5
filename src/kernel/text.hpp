// The text form of kernels. It prints what it parses, and parses what it prints. By example:
//
//   kernel attention {
//     doc "causal attention with grouped queries"
//     size batch = 1..64 by 4                     # a run-time size: its range, and what divides it
//     axis head = batch * 8, query = 2048, key = 2048, feature = 128, value = 128
//     axis step = 512 ordered
//     in q: bf16[batch * 8, 2048, 128]
//     in k: bf16[batch * 2, 2048, 128] strides [262144, 1, 2048]
//     out y: f32[batch * 8, 2048, 128]            # inout: read and written
//     score = select(key <= query, dot(q[head, query, feature], k[head / 4, key, feature]; feature) * 0.088, -inf)
//     largest = max(score; key)
//     weight = exp(score - largest)
//     total = sum(weight; key)
//     spread = moments(weight; key).1             # one of several results
//     running = scan sum(weight; key)             # also: scan sum(weight; key) reversed
//     picked = (table[ids[row] + 1, column] where ids[row] >= 0 otherwise 0.0)
//     product = dot(a[m, k], b[n, k]; k) precision tf32
//     state h: f32[batch, unit] along step from h0[batch, unit]
//     new = tanh(h.previous[batch, source] + 1.0)
//     next h = new
//     y[head, query, value] where query > 0 = out / total     # a store; `+=`, `*=`, `max=` and `min=` combine
//     counts[ids[0]] over row += 1.0              # every row does so, though nothing here depends on it
//   }
//
// Operators with their usual precedence: + - * / (true division; of whole numbers rounded down) % (sign of the
// divisor), comparisons, `and`, `or`, `xor`, `not`; every other operation is a call of its name. A number, the name of
// an axis or size, and what `+ - * / %` make of these is of the type of what it is combined with. Alone, numbers with a
// point are f32 and the rest is i32, where it must fit; in coordinates it is as wide as it needs. `1.0:bf16`, `3:i64`,
// `row:i64`, `{row * 4}:i64` are of the type that they say, and `bf16(x)` casts.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace kw::kernel {

std::string print_kernel(const Kernel& kernel);
// Throws kUser with line and column for wrong syntax, unknown names and types that do not fit. What it returns has been
// through check().
Kernel parse_kernel(std::string_view text);

}  // namespace kw::kernel
