#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "driver/environment.hpp"
#include "driver/optimize.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

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

std::string resolve_output(const std::string& asked, const std::string& problem) {
  const fs::path output = asked.empty() ? fs::path(fs::path(problem).stem().string() + "_kw.py") : fs::path(asked);
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  const auto refuse = [&](const std::string& message, const std::string& hint) {
    throw Error(ErrorKind::kUser, ErrorText{.message = message, .where = "", .source = "", .hint = hint, .detail = "", .code = "bad-output"});
  };
  std::error_code error;
  if (fs::is_directory(output, error)) refuse("the output " + output.string() + " is a folder.", "Name a file: -o " + (output / "kernel.py").string());
  if (!fs::is_directory(folder, error)) refuse("there is no folder " + folder.string() + " for the output.", "Create it, or name another place with -o.");
  if (access(folder.c_str(), W_OK) != 0)
    refuse("the folder " + folder.string() + " cannot be written: " + std::strerror(errno) + ".", "Name another place with -o.");
  if (fs::exists(output, error) && fs::equivalent(output, problem, error)) refuse("the output would overwrite the problem file.", "Name another place with -o.");
  // A name the user did not type must not cost them a file they wrote.
  if (asked.empty() && fs::exists(output, error) && read_file(output.string()).substr(0, 400).find("Kernelwright") == std::string::npos)
    refuse("a file " + output.string() + " is there already, and Kernelwright did not write it.", "Name the output with -o.");
  return output.string();
}

}  // namespace kw
