// Expressions of pooling over sliding windows.
#pragma once

#include <vector>

#include "plan/group_builder.hpp"
#include "plan/windows.hpp"

namespace kw::plan {

struct WindowContext {
  GroupBuilder& build;
  const Window& window;
  const Coords& point;  // of the window's domain (windows.hpp)
  const WindowElement& element;
  ExprId operand;  // the element, in its compute dtype
  DType dtype;     // of the result's arithmetic
  size_t results;  // 2: the position of the largest too
  Lookups& lookups;
};

// What a load yields outside the input, so that folding it changes nothing.
double value_outside(const Window& window);

std::vector<ExprId> lower_window(const WindowContext& context);

// The position of a row's or window's largest element as PyTorch's pooling has it: the first of equals, but the last
// NaN.
ExprId pooled_position(GroupBuilder& build, ExprId value, ExprId largest, const Index& position,
                       const std::vector<Guard>& guards);

}  // namespace kw::plan
