// The words of the text form for the enumerations of a program, in their order.
#pragma once

#include <string_view>

namespace kw::tile {

inline constexpr std::string_view kSpaceWords[] = {"global", "shared", "cluster"};
inline constexpr std::string_view kRoleWords[] = {"input", "output", "inout", "scratch"};
inline constexpr std::string_view kHintWords[] = {"none", "keep", "stream"};
inline constexpr std::string_view kCopyWords[] = {"plain", "async", "bulk"};
inline constexpr std::string_view kScopeWords[] = {"block", "cluster", "grid"};
inline constexpr std::string_view kScanWayWords[] = {"free", "network", "picked", "top_k", "after"};
inline constexpr std::string_view kExactnessWords[] = {"usual", "approximate", "exact"};
inline constexpr std::string_view kLayoutWords[] = {"free", "sums", "left", "stores"};
inline constexpr std::string_view kPrecisionWords[] = {"ieee", "tf32", "tf32x3", "bf16x6", "fp16x3"};

}  // namespace kw::tile
