#include "propose/captured.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "capture/reader.hpp"
#include "support/error.hpp"

namespace kw {

namespace {

constexpr double kEagerLimit = 120;

// Throws kUser for what PyTorch raises.
void run_in_eager(Session& session, const std::string& problem, const std::string& size, const std::string& device) {
  // What was traced for a GPU that is not here shows on the CPU.
  const std::string place = session.has_gpu() ? device : "cpu";
  try {
    session.measure({.problem = problem,
                     .size = size,
                     .candidate = "",
                     .device = place,
                     .baselines = {"eager"},
                     .kernels = {},
                     .budget_seconds = 0.1,
                     .limit_seconds = kEagerLimit,
                     .input_bytes = 0,
                     .eager_errors = {}});
  } catch (const WorkerFailure&) {
    // Neither its fault nor shown to be ours.
  }
}

}  // namespace

Graph captured_graph(Session& session, const std::string& problem, const std::string& size, const std::string& device) {
  try {
    return read_graph(session.capture(problem, size, device));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInternal) throw;
    // Tracing works on tensors without numbers, whose operators do not check everything: a product of bf16 and fp32
    // passes.
    run_in_eager(session, problem, size, device);
    throw;
  }
}

void allow_tf32_under(std::string_view policy, std::string_view device, Graph& graph) {
  const char* override = std::getenv("NVIDIA_TF32_OVERRIDE");
  if (policy == "relaxed" && device == "cuda" && override != nullptr && std::string_view(override) == "0")
    throw Error(ErrorKind::kUser,
                ErrorText{.message = "The policy relaxed lets PyTorch use TF32, and NVIDIA_TF32_OVERRIDE=0 keeps "
                                     "NVIDIA's libraries from it.",
                          .where = "",
                          .source = "",
                          .hint = "Unset NVIDIA_TF32_OVERRIDE, or use the policy reference or ieee.",
                          .detail = "",
                          .code = "no-tf32"});
  if (policy != "reference") graph.tf32_convolutions = graph.tf32_products = policy == "relaxed";
}

}  // namespace kw
