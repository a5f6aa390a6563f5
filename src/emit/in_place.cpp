#include "emit/in_place.hpp"

#include <algorithm>
#include <set>

#include "lower/in_place.hpp"
#include "ir/memory.hpp"
#include "ir/op_registry.hpp"

namespace kw {
namespace {

// Of a step that launches a program once: the program to `ask`; false of others.
template <typename Ask>
bool ask_program(const Program& program, const Step& step, const Ask& ask) {
  const auto* tiles = std::get_if<TileStep>(&step);
  return tiles && !tiles->repetition && ask(program.tiles[tiles->program]);
}

// Does the step write a tensor of that name?
bool writes(const Program& program, const Step& step, const std::string& name) {
  return ask_program(program, step, [&](const tile::Program& tiles) {
    const std::vector<std::string>& tensors = *kernel_tensors(step);
    for (size_t place = 0; place < tensors.size(); ++place)
      if (tensors[place] == name && tiles.buffers[place].role != tile::BufferRole::kInput) return true;
    return false;
  });
}

bool moves_tensors(const Step& step) {
  const auto* tiles = std::get_if<TileStep>(&step);
  return tiles && std::any_of(tiles->offsets.begin(), tiles->offsets.end(), [](int64_t offset) { return offset != 0; });
}

bool makes_memory(const Node& node) { return node.results.size() == 1 && (op_info(node.op).flags & kOwnMemory); }

class Finder {
 public:
  Finder(const Graph& graph, const Program& program, const TargetPrinter& target)
      : graph_(graph), program_(program), target_(target) {
    for (size_t index = 0; index < program.steps.size(); ++index) {
      const auto note = [&](const std::string& name) { uses_[name].push_back(index); };
      if (const auto* tensors = kernel_tensors(program.steps[index]))
        for (const std::string& name : *tensors) note(name);
      if (const auto* step = std::get_if<ViewStep>(&program.steps[index])) {
        note(step->base);
        viewed_.insert(step->base);
      }
      if (const auto* step = std::get_if<CopyStep>(&program.steps[index])) {
        note(step->part);
        note(step->whole);
      }
      if (const auto* step = std::get_if<ExternStep>(&program.steps[index]))
        for_each_operand(graph.nodes[step->node], [&](ValueId value) {
          note(graph.values[value].name);
          if (may_be_its_operand(graph.nodes[step->node])) viewed_.insert(graph.values[value].name);
        });
      if (const auto* step = std::get_if<AllocateStep>(&program.steps[index]))
        allocated_.insert(step->name.empty() ? graph.values[step->value].name : step->name);
    }
  }

  std::map<ValueId, ValueId> run() {
    std::map<ValueId, ValueId> result;
    for (const auto& [made, held] : updates_of(graph_))
      if (may_share(held, made)) result[made] = held;
    return result;
  }

  std::map<std::string, std::string> run_for_results() {
    std::set<std::string> returned, made;
    for (const GraphOutput& output : graph_.outputs) returned.insert(graph_.values[output.value].name);
    std::map<std::string, std::string> result;
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      if (const auto* step = std::get_if<ExternStep>(&program_.steps[index]);
          step && makes_memory(graph_.nodes[step->node]))
        made.insert(graph_.values[graph_.nodes[step->node].results[0]].name);
      const auto* step = std::get_if<AllocateStep>(&program_.steps[index]);
      if (step == nullptr || step->value == kNoValue || step->zeros) continue;
      const std::string& name = graph_.values[step->value].name;
      const auto uses = uses_.find(name);
      if (uses == uses_.end()) continue;
      const Step& writer = program_.steps[uses->second.front()];
      if (kernel_tensors(writer) == nullptr || is_by_last(writer) || written_again(name, uses->second)) continue;
      for (const std::string& other : *kernel_tensors(writer))
        if (made.contains(other) && !returned.contains(other) && takes_over(other, step->value, uses->second.front())) {
          result[name] = other;
          made.erase(other);
          break;
        }
    }
    return result;
  }

 private:
  bool written_again(const std::string& name, const std::vector<size_t>& uses) const {
    return std::any_of(uses.begin() + 1, uses.end(),
                       [&](size_t at) { return writes(program_, program_.steps[at], name); });
  }

  // May the kernel of step `writer` make `value` where the library's result `other` lies?
  bool takes_over(const std::string& other, ValueId value, size_t writer) const {
    const Step& step = program_.steps[writer];
    const std::vector<std::string>& tensors = *kernel_tensors(step);
    const auto old = std::find_if(graph_.values.begin(), graph_.values.end(),
                                  [&](const Value& one) { return one.name == other; });
    const TensorType &from = old->type, &to = graph_.type(value);
    if (from.dtype != to.dtype || from.shape != to.shape || from.strides != to.strides || from.device != to.device ||
        !from.is_dense() || viewed_.contains(other) || uses_.at(other).back() != writer)
      return false;
    if (moves_tensors(step)) return false;
    const auto position = [&](const std::string& name) {
      return std::count(tensors.begin(), tensors.end(), name) == 1
                 ? static_cast<int>(std::find(tensors.begin(), tensors.end(), name) - tensors.begin())
                 : -1;
    };
    const int read = position(other), written = position(graph_.values[value].name);
    return read >= 0 && written >= 0 && ask_program(program_, step, [&](const tile::Program& tiles) {
             return lower::is_elementwise(tiles, read, written);
           });
  }

  // A kernel stores to the old tensor itself, and the new value is a name for it. A view of the input as it was is
  // written to by nobody.
  bool written_into(const std::string& old_name, ValueId new_value) const {
    bool stored = false, named = false;
    for (const Step& step : program_.steps) {
      if (const auto* view = std::get_if<ViewStep>(&step))
        named = named || (view->value == new_value && view->base == old_name);
      stored = stored || writes(program_, step, old_name);
    }
    return stored && named;
  }

  bool may_share(ValueId old_value, ValueId new_value) const {
    const TensorType &from = graph_.type(old_value), &to = graph_.type(new_value);
    if (from.dtype != to.dtype || from.shape != to.shape || from.strides != to.strides || from.device != to.device ||
        !from.is_dense())
      return false;
    const std::string &old_name = graph_.values[old_value].name, &new_name = graph_.values[new_value].name;
    if (!allocated_.contains(new_name)) return written_into(old_name, new_value);
    const auto writes = uses_.find(new_name);
    if (writes == uses_.end() || writes->second.size() != 1) return false;
    const size_t writer = writes->second[0];
    const Step& step = program_.steps[writer];
    if (kernel_tensors(step) == nullptr || moves_tensors(step)) return false;
    const std::vector<std::string>& tensors = *kernel_tensors(step);
    // A view, or a result that is the tensor itself, might be read after the write.
    if (const auto reads = uses_.find(old_name);
        reads != uses_.end() && (reads->second.back() > writer || viewed_.contains(old_name)))
      return false;
    const auto position = [&](const std::string& name) {
      return static_cast<int>(std::find(tensors.begin(), tensors.end(), name) - tensors.begin());
    };
    const auto times = [&](const std::string& name) { return std::count(tensors.begin(), tensors.end(), name); };
    if (times(new_name) != 1 || times(old_name) > 1) return false;
    const int old_buffer = times(old_name) == 1 ? position(old_name) : -1, new_buffer = position(new_name);
    return ask_program(program_, step, [&](const tile::Program& tiles) {
      // The input may lie where its caller likes.
      return lower::reads_what_it_writes(tiles, old_buffer, new_buffer) &&
             !target_.needs_alignment(lowered(step), new_buffer) &&
             (old_buffer < 0 || target_.reads_before_it_writes(lowered(step), old_buffer, new_buffer));
    });
  }

  const lower::Lowered& lowered(const Step& step) const { return *program_.lowered[std::get<TileStep>(step).program]; }

  const Graph& graph_;
  const Program& program_;
  const TargetPrinter& target_;
  std::map<std::string, std::vector<size_t>> uses_;  // by steps, in order
  std::set<std::string> allocated_, viewed_;
};

}  // namespace

std::map<std::string, std::string> reused_results(const Graph& graph, const Program& program,
                                                  const TargetPrinter& target) {
  if (!target.gains_by_reuse()) return {};
  return Finder(graph, program, target).run_for_results();
}

std::map<ValueId, ValueId> in_place_mutations(const Graph& graph, const Program& program, const TargetPrinter& target) {
  return Finder(graph, program, target).run();
}

}  // namespace kw
