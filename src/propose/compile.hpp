// Graph → candidate source: the part of the way that needs no PyTorch. The command line, the bench and the C API all go
// through here.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emit/program.hpp"
#include "ir/graph.hpp"
#include "passes/pipeline.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// How far the compiler trusts itself. When a candidate fails its verification the next level is tried.
enum class Caution {
  kNone,             // fused, as the scheduler thinks best
  kExactProducts,    // the same, but what is multiplied in f32 is not rounded, as PyTorch's TF32 would
  kLibraryProducts,  // products, convolutions, attention and recurrences are the library's, all else as before
  kNoGraphs,         // as kExactProducts without a CUDA graph, as is everything below
  kLibraryRandom,    // and all random numbers are the library's
  kUnfused,          // one group per node
  kLibrary,          // every node a library call
};
inline constexpr Caution kCautions[] = {Caution::kNone,     Caution::kExactProducts, Caution::kLibraryProducts,
                                        Caution::kNoGraphs, Caution::kLibraryRandom, Caution::kUnfused,
                                        Caution::kLibrary};
std::string name_of(Caution caution);  // "fused", "exact-products", "library-products", "no-graphs", "library-random",
                                       // "unfused", "library"

// Whether kernel_forward is captured into a CUDA graph.
enum class GraphUse {
  kOff,
  kOn,    // wherever it can be
  kAuto,  // where the cost model expects it to be faster
};
GraphUse graph_use_of(const std::string& name);  // "off", "on", "auto"; throws kUser

struct CompileOptions {
  DeviceDescription device;  // in hand, as far as it was measured; everything is lowered and priced for it
  GraphUse graphs = GraphUse::kOff;
  Caution caution = Caution::kNone;
  PassOptions passes;
  std::string problem_name;    // of the user's file, for the candidate's header; empty for in-memory modules
  std::string problem_source;  // verbatim; empty for in-memory modules
};

struct Compiled {
  Graph graph;  // after the passes
  Schedule schedule;
  Program program;
  DeviceDescription device;          // that it is lowered for
  std::string source;                // the candidate: one Python file
  std::vector<std::string> kernels;  // names
  int library_calls = 0;
  std::vector<std::string> left;         // groups that are the library's, though a scheduler took them: why each
  std::string why_no_graph;              // where a CUDA graph was asked for and cannot be: the reason
  std::vector<std::string> library_ops;  // each once, in order of first use
  int64_t kept_weight_bytes = 0;         // of what kernels make of weights, kept between calls in evaluation mode
  PassReport passes;
  std::vector<std::pair<std::string, double>> seconds;  // per stage
};

// Stages, for callers that want to stop half-way (`kw inspect`).
enum class CompileStage { kPasses, kSchedule, kKernels, kSource };

// Throws kUser for an unknown pass, kInternal for a fault of ours.
Compiled compile(Graph graph, const CompileOptions& options, CompileStage last = CompileStage::kSource);

// The same problem under another schedule of `base`'s graph. Throws kUser when the schedule does not fit it.
Compiled with_schedule(const Compiled& base, Schedule schedule, const CompileOptions& options);

// The schedule as JSON, with those of its kernels (plan/kernel_schedules.hpp).
std::string whole_schedule(const Compiled& compiled);

// The schedule's groups whose kernels, but for those that have work for rare inputs alone, are among these functions of
// the source.
std::vector<size_t> groups_at_work(const Compiled& compiled, const std::set<std::string>& functions);

}  // namespace kw
