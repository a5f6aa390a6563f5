// A step of lowering that one target adds behind those of all targets (lower/pipeline.hpp).
#pragma once

#include <string_view>

namespace kw::lower {

struct Lowered;

struct TargetStep {
  std::string_view name;
  void (*run)(Lowered&);
};

}  // namespace kw::lower
