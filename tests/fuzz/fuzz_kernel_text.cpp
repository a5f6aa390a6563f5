// The text of a kernel: what is read and checked prints as a text that reads back to the same text.
#include "emit/kernel_text.hpp"
#include "reads.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const std::string printed = kw::kernel_ir::print(kw::kernel_ir::parse_kernel(text));
    kw::require(kw::kernel_ir::print(kw::kernel_ir::parse_kernel(printed)) == printed,
                "a printed kernel reads back as another");
  });
}
