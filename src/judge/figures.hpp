// What a worker answers to "verify" (docs/worker-protocol.md): figures, and no opinion of them. The contract judges.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kw {

// Errors relative to the reference's norm and to its largest magnitude.
struct RelativeError {
  double norm = 0.0;
  double max = 0.0;
};

// The smallest normal fp32: kernels may flush what is below.
inline constexpr double kFlushedBelow = 1.1754943508222875e-38;

// What the bound of an output rests on, beside eager's error: its dtype's epsilon, how many terms the longest sum of
// forward has, in how many elements errors are compared, and what may be lost to underflow.
struct OutputFacts {
  double epsilon = 0.0, summands = 1.0, elements = 0.0, underflow = kFlushedBelow;
};

struct OutputForm {
  std::string dtype;
  std::vector<int64_t> shape, strides;
};

struct WorstElement {
  std::vector<int64_t> index;  // empty: none, or of a tensor without dimensions
  double ours = 0.0, reference = 0.0;
};

// Absolute errors.
struct SizeError {
  double rms = 0.0, max = 0.0;
};

// Elements of which the candidate has a sixteenth of the reference or less: how many, how many different ones, and the
// root mean squares of the reference and of eager's error there.
struct LeftOut {
  int64_t count = 0, values = 0;
  double size = 0.0, eager = 0.0;
};

// Of the elements whose reference lies from `low` to 16 · `low`; `moved` is eager on inputs moved by one rounding.
struct SizeBucket {
  double low = 0.0;
  int64_t count = 0;
  SizeError ours, eager, moved;
  std::optional<LeftOut> left_out;
};

struct OutputFigures {
  std::string name;
  OutputForm form, expected;
  bool dtype_ok = true, shape_ok = true, strides_ok = true, device_ok = true;
  bool exact = false;  // integers and booleans, which have mismatches instead of errors
  int64_t mismatches = 0, eager_mismatches = 0;
  std::optional<int64_t> unexplained;  // mismatches that eager does not have either when it rounds otherwise
  bool nonfinite_ok = true;
  int64_t nonfinite_mismatches = 0;
  RelativeError ours, eager;
  std::optional<RelativeError> sensitivity, rounding;  // eager's, where inputs or operators are rounded otherwise
  std::vector<SizeBucket> buckets;
  OutputFacts facts;
  WorstElement worst;
};

struct DrawFigures {
  std::string kind;                    // "generator", "signed", "wide", "constant", "special"
  std::optional<std::string> skipped;  // why eager itself cannot take it
  std::vector<OutputFigures> outputs;
};

struct Check {
  std::string name;
  bool ok = true;
  std::string detail;
  std::string unchecked;  // why it could not be made on every draw; empty where it was
};

// How near a trivial answer ("zeros", "input[0] itself") came to an output on one draw.
struct TrivialAnswer {
  std::string output, trivial;
  RelativeError error, eager;
  OutputFacts facts;
};

struct Gate {
  bool ok = true;
  double atol = 0.0, rtol = 0.0;
};

struct Figures {
  std::string reference;  // "fp64", "fp64-on-cpu", "fp32-eager"
  std::string reference_note;
  std::vector<DrawFigures> draws;
  std::vector<Check> checks;
  std::vector<TrivialAnswer> trivial;
  std::optional<Gate> kernelbench_gate;
  std::optional<std::string> runs_original;  // why a file of the compiler's ran the original module on the problem's
                                             // own inputs
  std::optional<uint64_t> seed;              // of the draws
  std::optional<std::vector<std::string>> missing_protections;  // of the candidate's process, in words; none where it
                                                                // needed none
  double prepared_seconds = 0.0;                                // of the worker, before it was asked
};

// Throws kInternal for what is no such reply, with what is wrong with it.
Figures figures_from_json(const nlohmann::ordered_json& reply);

// Of a reply to verify or measure.
std::optional<std::string> runs_original(const nlohmann::ordered_json& reply);

}  // namespace kw
