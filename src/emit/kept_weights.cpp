#include "emit/kept_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "emit/program_steps.hpp"
#include "emit/python_text.hpp"
#include "ir/memory.hpp"
#include "plan/traffic.hpp"

namespace kw {
namespace {

class Splitter {
 public:
  Splitter(const Graph& graph, const Program& program, const TargetPrinter& target)
      : graph_(graph), program_(program), target_(target), checks_(!target.host_checks(program).empty()) {
    std::set<ValueId> mutated;
    for (ValueId value : written_inputs(graph)) mutated.insert(value);
    for (const GraphInput& input : graph.inputs)
      if (input.kind != InputKind::kUser && !mutated.contains(input.value)) own_.insert(graph.values[input.value].name);
    for (const Step& step : program.steps)
      if (const auto* allocate = std::get_if<AllocateStep>(&step)) types_[name_of(*allocate)] = allocate->type;
    ban_outputs();
  }

  std::optional<KeptWeights> run() {
    while (!find_constant_steps()) {}
    KeptWeights kept;
    kept.prepares = kept.rest = program_;
    kept.prepares.graphs = false;
    kept.prepares.steps = steps_of(true, {});
    kept.rest.steps = steps_of(false, output_names());
    std::set<std::string> read = output_names();
    for (const Step& step : kept.rest.steps) read.merge(tensors_of(graph_, step));
    for (const auto& [name, type] : types_)
      if (made_.contains(name) && read.contains(name)) {
        kept.made.push_back(name);
        kept.bytes += type.bytes();
      }
    if (kept.bytes < plan::kWorthKeeping) return std::nullopt;
    std::set<std::string> sources;
    for (const Step& step : kept.prepares.steps) sources.merge(tensors_of(graph_, step));
    for (const GraphInput& input : graph_.inputs)
      if (const std::string& name = graph_.values[input.value].name; sources.contains(name))
        kept.sources.push_back(name);
    // What depends on no weight (positions, say) is kept with any of them, for its device.
    const std::string& device = types_.at(kept.made.front()).device;
    for (const GraphInput& input : graph_.inputs)
      if (const Value& value = graph_.values[input.value];
          kept.sources.empty() && own_.contains(value.name) && value.type.device == device)
        kept.sources.push_back(value.name);
    if (kept.sources.empty()) return std::nullopt;
    return kept;
  }

 private:
  std::string name_of(const AllocateStep& step) const {
    return step.name.empty() ? graph_.values[step.value].name : step.name;
  }

  std::set<std::string> output_names() const {
    std::set<std::string> names;
    for (const GraphOutput& output : graph_.outputs) names.insert(graph_.values[output.value].name);
    return names;
  }

  // What a call returns must be its own, and so must what that is a view of.
  void ban_outputs() {
    banned_ = output_names();
    for (auto step = program_.steps.rbegin(); step != program_.steps.rend(); ++step)
      if (const auto* view = std::get_if<ViewStep>(&*step); view && banned_.contains(graph_.values[view->value].name))
        banned_.insert(view->base);
  }

  // Of a kernel's tensors those that it writes; what is copied into.
  std::set<std::string> written_by(const Step& step) const {
    std::set<std::string> names;
    if (const auto* copy = std::get_if<CopyStep>(&step)) names.insert(copy->whole);
    if (const auto* tiles = std::get_if<TileStep>(&step)) {
      const auto& buffers = program_.tiles[tiles->program].buffers;
      for (size_t at = 0; at < tiles->tensors.size(); ++at)
        if (at >= buffers.size() || buffers[at].role != tile::BufferRole::kInput) names.insert(tiles->tensors[at]);
    }
    return names;
  }

  // Kernels of which the last block of the one before does the work stay with it.
  bool stands_alone(size_t index) const {
    const auto joins = [&](size_t at) { return at < program_.steps.size() && is_by_last(program_.steps[at]); };
    const auto* tiles = std::get_if<TileStep>(&program_.steps[index]);
    return !joins(index) && !joins(index + 1) && !(tiles && tiles->repetition);
  }

  // Does the host look at each call at what the kernel noted?
  bool is_checked(const Step& step) const {
    const auto* tiles = std::get_if<TileStep>(&step);
    if (!checks_ || tiles == nullptr) return false;
    Program alone;
    alone.tiles.push_back(program_.tiles[tiles->program]);
    return !target_.host_checks(alone).empty();
  }

  // Which kernels read the module's tensors, and what such kernels make, and nothing else. Returns whether nothing that
  // they make is written by others; what is, is banned.
  bool find_constant_steps() {
    is_constant_.assign(program_.steps.size(), false);
    made_.clear();
    std::set<std::string> known = own_;
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      const Step& step = program_.steps[index];
      if (const auto* view = std::get_if<ViewStep>(&step)) {
        if (known.contains(view->base)) known.insert(graph_.values[view->value].name);
        continue;
      }
      if (kernel_tensors(step) == nullptr || !stands_alone(index)) continue;
      const std::set<std::string> written = written_by(step);
      const auto is_known = [&](const std::string& name) { return written.contains(name) || known.contains(name); };
      const auto may_be_made = [&](const std::string& name) {
        return types_.contains(name) && !banned_.contains(name);
      };
      const std::set<std::string> all = tensors_of(graph_, step);
      is_constant_[index] = !written.empty() && std::all_of(all.begin(), all.end(), is_known) &&
                            std::all_of(written.begin(), written.end(), may_be_made) && !is_checked(step);
      if (!is_constant_[index]) continue;
      known.insert(written.begin(), written.end());
      made_.insert(written.begin(), written.end());
    }
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      if (is_constant_[index]) continue;
      for (const std::string& name : written_by(program_.steps[index]))
        if (made_.contains(name)) {
          banned_.insert(name);
          return false;
        }
    }
    return true;
  }

  // The steps of the one part, with the views that they and `needed` read.
  std::vector<Step> steps_of(bool prepares, std::set<std::string> needed) const {
    std::vector<Step> steps;
    for (size_t index = program_.steps.size(); index-- > 0;) {
      const Step& step = program_.steps[index];
      const auto* view = std::get_if<ViewStep>(&step);
      const auto* allocate = std::get_if<AllocateStep>(&step);
      const bool takes = view       ? needed.contains(graph_.values[view->value].name)
                         : allocate ? made_.contains(name_of(*allocate)) == prepares
                                    : is_constant_[index] == prepares;
      if (!takes) continue;
      needed.merge(tensors_of(graph_, step));
      steps.push_back(step);
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  const Graph& graph_;
  const Program& program_;
  const TargetPrinter& target_;
  const bool checks_;  // some kernel's notes
  std::set<std::string> own_, banned_;
  std::map<std::string, TensorType> types_;  // of what steps allocate
  std::vector<bool> is_constant_;            // [step]
  std::set<std::string> made_;               // by constant steps
};

// {0}: the places of the tensors that are prepared from.
constexpr std::string_view kKeptClass =
    R"py(KEPT_FROM = {0}  # which of kernel_forward's own tensors prepared_weights takes


class KeptWeights:
    """What prepared_weights has made for one module, on each device and stream. It is made again, in the same memory, when one of
    the weights is another tensor or has another version than then: PyTorch counts what is done to a tensor in place,
    but for what is done through `.data` or by other libraries.
    """

    def __init__(self):
        self.made = {{}}  # device and stream → addresses and versions of the weights, what was made of them, the weights
        self.lock = threading.Lock()

    def __call__(self, *weights):
        try:
            state = [(weight.data_ptr(), weight._version) for weight in weights]
        except RuntimeError:  # inference tensors have no version
            return prepared_weights(*weights)
        place = weights[0].device, None
        if DEVICE == "cuda":
            if torch.cuda.is_current_stream_capturing():  # into the caller's own graph
                return prepared_weights(*weights)
            place = weights[0].device, torch.cuda.current_stream().cuda_stream
        with self.lock:
            known, kept, _ = self.made.get(place, (None, None, None))
            if known == state:
                return kept
            with torch.inference_mode(False), torch.no_grad():
                made = prepared_weights(*weights)
                if kept is None:
                    kept = made
                else:  # a CUDA graph may read it there
                    for old, new in zip(kept, made):
                        old.copy_(new)
                # The weights' memory is held, so that no other can have its address.
                self.made[place] = state, kept, [weight.detach() for weight in weights]
            return kept


KEPT_WEIGHTS = weakref.WeakKeyDictionary()  # module → what is kept of its weights, which is not copied with it


def kept_weights(module, tensors):
    """What kernel_forward takes before its own tensors."""
    if module not in KEPT_WEIGHTS:
        KEPT_WEIGHTS[module] = KeptWeights()
    return KEPT_WEIGHTS[module](*[tensors[place] for place in KEPT_FROM])


)py";

}  // namespace

std::optional<KeptWeights> kept_weights(const Graph& graph, const Program& program, const TargetPrinter& target) {
  return graph.training ? std::nullopt : Splitter(graph, program, target).run();
}

std::string kept_class_text(const std::vector<size_t>& sources) {
  Shape places(sources.begin(), sources.end());
  return fmt::format(fmt::runtime(kKeptClass), python::tuple(places));
}

}  // namespace kw
