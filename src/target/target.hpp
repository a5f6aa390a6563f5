// Where kernels run: everything that one target does otherwise than another. What stands between capture and emission
// asks the device's target, and compares no names. The targets are in src/targets, one folder each.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "target/device.hpp"
#include "target/graph_forms.hpp"
#include "target/kernel_language.hpp"
#include "target/lowering_step.hpp"

namespace kw {

struct Environment;
struct Graph;
struct KernelEstimate;
struct Schedule;
class TargetPrinter;
namespace plan {
struct Scheduler;
}
namespace tile {
struct Program;
}

// How a candidate's kernels become machine code before it runs.
struct BuildCommand {
  bool one_by_one = false;      // several processes share the kernels; else one process builds the whole file
  bool needs_compiler = false;  // a C++ compiler of this machine
};

class Target {
 public:
  virtual ~Target() = default;

  virtual std::string_view name() const = 0;     // in schedules and archives, and behind --target
  virtual std::string_view tensors() const = 0;  // PyTorch's device type: "cuda", "cpu"
  // Do candidates run on the very cores that compile and prepare others? Else on a device beside them.
  virtual bool is_host() const { return false; }
  virtual std::string_view usual_size() const = 0;   // of a problem's SIZES
  virtual std::string_view description() const = 0;  // "an NVIDIA GPU", for the help text

  // The device, as far as nothing was measured; and what can be seen of the one that is here. `card`: what the
  // worker says of its GPU (docs/worker-protocol.md); null where there is none.
  virtual DeviceDescription default_device() const = 0;
  virtual void look_at(DeviceDescription&, const Environment&, const nlohmann::ordered_json& /*card*/) const {}

  // Throws kMissing, with what to do, where candidates cannot run in this environment.
  virtual void need_device(const Environment&) const {}
  virtual bool can_run(const Environment&) const { return true; }
  virtual BuildCommand build_command() const { return {}; }
  // The compute capability that kernels are compiled for where the device is not here; 0: they cannot be.
  virtual int absent_capability(const Environment&) const { return 0; }

  // What passes and planner take into account.
  virtual GraphForms graph_forms() const { return {}; }
  // In order of preference: the first that takes a group lowers it.
  virtual const std::vector<plan::Scheduler>& schedulers() const = 0;
  // A step between the schedulers' own choice and lowering: groups that the cost model expects to gain by being joined.
  virtual void join_groups(const Graph&, Schedule&, const DeviceDescription&) const {}
  // In order, behind those of all targets: what its printer would otherwise have to decide.
  virtual std::span<const lower::TargetStep> lowering_steps() const { return {}; }
  // The cost model, of programs before the target's own steps.
  virtual KernelEstimate estimate(const tile::Program& program, const DeviceDescription& device) const = 0;

  virtual std::unique_ptr<TargetPrinter> printer() const = 0;
  virtual bool has_cuda_graphs() const { return false; }        // launches can be captured and replayed
  virtual bool profiler_sees_kernels() const { return false; }  // under the names that their source gives them

  // What a scheduler's parameter decides, in a few words for whoever chooses its value; empty: nothing is said.
  virtual std::string_view meaning_of(std::string_view /*parameter*/) const { return ""; }
  // What there is to say of all values; empty: nothing.
  virtual std::string_view on_values() const { return ""; }
  virtual std::string in_words(const Environment&) const = 0;  // the device: "a GPU: NVIDIA H200"
  // In which language models write kernels for it; nullptr: they are not asked to.
  virtual const KernelLanguage* language() const { return nullptr; }
};

// Throws kUser where the target has none.
const KernelLanguage& language_of(const Target& target);

}  // namespace kw
