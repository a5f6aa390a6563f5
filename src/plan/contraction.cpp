// Contractions: matrix products on tensor cores, with what follows them element by element, as kernels of src/kernel.
//
// 16-bit operands are multiplied as they are. Those in single precision are split first: each row of the left one and
// each column of the right one is a power of two times the sum of two halves, and the product is three products of
// halves (scheme fp16x3 of lower/schedule.hpp), more exact than a sum of f32 products. Products that PyTorch makes in
// TF32 are one product of halves, which have as many digits (fp16x1). Where halves do not hold a row
// (docs/precision.md), blocks are computed again in f32, by a kernel whose other blocks stop at once. Where blocks are
// fewer than multiprocessors, several share out the depth (split-k), and a last kernel adds what they have summed.
#include <algorithm>

#include "lower/place_conditions.hpp"
#include "plan/axes.hpp"
#include "plan/contraction_kernels.hpp"
#include "plan/group_kinds.hpp"
#include "plan/product_lowering.hpp"
#include "tile/consumers.hpp"

namespace kw::plan {

namespace {

// kStreamed, kBothStreamed: fp16x3, whose longer operand, or both, are split where they are read. kFp16x1 and what
// follows: the same by one half. kBf16x6: nothing is scaled or split before, each operand is three numbers of 8 bits
// where it is multiplied.
enum SchemeChoice : int64_t {
  kIeee = 0,
  kFp16x3 = 1,
  kStreamed = 2,
  kBothStreamed = 3,
  kFp16x1 = 4,
  kStreamedFp16x1 = 5,
  kBothStreamedFp16x1 = 6,
  kBf16x6 = 7
};
constexpr int64_t kToOneHalf = kFp16x1 - kFp16x3;

// How single precision is multiplied: by three products of halves where PyTorch rounds nothing, whatever is asked for.
struct Scheme {
  SchemeChoice choice = kIeee;  // of those of fp16x3
  bool one_half = false, six_products = false;
};
Scheme scheme_of(int64_t asked, const Product& product) {
  if (product.left.dtype != DType::f32) return {};
  if (asked == kBf16x6) return {.choice = kIeee, .six_products = true};
  const bool one_half = asked >= kFp16x1;
  return {static_cast<SchemeChoice>(one_half ? asked - kToOneHalf : asked), one_half && product.rounded};
}

constexpr int64_t kLeastBlock = 16;          // of a dot in Triton
constexpr int64_t kMostOfBlock = 128 * 256;  // results, where every block has whole rows: as many as registers hold

constexpr int64_t kMostParts = 64;      // of the depth, which are added by one loop without iterations
constexpr int64_t kLeastOfPart = 1024;  // points of the depth, without which parts are not worth adding
constexpr int64_t kManyParts = 16;      // of so many points: then blocks are large, however few

bool can_take(const LoweredGroup& group) {
  return group.product && !group.attention && !group.linear_attention && !group.convolution &&
         group.product->right.dtype == group.product->left.dtype;
}

const ParameterTable& takes() {
  static const ParameterTable table({
      {.name = "block_m", .least = 16, .most = 256, .unsaid = 128, .powers_of_two = true, .tried = {32, 64, 128, 256}},
      {.name = "block_n", .least = 16, .most = 256, .unsaid = 128, .powers_of_two = true, .tried = {32, 64, 128, 256}},
      {.name = "block_k", .least = 16, .most = 256, .unsaid = 64, .powers_of_two = true, .tried = {32, 64, 128}},
      {.name = "stages", .least = 1, .most = 8, .unsaid = 3, .powers_of_two = false, .tried = {2, 3, 4}},
      {.name = "num_warps", .least = 1, .most = 16, .unsaid = 8, .powers_of_two = true, .tried = {4, 8}},
      {.name = "order", .least = 1, .most = 64, .unsaid = 8, .powers_of_two = false, .tried = {1, 8, 16}},
      {.name = "bulk", .least = 0, .most = 1, .unsaid = 1, .powers_of_two = false, .tried = {0, 1}},
      {.name = "bulk_stores", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "consumers", .least = 1, .most = 2, .unsaid = 1, .powers_of_two = true, .tried = {1, 2}},
      {.name = "scheme",
       .least = kIeee,
       .most = kBf16x6,
       .unsaid = kFp16x3,
       .powers_of_two = false,
       .tried = {kIeee, kFp16x3, kStreamed, kBothStreamed, kFp16x1, kStreamedFp16x1, kBothStreamedFp16x1, kBf16x6}},
      {.name = "fold_parts", .least = 0, .most = 1, .unsaid = 0, .powers_of_two = false, .tried = {0, 1}},
      {.name = "split_k",
       .least = 1,
       .most = kMostParts,
       .unsaid = 1,
       .powers_of_two = false,
       .tried = {1, 2, 4, 8, 32}},
  });
  return table;
}

// Of a loop whose loads are not worth the descriptions that the bulk copy engine wants of each block.
constexpr int64_t kFewIterations = 4;

// An operand that is much larger than the other, and read by one row (column) of blocks.
constexpr int64_t kMuchLarger = 8;

constexpr int64_t kStreamedWidth = 64;  // of it, in a block

// Blocks of more than 128 rows (columns) of the other are only worth it where every multiprocessor has one, and no
// consumers that would multiply what is split before: 3.2 ms for 3.5 of 256 rows, 16384 columns and a depth of 32768 on
// an H100.
bool can_stream(const Product& product, const DeviceDescription& device) {
  const int64_t few = std::min(product.rows, product.columns), many = std::max(product.rows, product.columns);
  const bool fits = few <= 128 ||
                    (few <= 256 && ceil_divide(many, kStreamedWidth) >= device.units && !device.warp_roles);
  return product.left.dtype == DType::f32 && fits && many >= kMuchLarger * few && product.depth % 64 == 0 &&
         product.depth > 64 * kFewIterations;
}

// As many parts of whole steps as are wanted, or fewer.
int64_t parts_of(const Product& product, int64_t depth, int64_t wanted) {
  if (product.depth % depth != 0) return 1;
  const int64_t steps = product.depth / depth;
  int64_t parts = std::clamp<int64_t>(wanted, 1, std::min(steps, kMostParts));
  while (steps % parts != 0) --parts;
  return parts;
}

// Such that blocks, where they are fewer than half of the multiprocessors, are as many as these with their parts.
int64_t parts_for(const Product& product, int64_t depth, int64_t blocks, const DeviceDescription& device) {
  return parts_of(product, depth, std::min(device.units / blocks, product.depth / kLeastOfPart));
}

Side streamed_side(const Product& product) { return product.rows <= product.columns ? Side::kRight : Side::kLeft; }

// Blocks of so many rows run in pairs, each by warps of its own that multiply while the other's add: 4096 by 4096 by
// 4096 in 0.53 ms for 0.69 of one block of 128 rows, on an H200.
constexpr int64_t kConsumerRows = 64, kConsumers = 2;
constexpr size_t kDimensionsOfBox = 5;  // src/tile/box.hpp
constexpr int64_t kRowsOfBox = 16;      // bytes that divide the distances of its rows

bool lies_along_depth(const Product& product, Side side) {
  return dimensions_of(product, side).back().role == OperandDimension::Role::kDepth;
}

bool has_16_bits(const Product& product) { return size_of(product.left.dtype) == 2; }

// Does an operand of 16 bits lie as the bulk copy engine wants it?
bool has_rows_of_box(const Product& product, Side side) {
  const std::vector<OperandDimension> dimensions = dimensions_of(product, side);
  const ProductOperand& operand = side == Side::kLeft ? product.left : product.right;
  const bool begins = operand.aligned && operand.offset * size_of(operand.dtype) % kRowsOfBox == 0;
  return begins && dimensions.back().stride == 1 &&
         std::all_of(dimensions.begin(), dimensions.end() - 1, [&](const auto& one) {
           return one.stride > 0 && one.stride * size_of(operand.dtype) % kRowsOfBox == 0;
         });
}

// Is there a warp that copies boxes of both operands, for blocks of so many columns? Even where the depth is short: it
// copies for the next block while this one is stored. 1,048,576 × 768 of a depth of 256 took 2.4 ms for 4.1 on an H200;
// of one of 32 consumers were slower than several small blocks.
bool has_producer(const Product& product, int64_t columns, const DeviceDescription& device) {
  // Beside an axis for parts, an operand has as many dimensions as a box may. Halves of our own lie as a box wants it.
  const auto fits_box = [&](Side side) {
    const std::vector<OperandDimension> dimensions = dimensions_of(product, side);
    return dimensions.size() + 1 <= kDimensionsOfBox &&
           (product.left.dtype == DType::f32 || (has_16_bits(product) && has_rows_of_box(product, side)));
  };
  return device.warp_roles && fits_box(Side::kLeft) && fits_box(Side::kRight) && columns <= 256 && product.depth >= 32;
}

bool can_consume(const Product& product, int64_t rows, int64_t columns, const DeviceDescription& device) {
  // Of a left operand whose columns lie side by side, and a right one whose rows do, no order of axes makes boxes.
  return rows % kConsumerRows == 0 && has_producer(product, columns, device) &&
         (lies_along_depth(product, Side::kLeft) || !lies_along_depth(product, Side::kRight));
}

// Blocks of so many rows (columns) of the streamed operand, which consumers have in registers, and so many of the
// other. 32768 columns and a depth as long of 128 rows take 1.73 ms so, and 3.1 in single blocks, on an H200.
bool can_consume_streamed(const Product& product, int64_t many, int64_t few, const DeviceDescription& device) {
  constexpr int64_t kMostOfOther = 128;  // sums, and those of one step, in registers
  return many == kConsumerRows && few <= kMostOfOther && has_producer(product, few, device) &&
         lies_along_depth(product, streamed_side(product));
}

// Of what is folded, does a block have all? Else it folds its part. `asked`: where both can be, for parts.
bool folds_whole_rows(const LoweredGroup& group, bool asked) {
  return folded_dimension(group) && can_have_whole_rows(group) && !(asked && can_fold_in_parts(group));
}

// Operands of 16 bits, or of one half each, by pairs of blocks that share 256 columns. Results of 16 bits are stored by
// the bulk copy engine: 1.02 times as fast as cuBLAS over twelve matrices of transformers' layers, where one block of
// 128 rows is at 0.95 (H200). Tiles of larger ones would take a stage each. GELU behind them spills registers: with it,
// two layers took 1.67 ms for cuBLAS's 1.41.
std::optional<Parameters> pairs_of_halves(const LoweredGroup& group, const DeviceDescription& device) {
  const Product& product = *group.product;
  constexpr int64_t kDepth = 64, kColumns = 256;
  const int64_t blocks = product.batches() * ceil_divide(product.rows, kConsumers * kConsumerRows) *
                         ceil_divide(product.columns, kColumns);
  // Threads that store results of 32 bits under masks spill registers.
  if (product.rounded && (product.rows % (kConsumers * kConsumerRows) != 0 || product.columns % kColumns != 0))
    return std::nullopt;
  if (dearest_operation(group) >= kDear || (!has_16_bits(product) && !product.rounded) ||
      folds_whole_rows(group, false) || folded_columns(group) > 1 || product.depth < kDepth || blocks < device.units ||
      !can_consume(product, kConsumerRows, kColumns, device))
    return std::nullopt;
  int64_t bytes = 0;  // of a result, in all tensors that are stored
  for (const Store& store : group.kernel.stores) bytes += size_of(group.kernel.buffers[store.access.buffer].dtype);
  const bool stores_bulk = bytes == 2 && !plan::folds(group.kernel);
  const int64_t tiles = stores_bulk ? kConsumers * kConsumerRows * kColumns * bytes : 0,
                of_stage = (kConsumers * kConsumerRows + kColumns) * kDepth * 2;
  constexpr int64_t kBarriers = 1024;
  const int64_t stages = std::min<int64_t>((device.shared_bytes - tiles - kBarriers) / of_stage, 4);
  if (stages < 2) return std::nullopt;
  return Parameters{{"block_m", kConsumerRows},
                    {"block_n", kColumns},
                    {"block_k", kDepth},
                    {"stages", stages},
                    {"num_warps", 4},
                    {"order", 8},
                    {"bulk", 1},
                    {"bulk_stores", stores_bulk ? 1 : 0},
                    {"consumers", kConsumers},
                    {"scheme", product.rounded ? kFp16x1 : kIeee},
                    {"split_k", 1}};
}

// The largest blocks of which every multiprocessor has one.
Parameters defaults(const LoweredGroup& group, const DeviceDescription& device) {
  const Product& product = *group.product;
  const bool split = product.left.dtype == DType::f32, folds = folds_whole_rows(group, false);
  // One half is multiplied as operands of 16 bits are: nothing is added beside the tensor cores' own sums.
  const bool in_two = split && !product.rounded;
  const int64_t to_scheme = product.rounded ? kToOneHalf : 0;
  // What is folded in parts or windows is not streamed.
  if (can_stream(product, device) && !plan::folds(group.kernel)) {
    const int64_t few = std::max(next_power_of_two(std::min(product.rows, product.columns)), kLeastBlock);
    const bool right = streamed_side(product) == Side::kRight;
    constexpr int64_t kDepth = 64;
    const bool consume = can_consume_streamed(product, kStreamedWidth, few, device);
    const int64_t together = consume ? kConsumers : 1, many = std::max(product.rows, product.columns),
                  blocks = product.batches() * ceil_divide(many, kStreamedWidth * together),
                  of_stage = kDepth * 4 * (kStreamedWidth * together + few);
    return {{"block_m", right ? few : kStreamedWidth},
            {"block_n", right ? kStreamedWidth : few},
            {"block_k", kDepth},
            {"stages", consume ? std::clamp<int64_t>(device.operand_bytes() / of_stage, 1, 4) : 2},
            {"num_warps", few > 128 ? 8 : 4},
            {"order", 8},
            {"bulk", 1},
            {"consumers", together},
            {"scheme", kStreamed + to_scheme},
            {"split_k", parts_for(product, kDepth, blocks, device)}};
  }
  if (auto pairs = pairs_of_halves(group, device)) return std::move(*pairs);
  int64_t rows = std::clamp<int64_t>(next_power_of_two(product.rows), kLeastBlock, 128),
          columns = std::clamp<int64_t>(next_power_of_two(product.columns), kLeastBlock, in_two && !folds ? 128 : 256);
  if (folds) rows = std::min(rows, std::max<int64_t>(128 * 128 / columns, 64));
  const auto blocks = [&] {
    return product.batches() * ceil_divide(product.rows, rows) * ceil_divide(product.columns, columns);
  };
  int64_t depth = std::clamp<int64_t>(next_power_of_two(product.depth), kLeastBlock, 64);
  const auto consume = [&] {
    return in_two && !folds && folded_columns(group) == 1 && rows == kConsumers * kConsumerRows && columns == rows &&
           can_consume(product, kConsumerRows, columns, device);
  };
  // Short sums: several small blocks for each multiprocessor, so that one stores while another multiplies.
  const bool is_short = ceil_divide(product.depth, depth) <= kFewIterations;
  if (is_short && !consume()) {
    rows = std::min<int64_t>(rows, 64);
    if (!folds) columns = std::min<int64_t>(columns, 128);
  }
  // Where the depth is long its parts are many instead.
  const bool is_long = product.depth >= kManyParts * kLeastOfPart;
  while (!is_long && blocks() < device.units && rows * columns > 64 * 64 && rows > kLeastBlock)
    (columns >= rows && !folds ? columns : rows) /= 2;
  const auto stages = [&] { return device.operand_bytes() / ((rows + columns) * depth * 2 * (in_two ? 2 : 1)); };
  while (stages() < 1 && depth > kLeastBlock) depth /= 2;
  // Short sums are stored as often as they are loaded for: a stage less, and consumers go on while the engine stores.
  const int64_t of_stage = (rows + columns) * depth * 4,
                stages_beside = (device.operand_bytes() - rows * columns * 4) / of_stage;
  const bool stores_bulk = ceil_divide(product.depth, depth) <= 4 * kFewIterations && stages_beside > 0 &&
                           !plan::folds(group.kernel);
  if (consume() && stages() > 1)
    return {{"block_m", kConsumerRows},
            {"block_n", columns},
            {"block_k", depth},
            {"stages", std::clamp<int64_t>(stores_bulk ? stages_beside : stages(), 1, 4)},
            {"num_warps", 4},
            {"order", 8},
            {"bulk", 1},
            {"bulk_stores", stores_bulk ? 1 : 0},
            {"consumers", kConsumers},
            {"scheme", kFp16x3},
            {"split_k", parts_for(product, depth, blocks(), device)}};
  return {{"block_m", rows},
          {"block_n", columns},
          {"block_k", depth},
          {"stages", std::clamp<int64_t>(stages(), 1, 4)},
          {"num_warps", rows * columns >= 128 * 128 ? 8 : 4},
          {"order", 8},
          {"bulk", is_short ? 0 : 1},
          {"scheme", split ? kFp16x3 + to_scheme : kIeee},
          {"split_k", parts_for(product, depth, blocks(), device)}};
}

// Is it worth trying for the product? In 16 bits nothing is split; of what PyTorch makes in TF32 one half is enough.
bool is_scheme_of(int64_t scheme, const Product& product) {
  if (product.left.dtype != DType::f32) return scheme == kIeee;
  if (scheme == kBf16x6 || scheme == kIeee) return !product.rounded;
  return (scheme >= kFp16x1) == product.rounded;
}

std::vector<ParameterRange> space(const LoweredGroup& group, const DeviceDescription& device) {
  const Product& product = *group.product;
  const bool many = product.batches() * ceil_divide(product.rows, 128) * ceil_divide(product.columns, 128) >=
                    device.units;
  std::vector<ParameterRange> ranges = takes().ranges();
  for (ParameterRange& range : ranges) {
    // Blocks that have whole rows are no narrower than these.
    if (range.name == "block_n" && folds_whole_rows(group, false))
      std::erase_if(range.values, [&](int64_t width) { return width < product.columns; });
    if (range.name == "fold_parts" && !(can_have_whole_rows(group) && can_fold_in_parts(group))) range.values = {0};
    if (range.name == "consumers" && !device.warp_roles) range.values = {1};
    if (range.name == "scheme")
      std::erase_if(range.values, [&](int64_t scheme) { return !is_scheme_of(scheme, product); });
    if (range.name == "split_k")
      std::erase_if(range.values,
                    [&](int64_t parts) { return parts > 1 && (many || product.depth < parts * kLeastOfPart); });
  }
  return ranges;
}

ScheduledGroup lower(LoweredGroup group, const Parameters& parameters, const DeviceDescription& device) {
  const ParameterTable& table = takes();
  const Product& product = *group.product;
  const auto read = [&](std::string_view name) { return table.read(parameters, name); };
  const Scheme scheme = scheme_of(read("scheme"), product);
  ContractionBlocks blocks{.rows = read("block_m"),
                           .columns = read("block_n"),
                           .depth = read("block_k"),
                           .stages = static_cast<int>(read("stages")),
                           .warps = static_cast<int>(read("num_warps")),
                           .neighbours = read("order"),
                           .bulk = read("bulk") != 0,
                           .bulk_stores = read("bulk_stores") != 0,
                           .halves = scheme.choice != kIeee,
                           .one_half = scheme.one_half,
                           .six_products = scheme.six_products,
                           .streamed = {},
                           .parts = parts_of(product, read("block_k"), read("split_k"))};
  blocks.whole_rows = folds_whole_rows(group, read("fold_parts") != 0);
  blocks.fold_parts = folded_dimension(group) && !blocks.whole_rows;
  const bool folds_windows = folded_columns(group) > 1;
  if (blocks.fold_parts || folds_windows) blocks.parts = 1;
  if (blocks.whole_rows && blocks.parts == 1) {
    blocks.columns = std::max(blocks.columns, next_power_of_two(product.columns));
    blocks.rows = std::min(blocks.rows, kMostOfBlock / blocks.columns);
  }
  // Blocks that the streamed operand would be read by more than once, or whose depth does not divide, split it before.
  const Side side = streamed_side(product);
  const bool once = side == Side::kRight ? product.rows <= blocks.rows : product.columns <= blocks.columns,
             can_stream = blocks.halves && !blocks.fold_parts && !folds_windows &&
                          (!blocks.whole_rows || blocks.parts > 1) && product.depth % blocks.depth == 0;
  if (can_stream && scheme.choice == kStreamed && once) blocks.streamed = {side};
  if (can_stream && scheme.choice == kBothStreamed) blocks.streamed = {Side::kLeft, Side::kRight};
  const auto [many, few] = side == Side::kRight ? std::pair(blocks.columns, blocks.rows)
                                                : std::pair(blocks.rows, blocks.columns);
  // Consumers have their sums' lanes as they are, and not in windows.
  const bool consumes = folds_windows ? false
                        : blocks.streamed.empty()
                            ? (scheme.choice == kFp16x3 || has_16_bits(product)) && !blocks.whole_rows &&
                                  can_consume(product, blocks.rows, blocks.columns, device)
                            : blocks.streamed.size() == 1 && can_consume_streamed(product, many, few, device);
  if (read("consumers") > 1 && consumes) {
    blocks.consumers = read("consumers");
    blocks.programs = device.units;
    blocks.warps = 4;
    blocks.bulk = true;
  }
  return contraction_kernels(group, blocks);
}

// Does a choice by places (tril, triu, a band) drop the product somewhere?
bool is_dropped_by_place(const LoweredGroup& group) {
  std::vector<kernel::ExprId> loads;
  for (size_t id = 0; id < group.kernel.exprs.size(); ++id)
    if (is_load(group.kernel.exprs[id]) && group.kernel.exprs[id].access.buffer == product_buffer(group))
      loads.push_back(static_cast<kernel::ExprId>(id));
  return !lower::asked_where_used(group.kernel, loads).empty();
}

// Iterations of the programs that have the most, of kernels whose programs do one block after another.
int64_t most_iterations(const ScheduledGroup& group) {
  int64_t most = 0;
  for (const ScheduledTiles& one : group.tiles)
    if (one.program.consumers.programs > 0) most += tile::loop_shares(one.program).most;
  return most;
}

// Where some blocks are shorter than others, rows of blocks are taken so many at a time that no program has many of the
// long ones: of 1024 pairs of a triangle, 528 of them long, 132 programs have 5.1 at most by 8 rows, and 4.1 by 16.
Parameters balanced_defaults(const LoweredGroup& group, const DeviceDescription& device) {
  Parameters chosen = defaults(group, device);
  if (takes().read(chosen, "consumers") == 1 || !is_dropped_by_place(group)) return chosen;
  int64_t least = most_iterations(lower(group, chosen, device));
  for (const int64_t order : {16, 4, 32, 2, 1}) {
    Parameters parameters = chosen;
    parameters["order"] = order;
    const int64_t most = most_iterations(lower(group, parameters, device));
    if (most >= least) continue;
    least = most;
    chosen = std::move(parameters);
  }
  return chosen;
}

}  // namespace

const Scheduler kContractionScheduler{"contraction", GroupWork::kProducts, can_take, takes, balanced_defaults, space,
                                      lower};

}  // namespace kw::plan
