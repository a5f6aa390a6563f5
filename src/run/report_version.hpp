// Version of every JSON document that kw writes; docs/json.md.
#pragma once

namespace kw {

inline constexpr int kReportVersion = 1;

}  // namespace kw
