#include "plan/join_products.hpp"

#include <algorithm>
#include <optional>

#include "plan/estimate.hpp"
#include "plan/plan.hpp"
#include "plan/product.hpp"
#include "plan/traffic.hpp"

namespace kw {
namespace {

// What the library reaches of the roofline's rate.
constexpr double kLibraryShare = 0.92;
// The model is not so exact that less is worth leaving the library for.
constexpr double kWorthIt = 0.9;

class ProductJoiner {
 public:
  ProductJoiner(const Graph& graph, Schedule schedule, const DeviceDescription& device)
      : facts_(graph), schedule_(std::move(schedule)), device_(device) {}

  Schedule run() {
    for (size_t group = 0; group < schedule_.groups.size(); ++group) {
      const GroupSchedule& one = schedule_.groups[group];
      if (one.scheduler != "extern" || one.nodes.size() != 1) continue;
      const auto product = plan::product_of(facts_, one.nodes[0]);
      if (!product) continue;
      if (const auto reader = only_reader(group, product->result); !reader || !join(group, *reader, *product))
        take_alone(group, *product);
    }
    std::erase_if(schedule_.groups, [](const GroupSchedule& group) { return group.nodes.empty(); });
    return std::move(schedule_);
  }

 private:
  // The pointwise group that reads the value, where there is no other reader.
  std::optional<size_t> only_reader(size_t producer, ValueId value) const {
    if (facts_.escapes[value]) return std::nullopt;
    std::optional<size_t> found;
    for (size_t group = producer + 1; group < schedule_.groups.size(); ++group) {
      const auto& nodes = schedule_.groups[group].nodes;
      const bool reads = std::any_of(facts_.readers[value].begin(), facts_.readers[value].end(), [&](NodeId reader) {
        return std::binary_search(nodes.begin(), nodes.end(), reader);
      });
      if (!reads) continue;
      if (found) return std::nullopt;
      found = group;
    }
    if (!found || schedule_.groups[*found].scheduler != "pointwise") return std::nullopt;
    return found;
  }

  std::vector<std::vector<ValueId>> outputs_of(const std::vector<GroupSchedule>& groups) const {
    std::vector<std::vector<NodeId>> nodes;
    for (const GroupSchedule& group : groups) nodes.push_back(group.nodes);
    return stored_values(facts_, nodes);
  }

  double seconds_of(const GroupSchedule& group, const std::vector<ValueId>& outputs) const {
    return device_.launch_seconds + plan::bytes_moved(facts_, group.nodes, outputs) / device_.copy_bytes_per_second;
  }

  double library_seconds(const plan::Product& product) const {
    const Graph& graph = facts_.graph;
    double bytes = 0;
    for_each_operand(graph.nodes[product.node],
                     [&](ValueId operand) { bytes += static_cast<double>(graph.type(operand).bytes()); });
    bytes += static_cast<double>(graph.type(product.result).bytes());
    const double rate = product.left.dtype == DType::f32 ? device_.fp32_flops : device_.half_flops;
    return device_.launch_seconds +
           std::max(product.flops() / (kLibraryShare * rate), bytes / device_.copy_bytes_per_second);
  }

  // As a group of the contraction scheduler, where that takes it and the model expects it to be faster.
  std::optional<GroupSchedule> contraction(std::vector<NodeId> nodes, const std::vector<ValueId>& outputs,
                                           double seconds_now) const {
    const auto lowered = plan::lower_group(facts_, nodes, outputs);
    if (!lowered || !plan::takes(plan::kContractionScheduler, *lowered)) return std::nullopt;
    GroupSchedule group;
    group.nodes = std::move(nodes);
    group.scheduler = plan::kContractionScheduler.name;
    group.parameters = plan::kContractionScheduler.defaults(*lowered, device_);
    const double seconds = plan::seconds_of(plan::kContractionScheduler.lower(*lowered, group.parameters, device_),
                                            device_);
    return seconds < kWorthIt * seconds_now ? std::optional(std::move(group)) : std::nullopt;
  }

  bool join(size_t producer, size_t reader, const plan::Product& product) {
    const auto outputs = outputs_of(schedule_.groups);
    GroupSchedule& after = schedule_.groups[reader];
    std::vector<NodeId> nodes = after.nodes;
    nodes.insert(std::lower_bound(nodes.begin(), nodes.end(), product.node), product.node);
    const double now = library_seconds(product) + seconds_of(after, outputs[reader]);
    auto joined = contraction(std::move(nodes), outputs[reader], now);
    if (!joined) return false;
    after = std::move(*joined);
    schedule_.groups[producer].nodes.clear();
    return true;
  }

  void take_alone(size_t place, const plan::Product& product) {
    if (auto alone = contraction({product.node}, {product.result}, library_seconds(product)))
      schedule_.groups[place] = std::move(*alone);
  }

  plan::GraphFacts facts_;
  Schedule schedule_;
  const DeviceDescription& device_;
};

}  // namespace

Schedule join_products(const Graph& graph, Schedule schedule, const DeviceDescription& device) {
  return ProductJoiner(graph, std::move(schedule), device).run();
}

}  // namespace kw
