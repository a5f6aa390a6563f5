// The text of a kernel: what is read prints as a text that reads back to the same text.
#include "kernel/text.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const std::string printed = kw::kernel::print_kernel(kw::kernel::parse_kernel(text));
    kw::require(kw::kernel::print_kernel(kw::kernel::parse_kernel(printed)) == printed,
                "a printed kernel reads back as another");
  });
}
