#include "plan/join_products.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "plan/attention.hpp"
#include "plan/estimate.hpp"
#include "plan/group_kinds.hpp"
#include "plan/plan.hpp"
#include "plan/product.hpp"
#include "plan/product_conversion.hpp"
#include "plan/product_lowering.hpp"
#include "plan/statistics.hpp"
#include "plan/traffic.hpp"
#include "target/target.hpp"

namespace kw {
namespace {

// What the library reaches of the roofline's rate with convolutions of one tap.
constexpr double kLibraryShare = 0.92;
// Of others, of the rate of products of halves: in TF32, between conversions of the layout, and in 16 bits.
constexpr double kLibraryShareOfConvolutions = 0.13, kLibraryShareIn16Bits = 0.35;
constexpr double kLibraryShareOfOneTap = 0.2;  // in TF32, where the layout stays: 138 GFLOP took 0.78 ms on an H100
constexpr double kLibraryShareOfMemory = 0.4, kLibraryShareDepthwise = 0.2;  // in those with several taps
constexpr double kLibraryShareInterleaved = 0.15;  // in transposed ones with stride: 848 MB take 1.6 ms on an H200
// Tensor cores multiply TF32 half as fast as halves, whose rate is one that power limits.
constexpr double kTf32OverHalves = 0.6;
// Of those in groups, a kernel for each, on an H100: 0.1 GFLOP took 47 µs, 3.2 GFLOP 270.
constexpr double kLibrarySecondsOfGroup = 40e-6, kLibraryShareOfGroups = 0.2;
// The model is not so exact that less is worth leaving the library for.
constexpr double kWorthIt = 0.9;
constexpr double kWorthItOfOurs = 0.99;  // of kernels of ours, which it knows better
// Where programs of a row wait for each other: 4.4 GB took 2.4 ms on an H200, without waiting 1.04.
constexpr double kCooperativeShareOfMemory = 0.45;

class ProductJoiner {
 public:
  ProductJoiner(const Graph& graph, Schedule schedule, const DeviceDescription& device, const LibraryRates& rates)
      : facts_(graph, target_of(device).graph_forms()),
        schedule_(std::move(schedule)),
        device_(device),
        rates_(rates) {}

  Schedule run() {
    for (size_t group = 0; group < schedule_.groups.size(); ++group)
      if (attention_ && is_library_call(group)) join_attention(group);
    for (size_t group = 0; group < schedule_.groups.size(); ++group) {
      if (!is_library_call(group)) continue;
      const NodeId node = schedule_.groups[group].nodes[0];
      if (const auto product = plan::product_of(facts_, node)) {
        if (!join_conversion(group, *product)) join(group, product->result, library_seconds(*product), contraction_);
      } else if (const auto convolution = plan::convolution_of(facts_, node)) {
        if (!join_statistics(group, convolution->result, library_seconds(*convolution)))
          join(group, convolution->result, library_seconds(*convolution), convolution_);
      } else if (const auto recurrence = plan::recurrence_of(facts_, node)) {
        replace({group}, library_seconds(*recurrence), recurrence_);
      }
    }
    for (size_t group = 0; group < schedule_.groups.size(); ++group)
      if (convolution_) join_producer(group);
    std::erase_if(schedule_.groups, [](const GroupSchedule& group) { return group.nodes.empty(); });
    return std::move(schedule_);
  }

 private:
  bool is_library_call(size_t group) const {
    return schedule_.groups[group].scheduler == "extern" && schedule_.groups[group].nodes.size() == 1;
  }

  bool holds(size_t group, NodeId node) const {
    return std::binary_search(schedule_.groups[group].nodes.begin(), schedule_.groups[group].nodes.end(), node);
  }

  // The group that reads the value, where there is no other.
  std::optional<size_t> only_reader(ValueId value) const {
    if (facts_.escapes[value]) return std::nullopt;
    std::optional<size_t> found;
    for (size_t group = 0; group < schedule_.groups.size(); ++group) {
      const bool reads = std::any_of(facts_.readers[value].begin(), facts_.readers[value].end(),
                                     [&](NodeId reader) { return holds(group, reader); });
      if (!reads) continue;
      if (found) return std::nullopt;
      found = group;
    }
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

  // Of the library's products. `rounded`: to TF32.
  double rate_of(DType dtype, bool rounded) const {
    if (dtype == DType::f32)
      return rounded ? std::max(device_.fp32_flops, kTf32OverHalves * device_.half_flops) : device_.fp32_flops;
    if (device_.half_flops > 0) return device_.half_flops;
    return (dtype == DType::bf16 ? rates_.bf16 : rates_.f16) * device_.fp32_flops;
  }

  double library_seconds(const plan::Product& product) const {
    const Graph& graph = facts_.graph;
    double bytes = 0;
    for_each_operand(graph.nodes[product.node],
                     [&](ValueId operand) { bytes += static_cast<double>(graph.type(operand).bytes()); });
    bytes += static_cast<double>(graph.type(product.result).bytes());
    // Of very few they have smaller tiles.
    const auto made = [&](int64_t extent) {
      const int64_t tile = std::min(rates_.tile, 8 * extent);
      return static_cast<double>(plan::ceil_divide(extent, tile) * tile) / static_cast<double>(extent);
    };
    const bool tiles = product.left.dtype == DType::f32 && std::min(product.rows, product.columns) > 1;
    const double flops = product.flops() * (tiles ? made(product.rows) * made(product.columns) : 1.0);
    const double elements = static_cast<double>(product.batches()) *
                            static_cast<double>(product.columns * product.depth);
    const double layout = tiles ? elements * rates_.seconds_of_element / static_cast<double>(device_.units) : 0;
    return device_.launch_seconds +
           std::max(flops / (rates_.products * rate_of(product.left.dtype, product.rounded)) + layout,
                    bytes / device_.copy_bytes_per_second);
  }

  double library_seconds_of_attention(const Node& node) const {
    const Graph& graph = facts_.graph;
    const TensorType &query = graph.type(node.value("query")), &key = graph.type(node.value("key")),
                     &value = graph.type(node.value("value"));
    if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2) return 0;
    const double scores = static_cast<double>(query.elements()) / static_cast<double>(query.shape.back()) *
                          static_cast<double>(key.shape[key.rank() - 2]);
    const double flops = scores *
                         (2 * static_cast<double>(query.shape.back() + value.shape.back()) + rates_.flops_of_score);
    const double share = query.dtype == DType::f32             ? rates_.single_attention
                         : node.value("attn_mask") == kNoValue ? rates_.halves_attention
                                                               : rates_.masked_attention;
    const double rate = query.dtype == DType::f32 || device_.half_flops <= 0 ? device_.fp32_flops : device_.half_flops;
    const double seconds = flops / (share * rate);
    if (rates_.attention_rows == 0) return device_.launch_seconds + seconds;
    // Of few queries it is bound by reading keys and values: in 16 bits by all units; in single precision by those that
    // have a block of queries, of which most may be empty. Heads that share keys have them repeated in memory there.
    double bytes = static_cast<double>(key.bytes() + value.bytes());
    // Its kernels for 16 bits that share out keys have heads of up to kWidestHead.
    if (query.dtype != DType::f32 && std::max(query.shape.back(), value.shape.back()) <= plan::kWidestHead)
      return device_.launch_seconds + std::max(seconds, bytes / device_.copy_bytes_per_second);
    const int64_t rows = query.shape[query.rank() - 2], blocks = plan::ceil_divide(rows, rates_.attention_rows),
                  heads = query.elements() / std::max<int64_t>(rows * query.shape.back(), 1);
    const double padded = static_cast<double>(blocks * rates_.attention_rows) /
                          static_cast<double>(std::max<int64_t>(rows, 1));
    const double busy = std::min(1.0, static_cast<double>(heads * blocks) / static_cast<double>(device_.units));
    if (node.boolean("enable_gqa", false) && query.rank() > 2)
      bytes *= 1 + 2 * static_cast<double>(query.shape[query.rank() - 3]) /
                       static_cast<double>(std::max<int64_t>(key.shape[key.rank() - 3], 1));
    return device_.launch_seconds + std::max(seconds * padded, bytes / device_.copy_bytes_per_second) / busy;
  }

  double library_seconds(const plan::Convolution& convolution) const {
    const Graph& graph = facts_.graph;
    const plan::Product product = convolution.product();
    const auto stored = static_cast<double>(graph.type(convolution.result).bytes());
    const double bias = convolution.bias && rates_.adds_bias
                            ? device_.launch_seconds + 2 * stored / device_.copy_bytes_per_second
                            : 0;
    if (convolution.is_grouped() && convolution.image.dtype == DType::f32)
      return bias + static_cast<double>(convolution.groups) * kLibrarySecondsOfGroup +
             product.flops() / (kLibraryShareOfGroups * device_.fp32_flops);
    const double bytes = stored + static_cast<double>(graph.type(graph.nodes[convolution.node].value("input")).bytes());
    if (convolution.is_direct() && rates_.depthwise_products > 0)
      return bias + device_.launch_seconds + rates_.small_depthwise +
             product.flops() / (rates_.depthwise_products * device_.fp32_flops) +
             bytes / (kLibraryShareDepthwise * device_.copy_bytes_per_second);
    const double share_of_tf32 = convolution.taps() == 1 ? kLibraryShareOfOneTap : kLibraryShareOfConvolutions;
    const double rate = convolution.exact                       ? rates_.exact_convolutions * device_.fp32_flops
                        : convolution.image.dtype == DType::f32 ? share_of_tf32 * device_.half_flops
                                                                : kLibraryShareIn16Bits * device_.half_flops;
    const double share = convolution.channels == 1  ? kLibraryShareDepthwise
                         : convolution.phases() > 1 ? kLibraryShareInterleaved
                         : convolution.taps() == 1  ? kLibraryShare
                                                    : kLibraryShareOfMemory;
    const double arithmetic = product.flops() / rate;
    return bias + device_.launch_seconds + rates_.small_convolution +
           std::max(arithmetic + std::min(arithmetic, rates_.more_of_convolution),
                    bytes / (share * device_.copy_bytes_per_second));
  }

  double library_seconds(const plan::Recurrence& recurrence) const {
    const double rate = recurrence.exact                 ? device_.fp32_flops
                        : recurrence.dtype == DType::f32 ? std::max(device_.fp32_flops, device_.half_flops / 2)
                                                         : device_.half_flops;
    const StepRates& own = recurrence.projected > 0                   ? rates_.projected
                           : recurrence.kind == plan::CellKind::kLstm ? rates_.lstm
                           : recurrence.kind == plan::CellKind::kGru  ? rates_.gru
                                                                      : rates_.rnn;
    const double steps = static_cast<double>(recurrence.steps * recurrence.cell_count()) *
                         (own.step + static_cast<double>(recurrence.batch * recurrence.hidden) * own.unit);
    const double products = recurrence.flops() / (rates_.recurrences * rate);
    return rates_.is_launched ? std::max(steps, products) : steps + products;
  }

  struct Joined {
    GroupSchedule group;
    double seconds = 0;
    bool folds_in_parts = false;  // of a product, blocks fold what they have of its rows or columns
  };

  // These as one group of the scheduler's, where it takes that; it stores what the last one does.
  std::optional<Joined> joined(const std::vector<size_t>& groups, const plan::Scheduler* scheduler) const {
    Joined made;
    for (size_t group : groups)
      made.group.nodes.insert(made.group.nodes.end(), schedule_.groups[group].nodes.begin(),
                              schedule_.groups[group].nodes.end());
    std::sort(made.group.nodes.begin(), made.group.nodes.end());
    return scheduled(std::move(made.group.nodes), outputs_of(schedule_.groups)[groups.back()], scheduler);
  }

  // nullopt where the target has no such scheduler, or it does not take these.
  std::optional<Joined> scheduled(std::vector<NodeId> nodes, const std::vector<ValueId>& outputs,
                                  const plan::Scheduler* scheduler) const {
    if (!scheduler) return std::nullopt;
    const auto lowered = plan::lower_group(facts_, nodes, outputs);
    if (!lowered || !plan::takes(*scheduler, *lowered)) return std::nullopt;
    Joined made{{std::move(nodes), std::string(scheduler->name), scheduler->defaults(*lowered, device_)}};
    const auto kernels = plan::lowered_by(*scheduler, *lowered, made.group.parameters, device_);
    if (!kernels) return std::nullopt;
    made.seconds = plan::seconds_of(*kernels, device_) + seconds_of_image(*lowered, made.group.parameters);
    made.folds_in_parts = lowered->product && plan::can_fold_in_parts(*lowered) && !plan::can_have_whole_rows(*lowered);
    if (!rates_.counts_kept) made.seconds -= plan::seconds_of(kept_of(*kernels), device_);
    return made;
  }

  // Kernels of the group that read nothing but weights, and what such kernels make.
  plan::ScheduledGroup kept_of(const plan::ScheduledGroup& group) const {
    std::set<int> kept;  // tensors, as kernels' buffers name them
    for (const GraphInput& input : facts_.graph.inputs)
      if (input.kind != InputKind::kUser) kept.insert(input.value);
    plan::ScheduledGroup made;
    for (const plan::ScheduledTiles& tiles : group.tiles) {
      const std::vector<tile::Buffer>& buffers = tiles.program.buffers;
      bool is_kept = true;
      for (size_t place = 0; place < buffers.size(); ++place)
        is_kept = is_kept && (kept.contains(tiles.buffers[place]) || buffers[place].role == tile::BufferRole::kOutput);
      if (!is_kept) continue;
      kept.insert(tiles.buffers.begin(), tiles.buffers.end());
      made.tiles.push_back(tiles);
    }
    return made;
  }

  // What the model of tiles does not see of an image that is made as it is laid out: loads that run across the lines of
  // memory; and depthwise, that it is made again for every tap, but once for a thread's rows.
  double seconds_of_image(const plan::LoweredGroup& group, const plan::Parameters& parameters) const {
    if (!group.producer) return 0;
    constexpr double kSectorBytes = 32;
    const plan::GroupKernel& kernel = group.producer->group->kernel;
    const auto walked = kernel::digits_of(
        plan::index_of(group.producer->image_store(group.convolution->image.root).access));
    const auto is_across = [&](const kernel::Digit& digit) {
      return std::abs(digit.coefficient) > 1 && std::any_of(walked.begin(), walked.end(), [&](const auto& along) {
               return along.axis == digit.axis && along.coefficient == 1;
             });
    };
    double bytes = 0, operations = 0;
    const std::vector<bool> values = plan::values_of(kernel);
    for (size_t id = 0; id < values.size(); ++id) {
      const plan::Expr& expr = kernel.exprs[id];
      operations += values[id] ? weight_of(expr) : 0;
      if (!plan::is_load(expr)) continue;
      const std::vector<kernel::Digit> digits = kernel::digits_of(plan::index_of(expr.access));
      if (std::none_of(digits.begin(), digits.end(), is_across)) continue;
      double elements = 1;
      const std::vector<bool> used = plan::axes_of_access(kernel, expr.access);
      for (size_t axis = 0; axis < used.size(); ++axis)
        if (used[axis]) elements *= static_cast<double>(plan::extent_of(kernel.symbols[axis]));
      bytes += elements * (kSectorBytes - static_cast<double>(size_of(expr.dtype)));
    }
    if (!group.convolution->is_direct()) return bytes / device_.copy_bytes_per_second;
    const double elements = static_cast<double>(facts_.graph.type(group.convolution->result).elements());
    const auto chosen = parameters.find("rows");
    const int64_t rows = chosen == parameters.end() ? 1 : chosen->second;
    const double times = static_cast<double>(group.convolution->places_of_windows(rows)) / static_cast<double>(rows);
    return bytes / device_.copy_bytes_per_second + 2 * operations * elements * times / device_.fp32_flops;
  }

  // In the place of the last of them, where the model expects it to be faster. Returns whether it was replaced.
  bool replace(const std::vector<size_t>& groups, double seconds_now, std::optional<Joined> made) {
    if (!made || made->seconds >= kWorthIt * seconds_now) return false;
    for (size_t group : groups) schedule_.groups[group].nodes.clear();
    schedule_.groups[groups.back()] = std::move(made->group);
    return true;
  }

  bool replace(const std::vector<size_t>& groups, double seconds_now, const plan::Scheduler* scheduler) {
    return replace(groups, seconds_now, joined(groups, scheduler));
  }

  // A library call as a kernel of the scheduler's, with the group that alone reads its result where that can be.
  void join(size_t group, ValueId result, double seconds_now, const plan::Scheduler* scheduler) {
    if (with_fold(group, result, seconds_now, scheduler) || with_reader({group}, result, seconds_now, scheduler))
      return;
    replace({group}, seconds_now, scheduler);
  }

  // The same with the pointwise group that alone reads the last one's result.
  bool with_reader(std::vector<size_t> groups, ValueId result, double seconds_now, const plan::Scheduler* scheduler) {
    const auto reader = reader_after(groups.back(), result, {"pointwise"});
    if (!reader) return false;
    seconds_now += seconds_of(schedule_.groups[*reader], outputs_of(schedule_.groups)[*reader]);
    groups.push_back(*reader);
    return replace(groups, seconds_now, scheduler);
  }

  // A product with the group that converts its right operand, for it alone, and does nothing else.
  bool join_conversion(size_t group, const plan::Product& product) {
    const ValueId converted = product.right.root;
    const NodeId maker = facts_.graph.values[converted].producer;
    const auto is_its = [&](NodeId node) { return node == maker || facts_.kinds[node] == plan::NodeKind::kView; };
    for (size_t before = 0; before < group && maker != kNoNode; ++before) {
      const std::vector<NodeId>& nodes = schedule_.groups[before].nodes;
      if (!holds(before, maker)) continue;
      if (!std::all_of(nodes.begin(), nodes.end(), is_its) || only_reader(converted) != group) return false;
      if (!plan::with_conversion(facts_, nodes, product)) return false;
      const double now = library_seconds(product) + seconds_of(schedule_.groups[before], {converted});
      return with_reader({before, group}, product.result, now, contraction_) ||
             replace({before, group}, now, contraction_);
    }
    return false;
  }

  // A product with the group that alone reads its result and folds it over its rows or columns, or a convolution's over
  // its filters or over windows. A block that has all of these has fewer of the others: two kernels may still be
  // faster. One that folds the part that it has is what it is without, and differs by what is not stored and read.
  bool with_fold(size_t group, ValueId result, double seconds_now, const plan::Scheduler* scheduler) {
    const auto reader = reader_after(group, result, {plan::kReduction, plan::kNormalisation, plan::kSliding});
    if (!reader) return false;
    auto together = joined({group, *reader}, scheduler);
    if (!together) return false;
    const double reader_seconds = seconds_of(schedule_.groups[*reader], outputs_of(schedule_.groups)[*reader]);
    const auto alone = joined({group}, scheduler);
    // What both do alike, the product, says nothing.
    if (together->folds_in_parts && alone && alone->seconds < kWorthIt * seconds_now)
      return together->seconds - alone->seconds < kWorthIt * reader_seconds &&
             replace({group, *reader}, std::numeric_limits<double>::infinity(), std::move(together));
    if (alone) seconds_now = std::min(seconds_now, alone->seconds);
    return replace({group, *reader}, seconds_now + reader_seconds, std::move(together));
  }

  // A convolution with the means and variances of its channels that a group behind it folds: that group keeps the rest,
  // and does not read the result for them.
  bool join_statistics(size_t group, ValueId result, double library_seconds) {
    if (!convolution_) return false;
    const auto alone = joined({group}, convolution_);
    const bool is_ours = alone && alone->seconds < kWorthIt * library_seconds;
    for (size_t reader = group + 1; reader < schedule_.groups.size(); ++reader) {
      const std::string& scheduler = schedule_.groups[reader].scheduler;
      if (scheduler != plan::kReduction && scheduler != plan::kNormalisation) continue;
      if (std::none_of(facts_.readers[result].begin(), facts_.readers[result].end(),
                       [&](NodeId node) { return holds(reader, node); }))
        continue;
      const auto apart = plan::statistics_of(facts_, schedule_.groups[reader].nodes, result);
      if (!apart) continue;
      const auto now = memory_seconds(schedule_, reader);
      auto made = with_statistics(group, reader, *apart, result);
      if (!now || !made) continue;
      if (made->seconds >= (is_ours ? kWorthItOfOurs * (alone->seconds + *now) : kWorthIt * (library_seconds + *now)))
        continue;
      schedule_ = std::move(made->schedule);
      return true;
    }
    return false;
  }

  struct WithStatistics {
    Schedule schedule;
    double seconds = 0;  // of the two groups
  };

  // Emptied groups go at the end, so that the places of all others stay.
  std::optional<WithStatistics> with_statistics(size_t group, size_t reader, const plan::StatisticsApart& apart,
                                                ValueId result) const {
    WithStatistics made{schedule_};
    std::vector<GroupSchedule>& groups = made.schedule.groups;
    GroupSchedule &first = groups[group], &rest = groups[reader];
    first.nodes.insert(first.nodes.end(), apart.before.begin(), apart.before.end());
    first.nodes.insert(first.nodes.end(), apart.statistics.begin(), apart.statistics.end());
    std::sort(first.nodes.begin(), first.nodes.end());
    first.scheduler = convolution_->name;
    rest.nodes = apart.after;
    if (!comes_before(group, first.nodes)) return std::nullopt;
    // What stands between convolution and norm is stored, unless the convolution's own result is wanted as well.
    const auto& readers = facts_.readers[result];
    if (facts_.escapes[result] || !std::all_of(readers.begin(), readers.end(), [&](NodeId node) {
          return std::binary_search(first.nodes.begin(), first.nodes.end(), node);
        }))
      std::set_union(apart.before.begin(), apart.before.end(), apart.after.begin(), apart.after.end(),
                     std::back_inserter(rest.nodes = {}));
    for (size_t at : {group, reader}) {
      if (groups[at].nodes.empty()) continue;
      const auto outputs = outputs_of(groups);
      const auto lowered = plan::lower_group(facts_, groups[at].nodes, outputs[at]);
      if (!lowered || (at == group && (!lowered->convolution || !lowered->statistics))) return std::nullopt;
      const plan::Scheduler* scheduler = plan::scheduler_for(*lowered, device_);
      if (!scheduler) return std::nullopt;
      groups[at].scheduler = scheduler->name;
      groups[at].parameters = scheduler->defaults(*lowered, device_);
      const auto seconds = at == reader
                               ? memory_seconds(groups[at], outputs[at])
                               : plan::seconds_of(scheduler->lower(*lowered, groups[at].parameters, device_), device_);
      if (!seconds) return std::nullopt;
      made.seconds += *seconds;
    }
    return made;
  }

  // Does all that the nodes read, and they do not make, come from before that group?
  bool comes_before(size_t group, const std::vector<NodeId>& nodes) const {
    std::vector<bool> made(facts_.graph.nodes.size());
    for (size_t at = 0; at < group; ++at)
      for (NodeId node : schedule_.groups[at].nodes) made[node] = true;
    for (NodeId node : nodes) made[node] = true;
    bool all = true;
    for (NodeId node : nodes)
      for_each_operand(facts_.graph.nodes[node], [&](ValueId operand) {
        const NodeId producer = facts_.graph.values[facts_.roots[operand]].producer;
        all = all && (producer == kNoNode || made[producer]);
      });
    return all;
  }

  // Of a group that memory keeps busy, as its scheduler would make it. What the model adds for kernels that combine
  // parts orders their schedules, and is too much beside products.
  std::optional<double> memory_seconds(const GroupSchedule& group, const std::vector<ValueId>& outputs) const {
    const auto lowered = plan::lower_group(facts_, group.nodes, outputs);
    const plan::Scheduler* scheduler = plan::find_scheduler(group.scheduler, device_);
    if (!lowered || !scheduler) return std::nullopt;
    double total = 0;
    const plan::ScheduledGroup made = scheduler->lower(*lowered, group.parameters, device_);
    for (const plan::ScheduledTiles& one : made.tiles) {
      const double share = tile::blocks_of_row(one.program) > 1 ? kCooperativeShareOfMemory : 1;
      total += (one.by_last ? 0 : device_.launch_seconds) +
               estimate(one.program, device_).memory_bytes / (share * device_.copy_bytes_per_second);
    }
    return total;
  }

  std::optional<double> memory_seconds(const Schedule& schedule, size_t group) const {
    return memory_seconds(schedule.groups[group], outputs_of(schedule.groups)[group]);
  }

  // The group that alone reads the value, behind `group` and of one of these schedulers.
  std::optional<size_t> reader_after(size_t group, ValueId value,
                                     std::initializer_list<std::string_view> schedulers) const {
    const auto reader = only_reader(value);
    const auto is_its = [&](std::string_view scheduler) { return schedule_.groups[*reader].scheduler == scheduler; };
    const bool fits = reader && *reader > group && std::any_of(schedulers.begin(), schedulers.end(), is_its);
    return fits ? reader : std::nullopt;
  }

  // A convolution with the pointwise group that makes its image, or the pointwise part of a normalisation, where the
  // model expects one group to be faster. What others read of that group they read of this one then.
  void join_producer(size_t group) {
    const NodeId node = plan::convolution_among(facts_, schedule_.groups[group].nodes);
    const auto convolution = node == kNoNode ? std::nullopt : plan::convolution_of(facts_, node);
    if (!convolution) return;
    const auto outputs = outputs_of(schedule_.groups);
    const auto makes_image = [&](const std::vector<ValueId>& stored) {
      return std::find(stored.begin(), stored.end(), convolution->image.root) != stored.end();
    };
    const auto maker = static_cast<size_t>(std::find_if(outputs.begin(), outputs.end(), makes_image) - outputs.begin());
    if (maker >= group || plan::find_scheduler(schedule_.groups[maker].scheduler, device_) == nullptr) return;
    double now = 0;
    if (is_library_call(group)) {
      now = library_seconds(*convolution);
    } else {
      const auto alone = scheduled(schedule_.groups[group].nodes, outputs[group], convolution_);
      if (!alone) return;
      now = alone->seconds;
    }
    const double share = is_library_call(group) || convolution->is_direct() ? kWorthIt : kWorthItOfOurs;
    if (schedule_.groups[maker].scheduler == plan::kPointwise) {
      now += seconds_of(schedule_.groups[maker], outputs[maker]);
      if (auto joined = with_producer(schedule_, maker, group, share * now)) schedule_ = *std::move(joined);
    } else if (const auto apart = plan::with_statistics_apart(facts_, schedule_, maker, device_)) {
      const auto together = memory_seconds(schedule_, maker), statistics = memory_seconds(*apart, maker);
      if (!together || !statistics) return;
      now = share * (now + *together) - *statistics;
      if (auto joined = with_producer(*apart, maker + 1, group + 1, now)) schedule_ = *std::move(joined);
    }
  }

  // The schedule with these two as one group, in the place of one of them, where it takes less than so many seconds.
  std::optional<Schedule> with_producer(const Schedule& schedule, size_t maker, size_t group, double seconds) const {
    std::vector<NodeId> nodes;
    std::set_union(schedule.groups[maker].nodes.begin(), schedule.groups[maker].nodes.end(),
                   schedule.groups[group].nodes.begin(), schedule.groups[group].nodes.end(), std::back_inserter(nodes));
    const auto outputs = outputs_of(schedule.groups);
    for (const auto& [place, other] : {std::pair{group, maker}, std::pair{maker, group}}) {
      Schedule made = schedule;
      made.groups[other].nodes.clear();
      made.groups[place].nodes = nodes;
      const auto stored = outputs_of(made.groups);
      if (!is_in_order(made.groups, stored, place) || !same_but_for(stored, outputs, {maker, group})) continue;
      auto joined = scheduled(nodes, stored[place], convolution_);
      if (!joined || joined->seconds >= seconds) return std::nullopt;
      made.groups[place] = std::move(joined->group);
      return made;
    }
    return std::nullopt;
  }

  // Does the group stand behind those that store what it reads, and before those that read what it stores?
  bool is_in_order(const std::vector<GroupSchedule>& groups, const std::vector<std::vector<ValueId>>& stored,
                   size_t place) const {
    const auto reads_of = [&](size_t reader, size_t maker) {
      const std::vector<NodeId>& nodes = groups[reader].nodes;
      return std::any_of(stored[maker].begin(), stored[maker].end(), [&](ValueId value) {
        return !std::binary_search(nodes.begin(), nodes.end(), facts_.graph.values[value].producer) &&
               std::any_of(facts_.readers[value].begin(), facts_.readers[value].end(),
                           [&](NodeId node) { return std::binary_search(nodes.begin(), nodes.end(), node); });
      });
    };
    for (size_t group = 0; group < groups.size(); ++group)
      if ((group < place && reads_of(group, place)) || (group > place && reads_of(place, group))) return false;
    return true;
  }

  static bool same_but_for(const std::vector<std::vector<ValueId>>& some,
                           const std::vector<std::vector<ValueId>>& others, std::initializer_list<size_t> groups) {
    for (size_t group = 0; group < some.size(); ++group)
      if (some[group] != others[group] && std::find(groups.begin(), groups.end(), group) == groups.end()) return false;
    return true;
  }

  void join_attention(size_t group) {
    const Node& node = facts_.graph.nodes[schedule_.groups[group].nodes[0]];
    if (plan::is_attention_operator(node)) {
      const double now = library_seconds_of_attention(node);
      if (node.results.size() == 1) join(group, node.results[0], now, attention_);
      return;
    }
    const auto values = plan::product_of(facts_, schedule_.groups[group].nodes[0]);
    if (!values) return;
    const ValueId weights = values->left.root;
    const NodeId maker = facts_.graph.values[weights].producer;
    if (maker == kNoNode) return;
    for (size_t middle = 0; middle < group; ++middle) {
      if (!holds(middle, maker)) continue;
      const GroupSchedule& between = schedule_.groups[middle];
      if (between.scheduler == plan::kPointwise || plan::softmax_before(facts_, between.nodes, weights) != kNoNode)
        join_attention(group, *values, middle);
    }
  }

  // `middle`: the group of the softmax, which has to be of nothing else, or a pointwise one that makes what values are
  // weighed with.
  void join_attention(size_t group, const plan::Product& values, size_t middle) {
    const auto outputs = outputs_of(schedule_.groups);
    if (outputs[middle] != std::vector<ValueId>{values.left.root} || only_reader(values.left.root) != group) return;
    for (size_t first = 0; first < middle; ++first) {
      if (!is_library_call(first)) continue;
      const auto scores = plan::product_of(facts_, schedule_.groups[first].nodes[0]);
      if (!scores || only_reader(scores->result) != middle) continue;
      double now = library_seconds(*scores) + library_seconds(values) +
                   seconds_of(schedule_.groups[middle], outputs[middle]);
      if (schedule_.groups[middle].scheduler == plan::kPointwise)
        now = std::min(now, seconds_as_contractions({first, middle}, group, library_seconds(values)));
      const std::vector<size_t> groups = {first, middle, group};
      if (with_reader(groups, values.result, now, attention_) || replace(groups, now, attention_)) return;
    }
  }

  // Of two products, the first with what follows it, that are a kernel of ours each, the second if that is faster.
  double seconds_as_contractions(const std::vector<size_t>& first, size_t second, double library_seconds) const {
    const auto one = joined(first, contraction_), other = joined({second}, contraction_);
    if (!one) return std::numeric_limits<double>::infinity();
    return one->seconds + (other ? std::min(other->seconds, library_seconds) : library_seconds);
  }

  plan::GraphFacts facts_;
  Schedule schedule_;
  const DeviceDescription& device_;
  const LibraryRates& rates_;
  // Of the device's target; nullptr where it has none.
  const plan::Scheduler* const contraction_ = plan::find_scheduler(plan::kContractionScheduler.name, device_);
  const plan::Scheduler* const attention_ = plan::find_scheduler(plan::kAttentionScheduler.name, device_);
  const plan::Scheduler* const convolution_ = plan::find_scheduler(plan::kConvolutionScheduler.name, device_);
  const plan::Scheduler* const recurrence_ = plan::find_scheduler(plan::kRecurrenceScheduler.name, device_);
};

}  // namespace

Schedule join_products(const Graph& graph, Schedule schedule, const DeviceDescription& device,
                       const LibraryRates& rates) {
  return ProductJoiner(graph, std::move(schedule), device, rates).run();
}

}  // namespace kw
