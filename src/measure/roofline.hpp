// The roofline: the least time a device could take for the bytes and products that a problem cannot do without.
#pragma once

#include <optional>
#include <string>

#include "measure/ceilings.hpp"

namespace kw {

// What a problem cannot do without: every input read once, every output written once, its products.
struct Work {
  double read_bytes = 0.0;
  double write_bytes = 0.0;
  double flops = 0.0;
  std::string precision;  // of Ceilings::flops, that the products run in; empty for none
};

struct Roofline {
  double floor_ms = 0.0;
  double share = 0.0;  // floor over time; 1 is the roofline itself
  std::string limit;   // "memory", "compute" or "launch"
};

Roofline roofline(const Work& work, const Ceilings& ceilings, double time_ms);

// A time that no memory could have served: the bytes beyond the last cache at four fifths of the measured ceiling would
// take longer. A sentence with the figures, or nothing. Products do not count, since algebra can save them.
std::optional<std::string> too_fast_to_be_true(const Work& work, const Ceilings& ceilings, double cache_bytes,
                                               double time_ms);

}  // namespace kw
