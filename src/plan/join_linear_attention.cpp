#include "plan/join_linear_attention.hpp"

#include <algorithm>
#include <set>

#include "plan/domain.hpp"
#include "plan/estimate.hpp"
#include "plan/linear_attention.hpp"
#include "plan/plan.hpp"
#include "plan/traffic.hpp"
#include "target/target.hpp"

namespace kw {
namespace {

constexpr double kWorthLeaving = 0.9;
constexpr size_t kMostGroups = 12;

class LinearAttentionJoiner {
 public:
  LinearAttentionJoiner(const Graph& graph, Schedule schedule, const DeviceDescription& device)
      : facts_(graph, target_of(device).graph_forms()), schedule_(std::move(schedule)), device_(device) {}

  Schedule run() {
    const plan::Scheduler* scheduler = plan::find_scheduler(plan::kLinearAttentionScheduler.name, device_);
    for (size_t values = 0; scheduler && values < schedule_.groups.size(); ++values)
      if (is_product(values)) join(*scheduler, values);
    std::erase_if(schedule_.groups, [](const GroupSchedule& group) { return group.nodes.empty(); });
    return std::move(schedule_);
  }

 private:
  bool is_product(size_t group) const {
    const GroupSchedule& one = schedule_.groups[group];
    return one.scheduler == plan::kLibraryCall && one.nodes.size() == 1 && plan::product_of(facts_, one.nodes[0]);
  }

  std::optional<size_t> group_of(NodeId node) const {
    for (size_t group = 0; group < schedule_.groups.size(); ++group)
      if (std::binary_search(schedule_.groups[group].nodes.begin(), schedule_.groups[group].nodes.end(), node))
        return group;
    return std::nullopt;
  }

  std::vector<std::vector<ValueId>> stored(const std::vector<GroupSchedule>& groups) const {
    std::vector<std::vector<NodeId>> nodes;
    for (const GroupSchedule& group : groups) nodes.push_back(group.nodes);
    return stored_values(facts_, nodes);
  }

  // What makes a group's operands: kernels of elements or sums, and products with a vector, but no other product.
  void add_makers(size_t group, std::set<size_t>& groups) const {
    for (NodeId node : schedule_.groups[group].nodes)
      for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) {
        const NodeId maker = facts_.graph.values[facts_.roots[operand]].producer;
        const auto before = maker == kNoNode ? std::nullopt : group_of(maker);
        if (!before || groups.contains(*before) || !is_beside(*before)) return;
        groups.insert(*before);
        add_makers(*before, groups);
      });
  }

  bool is_beside(size_t group) const {
    const GroupSchedule& one = schedule_.groups[group];
    if (one.scheduler != plan::kLibraryCall) return plan::is_kernel(one.scheduler);
    const auto product = one.nodes.size() == 1 ? plan::product_of(facts_, one.nodes[0], true) : std::nullopt;
    return product && product->columns == 1;
  }

  void join(const plan::Scheduler& scheduler, size_t values) {
    const NodeId node = schedule_.groups[values].nodes[0];
    const ValueId right = plan::factors_of(facts_.graph.nodes[node]).right;
    const NodeId maker = facts_.graph.values[facts_.roots[right]].producer;
    const auto made = maker == kNoNode ? std::nullopt : group_of(maker);
    if (!made || !is_product(*made)) return;
    const size_t summary = *made;
    const std::vector<NodeId> products = {maker, node};
    const auto found = plan::summary_among(facts_, products);
    if (found.values != node) return;
    const ValueId result = facts_.graph.nodes[found.values].results[0];
    std::set<size_t> readers;
    for (NodeId reader : facts_.readers[result])
      if (const auto group = group_of(reader)) readers.insert(*group);
    std::vector<std::set<size_t>> tried;
    if (readers.size() == 1 && !facts_.escapes[result]) tried.push_back({summary, values, *readers.begin()});
    tried.push_back({summary, values});
    for (const std::set<size_t>& groups : tried) {
      std::set<size_t> all = groups;
      for (size_t group : groups) add_makers(group, all);
      if (replace(scheduler, all) || replace(scheduler, groups)) return;
    }
  }

  // In the place of the last of them, which alone stores what others read.
  bool replace(const plan::Scheduler& scheduler, const std::set<size_t>& groups) {
    if (groups.size() > kMostGroups) return false;
    const auto before = stored(schedule_.groups);
    GroupSchedule made;
    double now = 0;
    for (size_t group : groups) {
      const std::vector<NodeId>& nodes = schedule_.groups[group].nodes;
      made.nodes.insert(made.nodes.end(), nodes.begin(), nodes.end());
      now += device_.launch_seconds + plan::bytes_moved(facts_, nodes, before[group]) / device_.copy_bytes_per_second;
    }
    std::sort(made.nodes.begin(), made.nodes.end());
    std::vector<GroupSchedule> joined = schedule_.groups;
    for (size_t group : groups) joined[group].nodes.clear();
    const size_t last = *groups.rbegin();
    joined[last].nodes = made.nodes;
    const auto after = stored(joined);
    if (after[last] != before[last]) return false;
    const auto lowered = plan::lower_linear_attention(facts_, made.nodes, after[last]);
    if (!lowered) return false;
    made.scheduler = scheduler.name;
    made.parameters = scheduler.defaults(*lowered, device_);
    const auto kernels = plan::lowered_by(scheduler, *lowered, made.parameters, device_);
    if (!kernels || plan::seconds_of(*kernels, device_) >= kWorthLeaving * now) return false;
    joined[last] = std::move(made);
    schedule_.groups = std::move(joined);
    return true;
  }

  plan::GraphFacts facts_;
  Schedule schedule_;
  const DeviceDescription& device_;
};

}  // namespace

Schedule join_linear_attention(const Graph& graph, Schedule schedule, const DeviceDescription& device) {
  return LinearAttentionJoiner(graph, std::move(schedule), device).run();
}

}  // namespace kw
