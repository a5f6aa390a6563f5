#include "plan/plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "ir/memory.hpp"
#include "plan/concatenation.hpp"
#include "plan/cuda_graph.hpp"
#include "plan/group_kinds.hpp"
#include "plan/domain.hpp"
#include "plan/group_lowering.hpp"
#include "plan/halves_by_producers.hpp"
#include "plan/kernel_schedules.hpp"
#include "plan/moved_offsets.hpp"
#include "plan/repeated_kernels.hpp"
#include "plan/scatters.hpp"
#include "support/error.hpp"
#include "target/target.hpp"

namespace kw {

using plan::GraphFacts;

namespace {

bool is_library_call(const GraphFacts& facts, const std::vector<NodeId>& group) {
  return group.size() == 1 && facts.kinds[group[0]] == plan::NodeKind::kExtern;
}

std::string name_of_group(const Graph& graph, const Schedule& schedule, size_t index) {
  return "group " + std::to_string(index) + " (" + graph.nodes[schedule.groups[index].nodes.back()].op + ")";
}

// Throws kUser.
void check_schedule(const GraphFacts& facts, const Schedule& schedule, const DeviceDescription& device) {
  const Graph& graph = facts.graph;
  if (const std::string target(target_of(device).name()); schedule.target != target)
    throw Error(ErrorKind::kUser,
                "the schedule is one for '" + schedule.target + "', and the target is '" + target + "'");
  std::vector<bool> placed(graph.nodes.size(), false);
  for (size_t index = 0; index < schedule.groups.size(); ++index) {
    const std::vector<NodeId>& group = schedule.groups[index].nodes;
    if (group.empty() || std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) != group.end())
      throw Error(ErrorKind::kUser, "group " + std::to_string(index) +
                                        " of the schedule does not list its nodes once each, in ascending order");
    for (NodeId node : group) {
      if (node < 0 || node >= static_cast<NodeId>(graph.nodes.size()))
        throw Error(ErrorKind::kUser,
                    "the schedule names node " + std::to_string(node) + ", which the graph does not have");
      placed[node] = true;
    }
  }
  for (NodeId node = 0; node < static_cast<NodeId>(placed.size()); ++node)
    if (!placed[node] && facts.kinds[node] != plan::NodeKind::kView)
      throw Error(ErrorKind::kUser,
                  "the schedule leaves out node " + std::to_string(node) + " (" + graph.nodes[node].op + ")");
  for (size_t index = 0; index < schedule.groups.size(); ++index) {
    const GroupSchedule& group = schedule.groups[index];
    const std::string name = name_of_group(graph, schedule, index);
    plan::check_parameters(group.scheduler, group.parameters, device, name);
    if (!plan::is_kernel(group.scheduler) && !group.kernels.empty())
      throw Error(ErrorKind::kUser, name + " has no kernels of ours, and schedules for some");
    if (group.scheduler == kStoredInPlace && !is_stored_in_place(graph, group))
      throw Error(ErrorKind::kUser, name + " is to be stored in place, and is no concatenation of tensors of one type");
  }
}

// As long as the count of elements and the tensor's address leave it so.
int64_t mask_vector(const Node& node) {
  return node.boolean("dropout", true) ? 16 / size_of(std::get<DType>(*node.find("dtype"))) : 1;
}

class ProgramBuilder {
 public:
  // `graph`: with `places`; `copies`: what concatenations copy (concatenation.hpp).
  ProgramBuilder(const Graph& graph, const Schedule& schedule, const std::map<ValueId, Place>& places,
                 const std::map<NodeId, std::vector<PartCopy>>& copies, const DeviceDescription& device)
      : graph_(graph),
        schedule_(schedule),
        places_(places),
        copies_(copies),
        device_(device),
        facts_(graph, target_of(device).graph_forms()) {
    for (const auto& value : graph.values) tensor_names_.insert(value.name);
    available_.assign(graph.values.size(), false);
    for (const auto& input : graph.inputs) available_[input.value] = true;
  }

  Program build() {
    const std::vector<std::vector<NodeId>> groups = nodes_of(schedule_);
    const auto outputs = stored_values(facts_, groups);
    halves_ = plan::halves_by_producers(facts_, schedule_, outputs, places_, device_);
    for (const plan::Scratch& tensor : halves_.tensors) names_of_halves_.push_back(fresh_tensor_name(tensor.name));
    for (size_t group = 0; group < groups.size(); ++group) {
      const GroupSchedule& one = schedule_.groups[group];
      if (one.scheduler == "extern") {
        for (NodeId node : one.nodes) call_library(node);
      } else if (one.scheduler == kStoredInPlace) {
        copy_parts(one.nodes[0]);
      } else if (!outputs[group].empty()) {
        add_kernels(group, outputs[group]);
      }
    }
    for (const auto& output : graph_.outputs)
      if (output.value != kNoValue) make_view(output.value);
    name_kernels();
    return std::move(program_);
  }

 private:
  // Views that a library call or the caller sees as tensors.
  void make_view(ValueId value) {
    if (available_[value]) return;
    const ValueId root = facts_.roots[value];
    if (root == value) return;
    available_[value] = true;
    program_.steps.emplace_back(std::in_place_type<ViewStep>,
                                ViewStep{value, graph_.values[root].name, graph_.type(value)});
  }

  void call_library(NodeId node) {
    for_each_operand(graph_.nodes[node], [&](ValueId operand) { make_view(operand); });
    program_.steps.emplace_back(
        std::in_place_type<ExternStep>,
        ExternStep{node, graph_.nodes[node].op == "kw.keep_mask.default" ? mask_vector(graph_.nodes[node]) : 0});
    for (ValueId result : graph_.nodes[node].results)
      if (result != kNoValue) available_[result] = true;
  }

  void allocate(ValueId value) {
    if (available_[value]) return;
    program_.steps.emplace_back(std::in_place_type<AllocateStep>,
                                AllocateStep{value, graph_.values[value].name, graph_.type(value)});
    available_[value] = true;
  }

  // Those parts of a concatenation that do not lie in their places yet.
  void copy_parts(NodeId node) {
    const ValueId result = graph_.nodes[node].results[0];
    const auto place = places_.find(result);
    allocate(place == places_.end() ? result : place->second.whole);
    available_[result] = true;
    for (const PartCopy& copy : copies_.at(node)) {
      make_view(copy.part);
      const CopyStep step{graph_.values[copy.part].name, graph_.values[copy.whole].name, concatenated_dim(graph_, node),
                          copy.start, copy.length};
      program_.steps.emplace_back(std::in_place_type<CopyStep>, step);
    }
  }

  void add_kernels(size_t index, const std::vector<ValueId>& outputs) {
    const GroupSchedule& group = schedule_.groups[index];
    const plan::Scheduler* scheduler = plan::find_scheduler(group.scheduler, device_);
    KW_ASSERT(scheduler, "a scheduler that was checked is not there");
    plan::Parameters parameters = group.parameters;
    auto lowered = plan::lower_group(facts_, group.nodes, outputs);
    if (const auto producer = halves_.producers.find(index); producer != halves_.producers.end()) {
      scheduler = producer->second.scheduler;
      parameters = producer->second.parameters;
      lowered = producer->second.group;
    } else if (const auto reader = halves_.readers.find(index); reader != halves_.readers.end()) {
      lowered->halves = reader->second;
    }
    if (!lowered || !plan::takes(*scheduler, *lowered))
      throw Error(ErrorKind::kUser, "scheduler '" + group.scheduler + "' cannot take the group of node " +
                                        std::to_string(group.nodes.front()));
    std::vector<ValueId> scattered;
    for (ValueId output : outputs) {
      if (facts_.kinds[graph_.values[output].producer] == plan::NodeKind::kScatter) {
        scattered.push_back(output);
        continue;
      }
      allocate(places_.contains(output) ? places_.at(output).whole : output);
      available_[output] = true;
    }
    const std::string device = graph_.type(outputs.front()).device;
    allocate_halves(index, device);
    auto scheduled = plan::lowered_for(*scheduler, std::move(*lowered), parameters, device_);
    plan::reschedule(scheduled, group.kernels, device_, name_of_group(graph_, schedule_, index));
    program_.group_sources.resize(schedule_.groups.size());
    for (const auto& one : scheduled.tiles) program_.group_sources[index].push_back(one.source);
    std::vector<std::string> scratch_names;
    for (auto& scratch : scheduled.scratch) {
      scratch.type.device = device;
      scratch_names.push_back(fresh_tensor_name(scratch.name));
      program_.steps.emplace_back(std::in_place_type<AllocateStep>,
                                  AllocateStep{kNoValue, scratch_names.back(), scratch.type, scratch.zeros});
    }
    for (auto& one : scheduled.tiles) add_kernel(index, std::move(one), scratch_names);
    for (ValueId output : scattered) {  // the memory that was written into
      const ValueId into = plan::scatter_spec(graph_, graph_.values[output].producer)->into;
      program_.steps.emplace_back(std::in_place_type<ViewStep>,
                                  ViewStep{output, graph_.values[into].name, graph_.type(output)});
      available_[output] = true;
    }
  }

  void allocate_halves(size_t group, const std::string& device) {
    const auto producer = halves_.producers.find(group);
    if (producer == halves_.producers.end()) return;
    for (const int place : producer->second.tensors) {
      TensorType type = halves_.tensors[place].type;
      type.device = device;
      program_.steps.emplace_back(std::in_place_type<AllocateStep>,
                                  AllocateStep{kNoValue, names_of_halves_[place], type, false});
    }
  }

  void add_kernel(size_t group, plan::ScheduledTiles one, const std::vector<std::string>& scratch_names) {
    Pending pending;
    pending.step = program_.steps.size();
    pending.moved = plan::with_offsets_moved(one.program);
    pending.program = std::move(one.program);
    pending.source = std::move(one.source);
    pending.identity = plan::identity_of(pending.moved.program);
    offsets_of_[pending.identity].insert(pending.moved.offsets);
    TileStep step;
    step.group = static_cast<int>(group);
    step.by_last = one.by_last;
    step.offsets = std::move(one.offsets);
    step.repetition = std::move(one.repetition);
    step.offsets.resize(one.buffers.size());
    for (size_t at = 0; at < one.buffers.size(); ++at) {
      step.tensors.push_back(name_of(one.buffers[at], scratch_names));
      step.offsets[at] += place_of(one.buffers[at]);
    }
    program_.steps.emplace_back(std::in_place_type<TileStep>, std::move(step));
    pending_.push_back(std::move(pending));
  }

  const std::string& name_of(int buffer, const std::vector<std::string>& scratch_names) const {
    if (buffer < 0) return scratch_names[-1 - buffer];
    if (static_cast<size_t>(buffer) >= graph_.values.size()) return names_of_halves_[buffer - graph_.values.size()];
    const auto place = places_.find(buffer);
    return graph_.values[place == places_.end() ? buffer : place->second.whole].name;
  }

  int64_t place_of(int buffer) const {
    const auto place = places_.find(buffer);
    return place == places_.end() ? 0 : place->second.offset;
  }

  // Offsets stay in a kernel that is used at one place only, which spares its launch the arithmetic.
  void name_kernels() {
    for (Pending& pending : pending_) {
      auto& step = std::get<TileStep>(program_.steps[pending.step]);
      const bool shared = offsets_of_[pending.identity].size() > 1;
      for (size_t at = 0; at < step.offsets.size() && shared; ++at) step.offsets[at] += pending.moved.offsets[at];
      step.program = intern(shared ? std::move(pending.moved.program) : std::move(pending.program),
                            std::move(pending.source));
    }
  }

  std::string fresh_tensor_name(const std::string& wanted) {
    std::string name = wanted;
    for (int count = 2; !tensor_names_.insert(name).second; ++count) name = wanted + "_" + std::to_string(count);
    return name;
  }

  int intern(tile::Program tiles, std::shared_ptr<const lower::Source> source) {
    const auto [place, added] = known_kernels_.emplace(plan::identity_of(tiles),
                                                       static_cast<int>(program_.tiles.size()));
    if (!added) {
      plan::shorten_rows(program_.tiles[static_cast<size_t>(place->second)], tiles);
      return place->second;
    }
    const std::string wanted = tiles.name;
    for (int count = 2; !kernel_names_.insert(tiles.name).second; ++count)
      tiles.name = wanted + "_" + std::to_string(count);
    program_.tiles.push_back(std::move(tiles));
    program_.sources.push_back(std::move(source));
    return place->second;
  }

  struct Pending {
    size_t step = 0;  // of program_.steps
    tile::Program program;
    std::shared_ptr<const lower::Source> source;
    plan::MovedOffsets moved;
    std::string identity;  // of moved.program
  };
  const Graph& graph_;
  const Schedule& schedule_;
  const std::map<ValueId, Place>& places_;
  const std::map<NodeId, std::vector<PartCopy>>& copies_;
  const DeviceDescription& device_;
  GraphFacts facts_;
  Program program_;
  plan::HalvesByProducers halves_;
  std::vector<std::string> names_of_halves_;
  std::vector<Pending> pending_;
  std::map<std::string, std::set<std::vector<int64_t>>> offsets_of_;
  std::vector<bool> available_;  // per value: a tensor of that name exists
  std::set<std::string> tensor_names_, kernel_names_;
  std::map<std::string, int> known_kernels_;
};

}  // namespace

std::vector<std::vector<NodeId>> nodes_of(const Schedule& schedule) {
  std::vector<std::vector<NodeId>> groups;
  for (const GroupSchedule& group : schedule.groups) groups.push_back(group.nodes);
  return groups;
}

std::vector<std::vector<ValueId>> stored_values(const GraphFacts& facts,
                                                const std::vector<std::vector<NodeId>>& groups) {
  const Graph& graph = facts.graph;
  std::vector<bool> needed = facts.escapes;
  for (const auto& group : groups)
    for (NodeId node : group)
      for_each_operand(graph.nodes[node], [&](ValueId operand) {
        const ValueId root = facts.roots[operand];
        const NodeId producer = graph.values[root].producer;
        if (producer != kNoNode && !std::binary_search(group.begin(), group.end(), producer)) needed[root] = true;
      });
  std::vector<bool> stored(graph.nodes.size(), false);
  std::vector<std::vector<ValueId>> outputs(groups.size());
  for (size_t group = 0; group < groups.size(); ++group)
    for (NodeId node : groups[group]) {
      if (stored[node]) continue;  // a copy: the first group that holds the node stores its results
      stored[node] = true;
      for (ValueId result : graph.nodes[node].results)
        if (result != kNoValue && needed[result]) outputs[group].push_back(result);
    }
  return outputs;
}

Schedule default_schedule(const Graph& graph, const DeviceDescription& device) {
  const GraphFacts facts(graph, target_of(device).graph_forms());
  std::vector<std::vector<NodeId>> groups = graph.groups;
  std::vector<bool> library(graph.nodes.size(), false);
  if (groups.empty())
    for (NodeId node = 0; node < static_cast<NodeId>(graph.nodes.size()); ++node)
      if (facts.kinds[node] != plan::NodeKind::kView) groups.push_back({node});
  // Taking a group apart changes what others must store, so look again until nothing changes.
  std::vector<std::optional<plan::LoweredGroup>> lowered;
  for (bool changed = true; changed;) {
    changed = false;
    const auto outputs = stored_values(facts, groups);
    lowered.assign(groups.size(), std::nullopt);
    std::vector<std::vector<NodeId>> next;
    for (size_t group = 0; group < groups.size(); ++group) {
      const auto& nodes = groups[group];
      const bool call = is_library_call(facts, nodes) || (nodes.size() == 1 && library[nodes[0]]);
      if (!call && !outputs[group].empty()) lowered[group] = plan::lower_group(facts, nodes, outputs[group]);
      if (lowered[group] && !plan::scheduler_for(*lowered[group], device)) lowered[group].reset();
      if (call || outputs[group].empty() || lowered[group]) {
        next.push_back(nodes);
        continue;
      }
      changed = true;
      if (nodes.size() == 1) {
        library[nodes[0]] = true;
        next.push_back(nodes);
      } else {
        for (NodeId node : nodes) next.push_back({node});
      }
    }
    if (!changed) break;
    // A node on its own may now stand twice; the first is enough.
    std::set<NodeId> alone;
    std::erase_if(next, [&](const auto& nodes) { return nodes.size() == 1 && !alone.insert(nodes[0]).second; });
    groups = std::move(next);
  }
  Schedule schedule;
  schedule.target = target_of(device).name();
  for (size_t group = 0; group < groups.size(); ++group) {
    GroupSchedule one;
    one.nodes = groups[group];
    one.scheduler = "extern";
    if (lowered[group]) {
      const plan::Scheduler* scheduler = plan::scheduler_for(*lowered[group], device);
      one.scheduler = scheduler->name;
      one.parameters = scheduler->defaults(*lowered[group], device);
    } else if (!is_library_call(facts, groups[group]) && !(groups[group].size() == 1 && library[groups[group][0]])) {
      one.scheduler = plan::kPointwise;  // stores nothing: every reader has its own copy
    }
    schedule.groups.push_back(std::move(one));
  }
  return schedule;
}

Program make_program(const Graph& graph, const Schedule& schedule, const DeviceDescription& device) {
  const GraphFacts facts(graph, target_of(device).graph_forms());
  check_schedule(facts, schedule, device);
  const std::map<ValueId, Place> places = places_of(facts, schedule);
  const auto copies = copies_of(facts, schedule, places);
  Program program = places.empty()
                        ? ProgramBuilder(graph, schedule, places, copies, device).build()
                        : ProgramBuilder(with_places(graph, places), schedule, places, copies, device).build();
  program = with_each_kernel_once(std::move(program));
  program.graphs = schedule.graphs && why_not_captured(graph, program).empty();
  lower_for(target_of(device), program);
  return program;
}

void lower_for(const Target& target, Program& program) {
  program.lowered.clear();
  for (const tile::Program& tiles : program.tiles)
    program.lowered.push_back(lower::lowered_by(target.lowering_steps(), tiles));
}

namespace {

std::optional<std::string> why_refused(const GraphFacts& facts, const GroupSchedule& group,
                                       const std::vector<ValueId>& outputs, const DeviceDescription& device) {
  const plan::Scheduler* scheduler = plan::find_scheduler(group.scheduler, device);
  auto lowered = scheduler && !outputs.empty() ? plan::lower_group(facts, group.nodes, outputs) : std::nullopt;
  std::string why;
  if (!lowered || plan::lowered_by(*scheduler, std::move(*lowered), group.parameters, device, &why))
    return std::nullopt;
  return why;
}

}  // namespace

Schedule without_refused(const Graph& graph, Schedule schedule, const DeviceDescription& device,
                         std::vector<RefusedGroup>& refused) {
  const GraphFacts facts(graph, target_of(device).graph_forms());
  const auto outputs = stored_values(facts, nodes_of(schedule));
  std::vector<GroupSchedule> groups;
  for (size_t at = 0; at < schedule.groups.size(); ++at) {
    GroupSchedule& group = schedule.groups[at];
    if (const auto why = why_refused(facts, group, outputs[at], device)) {
      refused.push_back({group.nodes, *why});
      for (const NodeId node : group.nodes)
        if (facts.kinds[node] != plan::NodeKind::kView) groups.push_back({{node}, "extern", {}});
    } else {
      groups.push_back(std::move(group));
    }
  }
  // What was made again in several groups is now there for all of them.
  std::set<NodeId> alone;
  std::erase_if(groups, [&](const GroupSchedule& group) {
    return group.scheduler == "extern" && group.nodes.size() == 1 && !alone.insert(group.nodes[0]).second;
  });
  schedule.groups = std::move(groups);
  return schedule;
}

std::vector<std::vector<plan::ParameterRange>> search_space(const Graph& graph, const Schedule& schedule,
                                                            const DeviceDescription& device) {
  const GraphFacts facts(graph, target_of(device).graph_forms());
  const std::vector<std::vector<NodeId>> groups = nodes_of(schedule);
  const auto outputs = stored_values(facts, groups);
  std::vector<std::vector<plan::ParameterRange>> space(groups.size());
  for (size_t group = 0; group < groups.size(); ++group) {
    const plan::Scheduler* scheduler = plan::find_scheduler(schedule.groups[group].scheduler, device);
    if (!scheduler || outputs[group].empty()) continue;
    if (const auto lowered = plan::lower_group(facts, groups[group], outputs[group]))
      space[group] = scheduler->space(*lowered, device);
  }
  return space;
}

}  // namespace kw
