#include "plan/product_lowering.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "plan/axes.hpp"
#include "plan/group_names.hpp"
#include "plan/group_builder.hpp"
#include "plan/embedding.hpp"
#include "plan/product_conversion.hpp"
#include "plan/split.hpp"
#include "support/error.hpp"

namespace kw::plan {
namespace {

const Access* load_of(const GroupKernel& kernel, int buffer) {
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr) && expr.access.buffer == buffer) return &expr.access;
  return nullptr;
}

// What is stored as it is: the product alone.
LoweredGroup plain(const GraphFacts& facts, const Product& product) {
  LoweredGroup group;
  GroupKernel& kernel = group.kernel;
  const TensorType& type = facts.graph.type(product.result);
  kernel.symbols = {axis_of("element", type.elements())};
  kernel.parallel = 1;
  const std::string name = facts.graph.values[product.result].name;
  kernel.buffers = {row_of_elements(name, type.dtype, type.elements(), kernel::BufferRole::kInput),
                    row_of_elements(name + "_out", type.dtype, type.elements(), kernel::BufferRole::kOutput)};
  group.buffers = {product.result, product.result};
  Expr load;
  load.kind = ExprKind::kLoad;
  load.dtype = type.dtype;
  load.access = element_at(0, kernel::symbol_index(0));
  kernel.exprs = {load};
  kernel.stores = {{element_at(1, kernel::symbol_index(0)), 0}};
  return group;
}

// The product is read by others, too.
void store_product(LoweredGroup& group, const GraphFacts& facts) {
  const int read = product_buffer(group);
  kernel::Buffer buffer = group.kernel.buffers[read];
  buffer.name = facts.graph.values[group.product->result].name + "_out";
  buffer.role = kernel::BufferRole::kOutput;
  const auto load = std::find_if(group.kernel.exprs.begin(), group.kernel.exprs.end(),
                                 [&](const Expr& expr) { return is_load(expr) && expr.access.buffer == read; });
  group.kernel.stores.push_back({element_at(static_cast<int>(group.kernel.buffers.size()), index_of(load->access)),
                                 static_cast<ExprId>(load - group.kernel.exprs.begin())});
  group.kernel.buffers.push_back(std::move(buffer));
  group.buffers.push_back(group.product->result);
}

bool reads_in_one_order(const GroupKernel& kernel, int buffer) {
  const Access& first = *load_of(kernel, buffer);
  return std::all_of(kernel.exprs.begin(), kernel.exprs.end(), [&](const Expr& expr) {
    return !is_load(expr) || expr.access.buffer != buffer || index_of(expr.access) == index_of(first);
  });
}

bool uses_serial_axis(const GroupKernel& kernel, const Access& access) {
  const std::vector<bool> uses = axes_of_access(kernel, access);
  return std::any_of(uses.begin() + kernel.parallel, uses.end(), [](bool one) { return one; });
}

// Are its folds means and squared deviations, which nothing that is stored along their axes needs?
bool folds_statistics_alone(const GroupKernel& kernel) {
  std::vector<bool> folded(kernel.exprs.size());  // is a fold, or made of one
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    for (ExprId part : made_of(kernel, expr)) folded[id] = folded[id] || folded[part];
    if (expr.kind != ExprKind::kReduce) continue;
    if (folded[id] || expr.reduce != ReduceOp::kMoments) return false;
    folded[id] = true;
  }
  return std::all_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return folded[store.value] != uses_serial_axis(kernel, store.access); });
}

// Means and squared deviations of the product's rows over all else, or of neighbouring rows of one sample, without the
// group that folds them. nullopt where it folds anything else.
std::optional<FoldedStatistics> statistics_folded_by(const LoweredGroup& group) {
  const GroupKernel& kernel = group.kernel;
  const Product& product = *group.product;
  if (!folds_statistics_alone(kernel)) return std::nullopt;
  const std::vector<int64_t> distances = distances_in_product(group);
  const Shape strides = product.result_strides();
  const int64_t row = strides[product.batch.size()];
  std::vector<size_t> parallel;
  for (int axis = 0; axis < kernel.parallel; ++axis)
    if (extent_of(kernel, axis) > 1) parallel.push_back(static_cast<size_t>(axis));
  const int64_t folds = std::accumulate(parallel.begin(), parallel.end(), int64_t{1}, [&](int64_t count, size_t axis) {
    return count * extent_of(kernel.symbols[axis]);
  });
  const bool is_one_axis = parallel.size() == 1;
  if (folds == product.rows && (folds == 1 || (is_one_axis && distances[parallel[0]] == row)))
    return FoldedStatistics{};
  // Samples and their groups in the order of memory, each of them without a gap.
  const int64_t samples = product.batches(), groups = folds / samples;
  const bool is_dense = row == product.columns && (samples == 1 || strides[0] == product.rows * row);
  if (product.batch.size() > 1 || !is_dense || folds % samples != 0 || product.rows % groups != 0) return std::nullopt;
  int64_t distance = product.rows / groups * row;
  for (auto axis = parallel.rbegin(); axis != parallel.rend(); distance *= extent_of(kernel.symbols[*axis++]))
    if (distances[*axis] != distance) return std::nullopt;
  return FoldedStatistics{.group = nullptr, .groups_of_sample = groups};
}

// The kernel becomes a pointwise one, which stores what its folds take, and `statistics` the rest of it.
void take_folds_out(LoweredGroup& group, FoldedStatistics folded) {
  LoweredGroup statistics = group;
  GroupKernel& kernel = group.kernel;
  const auto runs_along = [&](const Store& store) { return uses_serial_axis(kernel, store.access); };
  std::erase_if(statistics.kernel.stores, runs_along);
  kernel::drop_unused(statistics.kernel);
  const Index place = index_of(*load_of(kernel, product_buffer(group)));
  std::vector<Store> stores;
  std::copy_if(kernel.stores.begin(), kernel.stores.end(), std::back_inserter(stores), runs_along);
  int folds = 0;
  for (ExprId id = 0; id < static_cast<ExprId>(kernel.exprs.size()); ++id) {
    const Expr& expr = kernel.exprs[id];
    if (expr.kind != ExprKind::kReduce || siblings_of(kernel, id).front() != id) continue;
    stores.push_back({element_at(static_cast<int>(kernel.buffers.size()), place), expr.operands[0]});
    kernel.buffers.push_back(row_of_elements("folded_" + std::to_string(folds), DType::f32,
                                             kw::product(group.product->result_shape()), kernel::BufferRole::kOutput));
    group.buffers.push_back(-1 - folds++);
  }
  kernel.stores = std::move(stores);
  kernel.parallel = axis_count(kernel);
  kernel::drop_unused(kernel);
  folded.group = std::make_shared<const LoweredGroup>(std::move(statistics));
  group.statistics = std::move(folded);
}

}  // namespace

bool folds(const GroupKernel& kernel) { return kernel.parallel < axis_count(kernel); }

bool covers(const GroupKernel& kernel, const Access& access, int64_t elements) {
  if (index_of(access).constant != 0 || access.mask != kNoExpr) return false;
  std::vector<size_t> order(kernel.symbols.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int64_t> distances(kernel.symbols.size(), 0);
  for (const kernel::Digit& digit : kernel::digits_of(index_of(access))) {
    if (!digit.is_plain()) return false;
    distances[digit.axis] = digit.coefficient;
  }
  std::erase_if(order, [&](size_t axis) { return extent_of(kernel.symbols[axis]) == 1; });
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  int64_t next = 1;
  for (size_t axis : order) {
    if (distances[axis] != next) return false;
    next *= extent_of(kernel.symbols[axis]);
  }
  return next == elements;
}

int product_buffer(const LoweredGroup& group) {
  for (size_t buffer = 0; buffer < group.buffers.size(); ++buffer)
    if (group.buffers[buffer] == group.product->result &&
        group.kernel.buffers[buffer].role == kernel::BufferRole::kInput)
      return static_cast<int>(buffer);
  return -1;
}

std::vector<int64_t> distances_in_product(const LoweredGroup& group) {
  std::vector<int64_t> distances(group.kernel.symbols.size(), 1);
  const Access* access = load_of(group.kernel, product_buffer(group));
  KW_ASSERT(access, "a group with a product does not read it");
  for (const kernel::Digit& digit : kernel::digits_of(index_of(*access))) distances[digit.axis] = digit.coefficient;
  return distances;
}

std::optional<size_t> folded_dimension(const LoweredGroup& group) {
  const GroupKernel& kernel = group.kernel;
  if (axis_count(kernel) != kernel.parallel + 1) return std::nullopt;
  const int64_t distance = distances_in_product(group).back(), extent = extent_of(kernel, kernel.parallel);
  const Shape shape = group.product->result_shape(), strides = group.product->result_strides();
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] == extent && strides[dim] == distance) return dim;
  return std::nullopt;
}

int64_t folded_columns(const LoweredGroup& group) {
  constexpr int64_t kMost = 16;
  if (!folds(group.kernel) || group.convolution || group.attention || folded_dimension(group)) return 1;
  const auto windows = folded_windows(group, {group.product->columns});
  const int64_t columns = windows ? windows->front() : 1;
  return columns <= kMost && std::has_single_bit(static_cast<uint64_t>(columns)) ? columns : 1;
}

bool can_have_whole_rows(const LoweredGroup& group) {
  const Product& product = *group.product;
  return folded_dimension(group) == product.batch.size() + 1 && product.columns <= kMostFolded;
}

bool can_fold_in_parts(const LoweredGroup& group) {
  const GroupKernel& kernel = group.kernel;
  const auto folded = folded_dimension(group);
  if (!folded || *folded < group.product->batch.size() || !reductions_are_independent(kernel)) return false;
  const std::vector<std::vector<bool>> varies = kernel::dependences(kernel);
  std::vector<bool> needs_fold(kernel.exprs.size());
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    const Expr& expr = kernel.exprs[id];
    needs_fold[id] = expr.kind == ExprKind::kReduce;
    for (ExprId part : made_of(kernel, expr)) needs_fold[id] = needs_fold[id] || needs_fold[part];
    if (needs_fold[id] && varies[id][static_cast<size_t>(kernel.parallel)]) return false;
    if (expr.kind != ExprKind::kReduce) continue;
    if (expr.reduce == ReduceOp::kMoments || !varies[expr.operands[0]][static_cast<size_t>(kernel.parallel)])
      return false;
  }
  return std::none_of(kernel.stores.begin(), kernel.stores.end(), [&](const Store& store) {
    return needs_fold[store.value] && uses_serial_axis(kernel, store.access);
  });
}

std::optional<std::vector<int64_t>> folded_windows(const LoweredGroup& group, const Shape& lengths) {
  const GroupKernel& kernel = group.kernel;
  const Product& product = *group.product;
  if (!folds(kernel) || product.batch.size() > 1 || kw::product(lengths) != product.columns) return std::nullopt;
  const Access& load = *load_of(kernel, product_buffer(group));
  const std::vector<kernel::Digit> digits_read = kernel::digits_of(index_of(load));
  const bool is_plain = index_of(load).constant == 0 && load.mask == kNoExpr &&
                        std::all_of(digits_read.begin(), digits_read.end(),
                                    [](const kernel::Digit& digit) { return digit.is_plain(); });
  if (!is_plain || digits_read.size() != kernel.symbols.size()) return std::nullopt;
  const std::vector<int64_t> distances = distances_in_product(group);
  const Shape strides = product.result_strides();
  std::vector<int64_t> windows(lengths.size(), 1), of_dims(lengths.size(), strides.back());
  for (size_t dim = lengths.size() - 1; dim-- > 0;) of_dims[dim] = of_dims[dim + 1] * lengths[dim + 1];
  std::vector<size_t> parallel;
  for (size_t axis = 0; axis < kernel.symbols.size(); ++axis) {
    if (!is_serial(kernel, static_cast<int>(axis))) {
      parallel.push_back(axis);
      continue;
    }
    const auto dim = std::find(of_dims.rbegin(), of_dims.rend(), distances[axis]);
    if (dim == of_dims.rend() || windows[of_dims.rend() - dim - 1] > 1) return std::nullopt;
    windows[of_dims.rend() - dim - 1] = extent_of(kernel.symbols[axis]);
  }
  // What the other axes count, the closest first: places along each dimension, rows, samples. An axis may be several.
  struct Digit {
    int64_t distance, extent;
  };
  std::vector<Digit> digits;
  for (size_t dim = lengths.size(); dim-- > 0;)
    digits.push_back({of_dims[dim] * windows[dim], lengths[dim] / windows[dim]});
  digits.push_back({strides[product.batch.size()], product.rows});
  if (!product.batch.empty()) digits.push_back({strides[0], product.batch[0]});
  std::erase_if(digits, [](const Digit& digit) { return digit.extent == 1; });
  std::erase_if(parallel, [&](size_t axis) { return extent_of(kernel.symbols[axis]) == 1; });
  std::sort(parallel.begin(), parallel.end(), [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  auto digit = digits.begin();
  for (size_t axis : parallel) {
    int64_t points = 1;
    for (; points < extent_of(kernel.symbols[axis]) && digit != digits.end(); points *= digit++->extent)
      if (digit->distance != distances[axis] * points) return std::nullopt;
    if (points != extent_of(kernel.symbols[axis])) return std::nullopt;
  }
  return digit == digits.end() ? std::optional(windows) : std::nullopt;
}

std::optional<LoweredGroup> lower_after_product(const GraphFacts& facts, std::span<const NodeId> nodes,
                                                const Product& product, const std::vector<ValueId>& outputs,
                                                const Shape& lengths, bool statistics) {
  std::vector<ValueId> after = outputs;
  const bool is_stored = std::erase(after, product.result) > 0;
  if (nodes.empty() != after.empty()) return std::nullopt;
  std::optional<LoweredGroup> group = nodes.empty() ? plain(facts, product) : lower_group(facts, nodes, after);
  if (!group || group->product) return std::nullopt;
  group->product = product;
  GroupKernel& kernel = group->kernel;
  const int buffer = product_buffer(*group);
  if (buffer < 0 || !can_follow_product(kernel)) return std::nullopt;
  coalesce(kernel);
  const int64_t elements = facts.graph.type(product.result).elements();
  const bool has_windows = !lengths.empty() && !is_stored && reads_in_one_order(kernel, buffer) &&
                           folded_windows(*group, lengths);
  for (const Expr& expr : kernel.exprs)
    if (is_load(expr) && expr.access.buffer == buffer && !has_windows && !covers(kernel, expr.access, elements))
      return std::nullopt;
  if (auto folded = folds(kernel) && statistics ? statistics_folded_by(*group) : std::nullopt)
    take_folds_out(*group, *std::move(folded));
  else if (folds(kernel) && !has_windows && !folded_dimension(*group)) return std::nullopt;
  if (is_stored && !nodes.empty()) store_product(*group, facts);
  return group;
}

bool makes_operand(const GraphFacts& facts, std::span<const NodeId> nodes, NodeId node, ValueId but_for) {
  bool makes = false;
  for_each_operand(facts.graph.nodes[node], [&](ValueId operand) {
    const ValueId root = facts.roots[operand];
    makes = makes ||
            (root != but_for && std::binary_search(nodes.begin(), nodes.end(), facts.graph.values[root].producer));
  });
  return makes;
}

std::optional<LoweredGroup> lower_with(const GraphFacts& facts, std::span<const NodeId> nodes, const Product& product,
                                       const std::vector<ValueId>& outputs, const Shape& lengths, bool statistics) {
  std::vector<NodeId> rest(nodes.begin(), nodes.end());
  std::erase(rest, product.node);
  std::optional<LoweredGroup> group = lower_after_product(facts, rest, product, outputs, lengths, statistics);
  if (!group) return std::nullopt;
  group->kernel.name = kernel_name(facts.graph, nodes);
  group->kernel.doc = kernel_doc(facts.graph, nodes, outputs);
  return group;
}

std::optional<LoweredGroup> lower_with_product(const GraphFacts& facts, std::span<const NodeId> nodes, NodeId node,
                                               const std::vector<ValueId>& outputs) {
  std::optional<Product> product = product_of(facts, node);
  if (!product) return std::nullopt;
  std::vector<NodeId> rest(nodes.begin(), nodes.end());
  ValueId converted = kNoValue;
  if (auto made = with_conversion(facts, nodes, *product)) {
    converted = product->right.root;
    if (std::find(outputs.begin(), outputs.end(), converted) != outputs.end()) return std::nullopt;
    std::erase(rest, made->conversion);
    product = std::move(made->product);
  }
  if (makes_operand(facts, nodes, node, converted)) return std::nullopt;
  std::optional<LoweredGroup> group = lower_with(facts, rest, *product, outputs, {product->columns}, false);
  if (!group) return std::nullopt;
  if (folded_dimension(*group) && !can_have_whole_rows(*group) && !can_fold_in_parts(*group)) return std::nullopt;
  if (folds(group->kernel) && !folded_dimension(*group) && folded_columns(*group) == 1) return std::nullopt;
  return group;
}

}  // namespace kw::plan
