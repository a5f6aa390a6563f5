#include <filesystem>

#include "driver/environment.hpp"
#include "driver/optimize.hpp"
#include "driver/output_files.hpp"
#include "support/error.hpp"

namespace kw {

namespace fs = std::filesystem;

std::string device_of(const std::string& target) { return target == "triton" ? "cuda" : "cpu"; }

std::string resolve_target(const std::string& asked, const Environment& environment, bool needs_device) {
  if (asked == "auto") return environment.has_gpu() && !environment.triton_version.empty() ? "triton" : "cpu";
  if (asked != "triton") return asked;
  if (needs_device && environment.driver_version.empty())
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs an NVIDIA GPU, and this machine has none (no driver is loaded).", .where = "", .source = "",
                          .hint = "Use --target cpu, or add --emit-only to write the file without running it.", .detail = "", .code = "no-gpu"});
  if (needs_device && environment.gpus_hidden)
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs an NVIDIA GPU, and CUDA_VISIBLE_DEVICES hides all of this machine's.", .where = "", .source = "",
                          .hint = "Unset CUDA_VISIBLE_DEVICES or name a GPU in it, or use --target cpu.", .detail = "", .code = "no-gpu"});
  if (needs_device && environment.torch_cuda.empty())
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs a PyTorch with CUDA; " + environment.python + " has " + environment.torch_version + ", a CPU build.",
                          .where = "", .source = "", .hint = "Install PyTorch's CUDA build, or use --target cpu.", .detail = "", .code = "no-cuda-torch"});
  if (needs_device && environment.triton_version.empty())
    throw Error(ErrorKind::kMissing,
                ErrorText{.message = "--target triton needs Triton, which " + environment.python + " does not have.", .where = "", .source = "",
                          .hint = environment.python + " -m pip install triton", .detail = "", .code = "no-triton"});
  return asked;
}

std::string output_path(const std::string& asked, const std::string& problem) { return asked.empty() ? fs::path(problem).stem().string() + "_kw.py" : asked; }

std::string resolve_output(const std::string& asked, const std::string& problem, bool force) {
  const std::string output = output_path(asked, problem);
  CommandFiles files;
  files.reads_problem(problem);
  files.writes(output, "the output");
  files.writes(rejected_path(output), "the file for a candidate that fails,");
  files.check();
  if (!force)
    for (const std::string& path : {output, rejected_path(output)}) check_replaceable(path);
  return output;
}

std::string rejected_path(const std::string& output) {
  const fs::path path(output);
  return (path.parent_path() / (path.stem().string() + ".rejected.py")).string();
}

}  // namespace kw
