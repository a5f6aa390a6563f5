#include "plan/convolution.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "plan/rounded_values.hpp"

namespace kw::plan {
namespace {

bool is_taken(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32; }

constexpr int64_t kLeastRows = 16;  // of a product of tiles

// One number for each of the dimensions, or one for all.
IntList each(const Node& node, const char* name, int64_t fallback, int64_t dims) {
  IntList list = node.integers(name, {fallback});
  if (list.size() == 1) list.resize(dims, list.front());
  return list;
}

// Do the elements of a sample lie side by side, in whatever order?
bool is_dense(const TensorType& type) {
  std::vector<size_t> order(type.shape.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::erase_if(order, [&](size_t dim) { return type.shape[dim] == 1; });
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return type.strides[a] < type.strides[b]; });
  int64_t next = 1;
  for (size_t dim : order) {
    if (type.strides[dim] != next) return false;
    next *= type.shape[dim];
  }
  return true;
}

// The stride of neighbouring positions of a result whose spatial dimensions can be walked as one.
std::optional<int64_t> position_stride(const TensorType& type) {
  int64_t stride = 0, next = 0;
  for (int64_t dim = type.rank() - 1; dim >= 2; --dim) {
    if (type.shape[dim] == 1) continue;
    if (next != 0 && type.strides[dim] != next) return std::nullopt;
    if (next == 0) stride = type.strides[dim];
    next = type.strides[dim] * type.shape[dim];
  }
  return next == 0 ? 1 : stride;
}

int64_t ceil_of(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

struct PhaseWindow {
  int64_t first = 0, last = 0;

  int64_t length() const { return last - first + 1; }
};

// Of a transposed convolution with stride. Output position o meets input position i with tap (o + padding − stride · i)
// / dilation: of o = stride · place + phase − crop those from place + first to place + last.
PhaseWindow phase_window(const ConvolutionDim& dim, int64_t padding, int64_t crop) {
  PhaseWindow window{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (int64_t phase = 0; phase < dim.phases; ++phase)
    for (int64_t tap = 0; tap < dim.kernel; ++tap) {
      const int64_t distance = phase + padding - crop - dim.tap_distance * tap;
      if (distance % dim.phases != 0) continue;
      window.first = std::min(window.first, distance / dim.phases);
      window.last = std::max(window.last, distance / dim.phases);
    }
  return window;
}

void set_window(ConvolutionDim& dim, int64_t padding, int64_t crop) {
  const PhaseWindow window = phase_window(dim, padding, crop);
  dim.crop = crop;
  dim.taps = window.length();
  dim.padding = -window.first;
  dim.first_tap = padding - crop - dim.phases * window.first;
  dim.places = ceil_of(dim.output + crop, dim.phases);
}

// The padding that PyTorch was given, of a transposed convolution with stride.
int64_t own_padding(const ConvolutionDim& dim) { return dim.first_tap + dim.crop - dim.phases * dim.padding; }

ConvolutionDim dim_of(bool transposed, int64_t input, int64_t output, int64_t kernel, int64_t stride, int64_t padding,
                      int64_t dilation) {
  ConvolutionDim dim{.input = input,
                     .output = output,
                     .kernel = kernel,
                     .taps = kernel,
                     .stride = stride,
                     .padding = padding,
                     .dilation = dilation,
                     .places = output};
  if (!transposed) return dim;
  dim.flipped = true;
  dim.stride = 1;
  if (stride == 1) {
    dim.padding = dilation * (kernel - 1) - padding;
    dim.first_tap = kernel - 1;
    return dim;
  }
  dim.phases = stride;
  dim.dilation = 1;
  dim.tap_distance = dilation;
  // What is cropped costs masks and stores that are not aligned.
  const bool is_shorter = phase_window(dim, padding, padding % stride).length() <
                          phase_window(dim, padding, 0).length();
  set_window(dim, padding, is_shorter ? padding % stride : 0);
  return dim;
}

}  // namespace

void drop_crop(ConvolutionDim& dim) { set_window(dim, own_padding(dim), 0); }

bool reaches_all(const ConvolutionDim& dim) {
  const int64_t padding = own_padding(dim);
  const auto meets = [&](int64_t input, int64_t tap) {
    const int64_t output = dim.phases * input + dim.tap_distance * tap - padding;
    return output >= 0 && output < dim.output;
  };
  std::vector<bool> inputs(dim.input), taps(dim.kernel);
  for (int64_t input = 0; input < dim.input; ++input)
    for (int64_t tap = 0; tap < dim.kernel; ++tap)
      if (meets(input, tap)) inputs[input] = taps[tap] = true;
  const auto holds = [](bool one) { return one; };
  return std::all_of(inputs.begin(), inputs.end(), holds) && std::all_of(taps.begin(), taps.end(), holds);
}

std::optional<Convolution> with_phases(Convolution convolution, const std::vector<int64_t>& phases) {
  if (convolution.transposed || convolution.phases() > 1) return std::nullopt;
  const bool folds = convolution.window() > 1;
  for (size_t at = 0; at < phases.size(); ++at) {
    ConvolutionDim& dim = convolution.dims[at];
    if (phases[at] == 1) continue;
    if (dim.output < phases[at] || dim.dilation > 1 || (folds && dim.window % phases[at] != 0)) return std::nullopt;
    dim.least_padded = std::max(dim.least_padded, dim.padded());
    dim.phases = phases[at];
    dim.phase_taps = dim.stride;
    dim.taps += dim.stride * (dim.phases - 1);
    dim.places = folds ? dim.output / dim.phases : ceil_of(dim.output, dim.phases);
    dim.window = std::max<int64_t>(dim.window / dim.phases, 1);
    dim.stride *= dim.phases;
  }
  if (folds && convolution.phases() > 1) convolution.folded_dims = static_cast<int64_t>(convolution.dims.size());
  if (convolution.folds_phases() && convolution.keeps_windows) return std::nullopt;
  const bool stacks = convolution.phases() == 1 || convolution.stacked_dims() > 0;
  return stacks ? std::optional(std::move(convolution)) : std::nullopt;
}

std::optional<int64_t> ConvolutionDim::own_tap(int64_t phase, int64_t tap) const {
  const int64_t distance = phase + first_tap - phases * tap;
  if (flipped && distance % tap_distance != 0) return std::nullopt;
  const int64_t own = flipped ? distance / tap_distance : tap - phase_taps * phase;
  return own >= 0 && own < kernel ? std::optional(own) : std::nullopt;
}

ConvolutionDim::Taps ConvolutionDim::taps_of(int64_t phase) const {
  std::optional<Taps> found;
  for (int64_t tap = 0; tap < taps; ++tap) {
    if (!own_tap(phase, tap)) continue;
    if (!found) found = Taps{.first = tap};
    found->count = tap - found->first + 1;
  }
  return found.value_or(Taps{});
}

int64_t ConvolutionDim::row_phases() const {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(phases)));
}

bool Convolution::is_direct() const { return channels == 1 && filters < kLeastRows; }

bool Convolution::is_grouped() const { return groups > 1 && channels > 1 && !transposed; }

int64_t Convolution::stacked_dims() const {
  constexpr int64_t kMostRows = 128;  // with more than one dimension's phases
  const int64_t most_folded = keeps_filters ? kMostFolded : kMostRows;
  int64_t stacked = 0, rows = folds_filters ? std::bit_ceil(static_cast<uint64_t>(filters)) : filters;
  if (image.dtype != DType::f32 || is_direct() || phases() == 1) return 0;
  if (folds_phases()) return folded_dims;
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim, ++stacked) {
    rows *= dim->row_phases();
    if (stacked > 0 ? rows > kMostRows : folds_filters && rows > most_folded) break;
  }
  const auto one_phase = [](const ConvolutionDim& dim) { return dim.phases == 1; };
  return std::all_of(dims.end() - stacked, dims.end(), one_phase) ? 0 : stacked;
}

int64_t Convolution::rows_of_filter() const {
  return std::accumulate(dims.end() - stacked_dims(), dims.end(), int64_t{1},
                         [](int64_t rows, const ConvolutionDim& dim) { return rows * dim.row_phases(); });
}

double Convolution::share_of_taps() const {
  double share = 1;
  for (auto dim = dims.begin(); dim != dims.end() - stacked_dims(); ++dim) {
    int64_t walked = 0;
    for (int64_t phase = 0; phase < dim->phases; ++phase) walked += dim->taps_of(phase).count;
    share *= static_cast<double>(walked) / static_cast<double>(dim->phases * dim->taps);
  }
  return share;
}

int64_t Convolution::window() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         [](int64_t n, const auto& dim) { return n * dim.window; });
}

int64_t Convolution::taps() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, [](int64_t n, const auto& dim) { return n * dim.taps; });
}

int64_t Convolution::places_of_windows(int64_t rows) const {
  if (rows == 1) return taps();
  const ConvolutionDim& dim = dims[dims.size() - 2];
  std::set<int64_t> found;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t tap = 0; tap < dim.taps; ++tap) found.insert(row * dim.stride + tap * dim.dilation);
  return taps() / dim.taps * static_cast<int64_t>(found.size());
}

int64_t Convolution::phases() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         [](int64_t n, const auto& dim) { return n * dim.phases; });
}

int64_t Convolution::places() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         [](int64_t n, const auto& dim) { return n * dim.places; });
}

Product Convolution::product() const {
  Product product;
  product.node = node;
  product.result = result;
  product.batch = {samples};
  product.rows = groups * filters;
  product.columns = 1;
  for (const ConvolutionDim& dim : dims) product.columns *= dim.output;
  product.depth = channels * taps();
  product.strides = result_strides;
  product.left = weight;
  product.right = image;
  return product;
}

std::optional<Convolution> convolution_of(const GraphFacts& facts, NodeId id) {
  const Graph& graph = facts.graph;
  const Node& node = graph.nodes[id];
  const std::string_view name = base_name(node);
  const bool forward = name == "conv1d" || name == "conv2d" || name == "conv3d",
             transposed = name == "conv_transpose1d" || name == "conv_transpose2d" || name == "conv_transpose3d";
  if (!node.op.starts_with("aten.") || (!forward && !transposed) || node.results.size() != 1 ||
      !node.text("padding").empty())
    return std::nullopt;
  const ValueId input = node.value("input"), weight = node.value("weight"), bias = node.value("bias");
  if (input == kNoValue || weight == kNoValue || node.results[0] == kNoValue) return std::nullopt;
  const TensorType &x = graph.type(input), &w = graph.type(weight), &y = graph.type(node.results[0]);
  const int64_t dims = w.rank() - 2;
  if (x.rank() != dims + 2 || y.rank() != dims + 2 || y.elements() == 0 || x.elements() == 0 || !is_taken(x.dtype) ||
      w.dtype != x.dtype || y.dtype != x.dtype || w.device != x.device || y.device != x.device || !is_dense(x))
    return std::nullopt;

  Convolution made;
  made.node = id;
  made.result = node.results[0];
  made.samples = x.shape[0];
  made.groups = node.integer("groups", 1);
  made.filters = y.shape[1] / made.groups;
  made.channels = x.shape[1] / made.groups;
  made.image = placed(facts, input);
  made.weight = placed(facts, weight);
  made.image_strides = x.strides;
  made.weight_strides = transposed ? Shape{made.channels * w.strides[0], w.strides[1], w.strides[0]}
                                   : Shape{made.filters * w.strides[0], w.strides[0], w.strides[1]};
  made.weight_strides.insert(made.weight_strides.end(), w.strides.begin() + 2, w.strides.end());
  if (bias != kNoValue) {
    if (graph.type(bias).dtype != x.dtype || graph.type(bias).rank() != 1) return std::nullopt;
    made.bias = placed(facts, bias);
    made.bias->row = graph.type(bias).strides[0];
  }
  made.transposed = transposed;
  made.exact = x.dtype == DType::f32 && !rounds_operands(graph, node);
  const auto positions = position_stride(y);
  if (!positions) return std::nullopt;
  made.result_strides = {y.strides[0], y.strides[1], *positions};
  const IntList stride = each(node, "stride", 1, dims), padding = each(node, "padding", 0, dims),
                dilation = each(node, "dilation", 1, dims);
  for (int64_t dim = 0; dim < dims; ++dim)
    made.dims.push_back(dim_of(transposed, x.shape[dim + 2], y.shape[dim + 2], w.shape[dim + 2], stride[dim],
                               padding[dim], dilation[dim]));
  if (!made.is_direct() && made.filters * made.rows_of_filter() < kLeastRows) return std::nullopt;
  return made;
}

NodeId convolution_among(const GraphFacts& facts, std::span<const NodeId> nodes) {
  NodeId found = kNoNode;
  for (NodeId node : nodes) {
    if (facts.kinds[node] != NodeKind::kExtern) continue;
    if (found != kNoNode || !convolution_of(facts, node)) return kNoNode;
    found = node;
  }
  return found;
}

}  // namespace kw::plan
