// SHA-256, for content addresses.
#pragma once

#include <string>
#include <string_view>

namespace kw {

// Lower-case hexadecimal SHA-256 of `bytes` (FIPS 180-4).
std::string sha256_hex(std::string_view bytes);

}  // namespace kw
