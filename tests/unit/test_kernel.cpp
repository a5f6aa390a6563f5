// Kernels: index algebra, the text form, the rules, and what kernels mean.
#include <gtest/gtest.h>

namespace kw::kernel {
TEST(Kernel, Placeholder) {}
}  // namespace kw::kernel
