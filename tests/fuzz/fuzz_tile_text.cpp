// The text of a tile program: what is read prints as a text that reads back to the same text.
#include "reads.hpp"
#include "tile/text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const std::string printed = kw::tile::print_program(kw::tile::parse_program(text));
    kw::require(kw::tile::print_program(kw::tile::parse_program(printed)) == printed,
                "a printed program reads back as another");
  });
}
