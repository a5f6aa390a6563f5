#include "passes/statistics.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/op_registry.hpp"
#include "passes/maths.hpp"

namespace kw {
namespace {

bool is_convolution(std::string_view base) {
  return base == "conv1d" || base == "conv2d" || base == "conv3d" || base == "conv_transpose1d" ||
         base == "conv_transpose2d" || base == "conv_transpose3d";
}

bool passes_elements_on(const Node& node) {
  return class_of(node.op) == OpClass::kPointwise || class_of(node.op) == OpClass::kView;
}

bool is_training_norm(const Node& node) {
  const bool returns_running = node.results.size() == 5;
  return rule_of(node) == OpRule::kBatchNorm && node.boolean("training", true) &&
         (returns_running || node.value("running_mean") == kNoValue);
}

// Of each sample by itself, with its own statistics.
bool is_sample_norm(const Node& node) {
  return rule_of(node) == OpRule::kGroupNorm ||
         (rule_of(node) == OpRule::kInstanceNorm && node.value("running_mean") == kNoValue &&
          node.value("running_var") == kNoValue && node.boolean("use_input_stats", true));
}

// [value] Is it a convolution's result, or made of one element by element?
std::vector<bool> after_convolutions(const Graph& graph) {
  std::vector<bool> after(graph.values.size());
  for (const Node& node : graph.nodes) {
    bool reaches = is_convolution(base_name(node.op));
    if (passes_elements_on(node)) for_each_operand(node, [&](ValueId operand) { reaches = reaches || after[operand]; });
    for (ValueId result : node.results)
      if (result != kNoValue) after[result] = reaches;
  }
  return after;
}

// [value] Is it a convolution's image, or is one made of it element by element?
std::vector<bool> before_convolutions(const Graph& graph) {
  std::vector<bool> before(graph.values.size());
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (is_convolution(base_name(node->op)) && node->value("input") != kNoValue) before[node->value("input")] = true;
    if (!passes_elements_on(*node) || node->results.empty() || node->results[0] == kNoValue) continue;
    if (before[node->results[0]]) for_each_operand(*node, [&](ValueId operand) { before[operand] = true; });
  }
  return before;
}

// Is it one row of elements, long channels one behind the other?
bool has_long_channels(const TensorType& type) {
  constexpr int64_t kLong = 256;
  return type.is_contiguous() && type.rank() > 2 && type.elements() > 0 &&
         type.elements() / (type.shape[0] * type.shape[1]) >= kLong;
}

struct Statistics {
  ValueId mean, variance;
};

// Of each place along the second dimension.
Statistics statistics_of_channels(Rewriter& rewriter, ValueId x) {
  const TensorType type = rewriter.type(x), of_channel = {DType::f32, {type.shape[1]}, {1}, 0, type.device};
  IntList dims = {0};
  for (int64_t dim = 2; dim < type.rank(); ++dim) dims.push_back(dim);
  const std::vector<ValueId> found = rewriter.emit_all(
      "aten.var_mean.correction", {{"self", ValueRef{x}}, {"dim", dims}, {"correction", int64_t{0}}},
      {{"variance", of_channel}, {"mean", of_channel}});
  return {.mean = found[1], .variance = found[0]};
}

// A norm of a whole batch, a sample's group of channels or one channel of it, as statistics and what they normalise.
class Expansion {
 public:
  Expansion(Rewriter& rewriter, const Node& node)
      : rewriter_(rewriter),
        node_(node),
        of_samples_(is_sample_norm(node)),
        x_(node.value("input")),
        type_(rewriter.type(x_)) {}

  bool is_taken() const {
    const bool dtype = type_.dtype == DType::f32 || type_.dtype == DType::f16 || type_.dtype == DType::bf16;
    if (!dtype || type_.rank() < 2 || type_.elements() == 0) return false;
    if (!of_samples_) return count(type_.shape[1]) > 1;
    return type_.is_contiguous() && type_.rank() > 2 && type_.shape[1] % groups() == 0 && count(sample_groups()) > 1;
  }

  void run() {
    if (of_samples_) normalise_samples();
    else normalise_batch();
  }

  // The same from statistics of each sample's channels. Returns the means of the normalised channels, with every
  // dimension but the first two of length one.
  ValueId run_from_channels() {
    const int64_t samples = type_.shape[0], channels = type_.shape[1];
    const Term x = Term(rewriter_, wide_x());
    const Statistics each = statistics_of(view(x, {1, samples * channels, count(samples * channels)}).id());
    const Shape shape = of_samples_ ? Shape{samples * groups(), channels / groups()} : Shape{samples, channels};
    channels_ = Channels{view(Term(rewriter_, each.mean), shape), view(Term(rewriter_, each.variance), shape)};
    run();
    const Term deviation = channels_->mean - beside_channels(found_->mean);
    Term pooled = deviation * (beside_channels(found_->variance) + node_.number("eps", 1e-5)).apply("rsqrt");
    Shape kept = type_.shape;
    std::fill(kept.begin() + 2, kept.end(), 1);
    pooled = scaled_by_channel(view(pooled, kept));
    return cast(pooled.id(), type_.dtype);
  }

 private:
  struct Channels {
    Term mean, variance;  // [what is folded apart, what is folded together] or the other way round, of batches
  };

  // From statistics of channels with as many elements each: the mean of variances and the variance of means.
  Statistics together() {
    const IntList along = {of_samples_ ? 1 : 0};
    const ValueId mean_of_all = mean(channels_->mean, along).id();
    const Term deviation = channels_->mean - beside_channels(mean_of_all);
    const Term variance = mean(channels_->variance + deviation * deviation, along);
    return {.mean = mean_of_all, .variance = variance.id()};
  }

  // What was folded of `channels_`, in a shape that broadcasts along them.
  Term beside_channels(ValueId folded) {
    const Term term(rewriter_, folded);
    return of_samples_ ? view(term, {term.type().shape[0], 1}) : term;
  }

  Statistics statistics_of(ValueId x) { return statistics_of_channels(rewriter_, x); }

  ValueId normalised(ValueId x, const Statistics& statistics, Argument weight, Argument bias, const TensorType& type) {
    return rewriter_.emit("aten.batch_norm.default",
                          {{"input", ValueRef{x}},
                           {"weight", std::move(weight)},
                           {"bias", std::move(bias)},
                           {"running_mean", ValueRef{statistics.mean}},
                           {"running_var", ValueRef{statistics.variance}},
                           {"training", false},
                           {"momentum", 0.0},
                           {"eps", node_.number("eps", 1e-5)},
                           {"cudnn_enabled", true}},
                          type, "normalised");
  }

  ValueId wide_x() {
    if (type_.dtype == DType::f32) return x_;
    TensorType wide = type_;
    wide.dtype = DType::f32;
    wide.offset = 0;
    if (!type_.is_dense()) wide.strides = contiguous_strides(wide.shape);
    return rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{x_}}, {"dtype", DType::f32}}, wide, "wide");
  }

  void normalise_batch() {
    const Statistics statistics = channels_ ? together() : statistics_of(wide_x());
    found_ = statistics;
    if (node_.results.size() == 5) {
      const auto samples = static_cast<double>(count(type_.shape[1]));
      if (node_.results[3] != kNoValue) update(node_.results[3], node_.value("running_mean"), statistics.mean);
      if (node_.results[4] != kNoValue)
        update(node_.results[4], node_.value("running_var"),
               (Term(rewriter_, statistics.variance) * (samples / (samples - 1.0))).id());
    }
    const auto given = [&](const char* name) {
      return node_.value(name) == kNoValue ? Argument(None{}) : Argument(ValueRef{node_.value(name)});
    };
    const ValueId result = normalised(x_, statistics, given("weight"), given("bias"), rewriter_.type(node_.results[0]));
    rewriter_.adopt(node_.results[0], result, NumericTag::kReassociates);
  }

  // As a norm of one batch whose channels are the samples' groups; weights and biases are of the samples' own channels.
  void normalise_samples() {
    const Shape of_groups = {1, sample_groups(), count(sample_groups())};
    const Term x = Term(rewriter_, wide_x()), grouped = view(x, of_groups);
    const Statistics statistics = channels_ ? together() : statistics_of(grouped.id());
    found_ = statistics;
    Term value = view(
        Term(rewriter_, normalised(grouped.id(), statistics, None{}, None{}, rewriter_.type(grouped.id()))),
        x.type().shape);
    value = scaled_by_channel(value);
    rewriter_.adopt(node_.results[0], cast(value.id(), type_.dtype), NumericTag::kReassociates);
  }

  Term scaled_by_channel(Term value) {
    Shape of_channels(type_.rank() - 1, 1);
    of_channels[0] = type_.shape[1];
    const auto along_channels = [&](const char* name) {
      return view(Term(rewriter_, cast(node_.value(name), DType::f32)), of_channels);
    };
    if (node_.value("weight") != kNoValue) value = value * along_channels("weight");
    if (node_.value("bias") != kNoValue) value = value + along_channels("bias");
    return value;
  }

  int64_t groups() const {  // of a sample's channels
    if (rule_of(node_) == OpRule::kInstanceNorm) return type_.shape[1];
    return std::max<int64_t>(node_.integer("num_groups", node_.integer("group", 1)), 1);
  }
  int64_t sample_groups() const { return type_.shape[0] * groups(); }
  int64_t count(int64_t channels) const { return type_.elements() / channels; }  // elements of each

  ValueId cast(ValueId value, DType to) {
    if (rewriter_.type(value).dtype == to) return value;
    return rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{value}}, {"dtype", to}});
  }

  // A running statistic moves towards the batch's by the share `momentum`.
  void update(ValueId result, ValueId running, ValueId fresh) {
    const DType own = rewriter_.type(result).dtype, wide = rewriter_.type(fresh).dtype;
    const double momentum = node_.number("momentum", 0.1);
    const Term kept = Term(rewriter_, cast(running, wide)) * (1.0 - momentum),
               moved = Term(rewriter_, fresh) * momentum;
    const ValueId updated = cast((kept + moved).id(), own);
    rewriter_.adopt(result, updated, NumericTag::kReassociates);
  }

  Rewriter& rewriter_;
  const Node& node_;
  const bool of_samples_;
  const ValueId x_;
  const TensorType type_;  // a copy: those of the graph move when it grows
  std::optional<Channels> channels_;
  std::optional<Statistics> found_;
};

// Over every position of a sample's channels, and perhaps over channels and samples: a mean over these dimensions.
std::optional<IntList> averaged_positions(const Graph& graph, const Node& node) {
  if (node.results.size() != 1 || node.value("self") == kNoValue) return std::nullopt;
  const TensorType& type = graph.type(node.value("self"));
  if (type.rank() < 3 || graph.type(node.results[0]).dtype != type.dtype) return std::nullopt;
  IntList dims;
  if (rule_of(node) == OpRule::kMean) {
    for (int64_t dim : node.integers("dim")) dims.push_back(dim < 0 ? dim + type.rank() : dim);
    std::sort(dims.begin(), dims.end());
  } else if (rule_of(node) == OpRule::kAdaptiveAverage && graph.type(node.results[0]).rank() == type.rank()) {
    const IntList size = node.integers("output_size");
    if (!std::all_of(size.begin(), size.end(), [](int64_t length) { return length == 1; })) return std::nullopt;
    for (int64_t dim = 2; dim < type.rank(); ++dim) dims.push_back(dim);
  }
  for (int64_t dim = 2; dim < type.rank(); ++dim)
    if (!std::binary_search(dims.begin(), dims.end(), dim)) return std::nullopt;
  return dims;
}

class StatisticsPass {
 public:
  explicit StatisticsPass(Graph& graph)
      : after_(after_convolutions(graph)),
        before_(before_convolutions(graph)),
        is_averaged_(graph.values.size()),
        is_read_(graph.is_output()),
        rewriter_(graph) {
    const auto users = graph.users();
    for (size_t id = 0; id < users.size(); ++id)
      if (!users[id].empty()) is_read_[id] = true;
    for (const Node& node : graph.nodes)
      if (averaged_positions(graph, node)) is_averaged_[node.value("self")] = true;
  }

  RewriteCounts run() {
    return rewriter_.run([this](Node& node) { return takes_average(node) || takes_norm(node); });
  }

 private:
  // An average of a norm's channels, from those that the norm's statistics gave.
  bool takes_average(const Node& node) {
    const auto from = pooled_.find(node.value("self"));
    if (from == pooled_.end()) return false;
    std::optional<IntList> dims = averaged_positions(rewriter_.graph(), node);
    if (!dims) return false;
    std::erase_if(*dims, [](int64_t dim) { return dim > 1; });
    Term value(rewriter_, from->second);
    if (!dims->empty()) value = mean(value, *dims);
    rewriter_.adopt(node.results[0], view(value, rewriter_.type(node.results[0]).shape).id(),
                    NumericTag::kReassociates);
    return true;
  }

  bool takes_norm(const Node& node) {
    const bool of_samples = is_sample_norm(node);
    if (!(of_samples || is_training_norm(node)) || node.results.empty() || node.results[0] == kNoValue) return false;
    const bool is_after = after_[node.value("input")];
    const ValueId result = node.results[0];
    if (!is_after && (of_samples || !before_[result])) return false;
    if (reads_statistics(node)) return false;
    Expansion expansion(rewriter_, node);
    if (!expansion.is_taken()) return false;
    // A convolution has a block in one sample where it has many places: it can make statistics of its channels.
    if (is_after && has_long_channels(rewriter_.type(node.value("input"))) && is_averaged_[result]) {
      pooled_[result] = expansion.run_from_channels();
    } else {
      expansion.run();
    }
    return true;
  }

  // Does anybody ask for the statistics themselves, the norm's second and third results?
  bool reads_statistics(const Node& node) const {
    for (size_t place = 1; place < std::min<size_t>(node.results.size(), 3); ++place)
      if (const ValueId id = node.results[place]; id != kNoValue && is_read_[id]) return true;
    return false;
  }

  const std::vector<bool> after_, before_;   // [value] convolutions, element by element
  std::vector<bool> is_averaged_, is_read_;  // [value]
  std::map<ValueId, ValueId> pooled_;        // of norms whose channels are averaged: these averages
  Rewriter rewriter_;
};

// [value] Is it made of a convolution's result and of what is given, element by element? What a reduction gave, a
// norm's statistics, would have to wait for the whole result.
std::vector<bool> made_of_convolutions(const Graph& graph) {
  std::vector<bool> made(graph.values.size()), waits(graph.values.size());
  for (const Node& node : graph.nodes) {
    const bool convolves = is_convolution(base_name(node.op));
    bool reaches = convolves, late = !convolves && !passes_elements_on(node) && class_of(node.op) != OpClass::kFactory;
    if (!convolves && !late)
      for_each_operand(node, [&](ValueId operand) {
        reaches = reaches || made[operand];
        late = late || waits[operand];
      });
    for (ValueId result : node.results) {
      if (result == kNoValue) continue;
      made[result] = reaches && !late;
      waits[result] = late;
    }
  }
  return made;
}

class PositionMeans {
 public:
  explicit PositionMeans(Graph& graph) : made_of_convolutions_(made_of_convolutions(graph)), rewriter_(graph) {}

  RewriteCounts run() {
    return rewriter_.run([this](Node& node) { return takes(node); });
  }

 private:
  bool takes(const Node& node) {
    const ValueId x = node.value("self");
    if (x == kNoValue || !made_of_convolutions_[x]) return false;
    std::optional<IntList> dims = averaged_positions(rewriter_.graph(), node);
    const TensorType type = rewriter_.type(x);
    const bool dtype = type.dtype == DType::f32 || type.dtype == DType::f16 || type.dtype == DType::bf16;
    if (!dims || !dtype || !has_long_channels(type)) return false;
    const int64_t channels = type.shape[0] * type.shape[1];
    const Term each = view(as(x, DType::f32), {1, channels, type.elements() / channels});
    Shape kept = type.shape;
    std::fill(kept.begin() + 2, kept.end(), 1);
    Term value = view(Term(rewriter_, statistics_of_channels(rewriter_, each.id()).mean), kept);
    std::erase_if(*dims, [](int64_t dim) { return dim > 1; });
    if (!dims->empty()) value = mean(value, *dims);
    const Shape shape = rewriter_.type(node.results[0]).shape;
    rewriter_.adopt(node.results[0], view(as(value.id(), type.dtype), shape).id(), NumericTag::kReassociates);
    return true;
  }

  Term as(ValueId value, DType to) {
    if (rewriter_.type(value).dtype == to) return Term(rewriter_, value);
    return Term(rewriter_, rewriter_.emit("aten._to_copy.default", {{"self", ValueRef{value}}, {"dtype", to}}));
  }

  const std::vector<bool> made_of_convolutions_;  // [value]
  Rewriter rewriter_;
};

}  // namespace

RewriteCounts statistics(Graph& graph, const GraphForms& forms) {
  return forms.convolutions_make_statistics ? StatisticsPass(graph).run() : RewriteCounts{};
}

RewriteCounts position_means(Graph& graph, const GraphForms& forms) {
  return forms.convolutions_make_statistics ? PositionMeans(graph).run() : RewriteCounts{};
}

}  // namespace kw
