// What a bench and its children tell each other: a line of JSON each.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "run/bench.hpp"
#include "run/optimize.hpp"
#include "run/result_line.hpp"

namespace kw {

struct BenchRequest {
  BenchProblem problem;
  std::string key;                          // of its line
  OptimizeOptions options;                  // of a model too, as far as it has the same
  std::optional<GenerateOptions> proposer;  // a language model instead of the compiler
  bool after_compiler = false;              // or after it
};

ResultLine line_of(const BenchRequest& request);  // what is known of it before the run

std::string to_text(const BenchRequest& request);
BenchRequest bench_request_from_text(std::string_view text);

// Somebody else has the device; "" when the wait is over.
struct BenchWait {
  std::string whom;
  double seconds = 0;  // since the last time it was told
};

std::string to_text(const BenchWait& wait);

using BenchReply = std::variant<BenchWait, ResultLine>;
std::optional<BenchReply> bench_reply_from_text(std::string_view text);  // none where it is no JSON object

// The key of a problem's line: what decides its result.
std::string bench_key(const std::string& source_hash, const BenchOptions& options);

}  // namespace kw
