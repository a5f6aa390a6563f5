#include <cstdio>

#include "support/error.hpp"

int main() {
  std::puts("kw: PyTorch modules into verified, measured, faster kernels");
  return 0;
}
