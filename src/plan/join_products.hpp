// Which matrix products a schedule makes itself, with what follows them, instead of calling the library.
#pragma once

#include "plan/domain.hpp"
#include "plan/library_seconds.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// The schedule with those of its library calls replaced that are products the device makes sooner so, by the cost
// model; each takes the pointwise group that alone reads it, or the one that folds its rows, its columns or windows of
// these or, of a convolution, its filters; a convolution also the means and variances of its channels, which leave a
// norm pointwise, and the pointwise group that makes its image. All else stays as it is, and what the target has no
// scheduler for.
Schedule join_products(const Graph& graph, Schedule schedule, const DeviceDescription& device,
                       const LibraryRates& rates = {});

}  // namespace kw
