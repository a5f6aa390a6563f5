#include "judge/target.hpp"

#include "judge/environment.hpp"
#include "support/error.hpp"

namespace kw {

std::string device_of(const std::string& target) { return target == "triton" ? "cuda" : "cpu"; }

std::string resolve_target(const std::string& asked, const Environment& environment, bool needs_device) {
  if (asked == "auto") return environment.has_gpu() && !environment.triton_version.empty() ? "triton" : "cpu";
  if (asked != "triton") return asked;
  if (needs_device && environment.driver_version.empty())
    throw Error(
        ErrorKind::kMissing,
        ErrorText{.message = "--target triton needs an NVIDIA GPU, and this machine has none (no driver is loaded).",
                  .where = "",
                  .source = "",
                  .hint = "Use --target cpu, or add --emit-only to write the file without running it.",
                  .detail = "",
                  .code = "no-gpu"});
  if (needs_device && environment.gpus_hidden)
    throw Error(
        ErrorKind::kMissing,
        ErrorText{
            .message = "--target triton needs an NVIDIA GPU, and CUDA_VISIBLE_DEVICES hides all of this machine's.",
            .where = "",
            .source = "",
            .hint = "Unset CUDA_VISIBLE_DEVICES or name a GPU in it, or use --target cpu.",
            .detail = "",
            .code = "no-gpu"});
  if (needs_device && environment.torch_cuda.empty())
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs a PyTorch with CUDA; " + environment.python + " has " +
                                     environment.torch_version + ", a CPU build.",
                          .where = "",
                          .source = "",
                          .hint = "Install PyTorch's CUDA build, or use --target cpu.",
                          .detail = "",
                          .code = "no-cuda-torch"});
  if (needs_device && environment.triton_version.empty())
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs Triton, which " + environment.python + " does not have.",
                          .where = "",
                          .source = "",
                          .hint = environment.python + " -m pip install triton",
                          .detail = "",
                          .code = "no-triton"});
  return asked;
}

}  // namespace kw
