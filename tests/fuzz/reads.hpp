// What every fuzzer holds a reader to: a text is read, or refused with a message; no assertion fails, nothing else is
// thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/error.hpp"

namespace kw {

// Runs `read` on the bytes; ends the process where it throws a fault of ours. Not where `ours`: only Kernelwright
// writes such texts, so that a bad one is its fault.
template <typename Read>
int fuzz(const uint8_t* data, size_t size, Read&& read, bool ours = false) {
  try {
    read(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal && !ours) {
      std::fprintf(stderr, "a fault of ours: %s\n", error.what());
      std::abort();
    }
  }
  return 0;
}

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace kw
