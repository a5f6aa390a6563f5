#include "plan/linear_attention_kernels.hpp"

#include <algorithm>

#include "plan/convolution_image.hpp"
#include "plan/digit_strides.hpp"
#include "plan/product_kernels.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::ScalarOp;
using kernel::Symbol;
using lower::KernelSchedule;
using lower::Mapping;

constexpr int64_t kLeastTile = 16;  // of a dot
// Elements of a summary that are multiplied at a time: of 128 by 128, three numbers for each are more than registers
// hold (116 bytes spilled, compiled for sm_90).
constexpr int64_t kOfSummary = 4096;

// Keys and values are read once, by blocks that sum up parts of them; a small kernel adds the parts; queries are read
// once, by blocks that have all of a head's summary.
class LinearAttentionKernels : ProductKernels {
 public:
  LinearAttentionKernels(const LoweredGroup& group, const LinearAttentionBlocks& blocks)
      : ProductKernels(group, {&group.linear_attention->left.memory, &group.linear_attention->right.memory,
                               &group.linear_attention->query.memory}),
        one_(*group.linear_attention),
        values_(*group.product),
        blocks_(blocks) {}

  ScheduledGroup run() {
    const Summary summary = declare("");
    if (blocks_.parts > 1) {
      const Summary of_parts = declare("_of_parts");
      sum_up(of_parts, true);
      add_parts(of_parts, summary);
    } else {
      sum_up(summary, false);
    }
    multiply(summary);
    return std::move(result_);
  }

 private:
  // Scratch: the products of a head's keys and values, and the sums of its keys.
  struct Summary {
    int products = -1, sums = -1;
  };

  struct Axes {
    Symbol batch = -1, part = -1, row = -1, column = -1;
  };

  bool is_weighted() const { return one_.weight != kNoValue; }
  int64_t batches() const { return values_.batch[0]; }
  int64_t features() const { return one_.transposed ? one_.columns : one_.rows; }
  int64_t keys_of_part() const {
    return ceil_divide(ceil_divide(one_.keys, blocks_.parts), blocks_.keys) * blocks_.keys;
  }
  static int64_t tile_of(int64_t extent) { return std::max(next_power_of_two(extent), kLeastTile); }

  kernel::Precision precision() const {
    return blocks_.six_products && values_.left.dtype == DType::f32 ? kernel::Precision::kBf16x6
                                                                    : kernel::Precision::kFull;
  }

  Shape shape_of_products(bool parts) const {
    Shape shape = {batches(), one_.rows, one_.columns};
    if (parts) shape.insert(shape.begin(), blocks_.parts);
    return shape;
  }
  Shape shape_of_sums(bool parts) const {
    Shape shape = {batches(), features()};
    if (parts) shape.insert(shape.begin(), blocks_.parts);
    return shape;
  }

  Summary declare(const std::string& of) {
    const bool parts = !of.empty();
    const auto tensor = [&](const std::string& name, const Shape& shape) {
      return scratch(name + of, DType::f32, shape, contiguous_strides(shape));
    };
    Summary made;
    made.products = tensor("summary", shape_of_products(parts));
    if (is_weighted()) made.sums = tensor("sums", shape_of_sums(parts));
    return made;
  }

  int buffer_of(KernelDraft& draft, bool sums, bool parts, int scratch, kernel::BufferRole role) const {
    return draft.buffer(std::string(sums ? "sums" : "summary") + (parts ? "_of_parts" : ""), DType::f32,
                        sums ? shape_of_sums(parts) : shape_of_products(parts), {}, role, -1 - scratch);
  }

  static std::vector<kernel::Index> at(std::initializer_list<Symbol> symbols) {
    std::vector<kernel::Index> places;
    for (Symbol symbol : symbols)
      if (symbol >= 0) places.push_back(kernel::symbol_index(symbol));
    return places;
  }

  // An operand's element; 0 where `inside` does not hold.
  ExprId element(KernelDraft& draft, const LinearOperand& operand, Symbol batch, const kernel::Index& outer,
                 const kernel::Index& depth, ExprId inside = kernel::kNoExpr) const {
    kernel::Builder& build = draft.build;
    const std::vector<kernel::SymbolRange> ranges = kernel::ranges_of(build.kernel());
    const kernel::Index place = index_along(operand.batch, kernel::symbol_index(batch), ranges) +
                                index_along(operand.outer, outer, ranges) + index_along(operand.depth, depth, ranges);
    if (!operand.producer) {
      const int buffer = draft.buffer(operand.memory.name, operand.memory.dtype, {operand.elements}, {},
                                      kernel::BufferRole::kInput, operand.memory.root, operand.memory.offset);
      kernel::Access access = KernelDraft::access(buffer, {place}, inside);
      return build.load(std::move(access));
    }
    EmbeddedImage made(draft, *operand.producer, operand.memory.root,
                       {.shape = {operand.elements}, .strides = {1}, .at = {place}, .inside = {inside}});
    const ExprId value = build.cast(operand.memory.dtype, made.value());
    return inside == kernel::kNoExpr ? value : build.select(inside, value, build.constant(operand.memory.dtype, 0.0));
  }

  static ExprId sum_of(kernel::Builder& build, ExprId value, Symbol along) {
    return build.reduce(kernel::ReduceOp::kSum, {build.cast(DType::f32, value)}, {along});
  }

  // What keys and values are summed up to.
  void sum_up(const Summary& to, bool parts) {
    KernelDraft draft(group_.kernel.name + "_summary", "Products of keys and values, and sums of keys.");
    kernel::Builder& build = draft.build;
    const Symbol batch = draft.axis("head", batches()), part = parts ? draft.axis("part", blocks_.parts) : -1,
                 key = draft.axis("key", parts ? keys_of_part() : one_.keys), row = draft.axis("row", one_.rows),
                 column = draft.axis("column", one_.columns);
    kernel::Index place = kernel::symbol_index(key);
    ExprId inside = kernel::kNoExpr;
    if (parts) place = place + kernel::symbol_index(part) * kernel::Index(keys_of_part());
    if (parts && keys_of_part() * blocks_.parts != one_.keys)
      inside = build.op(ScalarOp::kLess, {build.index(place), build.constant(DType::i32, one_.keys)});
    const ExprId left = draft.named("left", element(draft, one_.left, batch, kernel::symbol_index(row), place, inside)),
                 right = draft.named("right",
                                     element(draft, one_.right, batch, kernel::symbol_index(column), place, inside));
    draft.store(buffer_of(draft, false, parts, to.products, kernel::BufferRole::kOutput),
                at({part, batch, row, column}), build.dot(left, right, {key}, precision()));
    if (is_weighted())
      draft.store(buffer_of(draft, true, parts, to.sums, kernel::BufferRole::kOutput),
                  at({part, batch, one_.transposed ? column : row}),
                  sum_of(build, one_.transposed ? right : left, key));
    KernelSchedule schedule;
    schedule.axes.resize(parts ? 2 : 1);
    schedule.axes.push_back({.mapping = Mapping::kLoop, .width = blocks_.keys, .stages = blocks_.stages});
    for (const int64_t extent : {one_.rows, one_.columns})
      schedule.axes.push_back({.mapping = Mapping::kTile, .width = tile_of(extent)});
    schedule.warps = blocks_.warps;
    finish(draft, schedule);
  }

  // In their order, the same at every call.
  void add_parts(const Summary& from, const Summary& to) {
    constexpr int64_t kResults = 512;
    KernelDraft draft(group_.kernel.name + "_of_parts", "Adds what blocks have summed over parts of the keys.");
    kernel::Builder& build = draft.build;
    const Symbol batch = draft.axis("head", batches()), row = draft.axis("row", one_.rows),
                 column = draft.axis("column", one_.columns), part = draft.axis("part", blocks_.parts);
    const auto add = [&](bool sums, int source, int target, std::initializer_list<Symbol> places,
                         std::initializer_list<Symbol> places_of_part) {
      const int read = buffer_of(draft, sums, true, source, kernel::BufferRole::kInput),
                written = buffer_of(draft, sums, false, target, kernel::BufferRole::kOutput);
      draft.store(written, at(places), sum_of(build, draft.load(read, at(places_of_part)), part));
    };
    add(false, from.products, to.products, {batch, row, column}, {part, batch, row, column});
    KernelSchedule schedule;
    schedule.axes.resize(1);
    const int64_t width = next_power_of_two(one_.columns);
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = std::max<int64_t>(kResults / width, 1)});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = width});
    schedule.axes.push_back({.mapping = Mapping::kLoop, .width = 1, .unrolled = true});
    if (is_weighted()) {
      const Symbol feature = one_.transposed ? column : row;
      // Blocks share out rows: all have the sums of all columns.
      if (one_.transposed)
        schedule.axes[1] = {.mapping = Mapping::kTile, .width = next_power_of_two(one_.rows)},
        schedule.axes[2] = {.mapping = Mapping::kGrid,
                            .width = std::max<int64_t>(kResults / schedule.axes[1].width, 1)};
      add(true, from.sums, to.sums, {batch, feature}, {part, batch, feature});
    }
    finish(draft, schedule);
  }

  void multiply(const Summary& summary) {
    KernelDraft draft(group_.kernel.name, group_.kernel.doc);
    kernel::Builder& build = draft.build;
    ProductSymbols symbols;
    symbols.batch = {draft.axis("head", batches())};
    symbols.row = draft.axis("query", values_.rows);
    symbols.depth = draft.axis("feature", values_.depth);
    symbols.column = draft.axis("column", values_.columns);
    const Symbol batch = symbols.batch[0];
    const DType dtype = values_.left.dtype;
    const auto rounded = [&](ExprId value) { return build.cast(dtype, value); };
    const ExprId query = draft.named(
        "query", element(draft, one_.query, batch, symbols.row_index(), kernel::symbol_index(symbols.depth)));
    const int products = buffer_of(draft, false, false, summary.products, kernel::BufferRole::kInput);
    const ExprId factor = draft.load(products, one_.transposed ? at({batch, symbols.column, symbols.depth})
                                                               : at({batch, symbols.depth, symbols.column}));
    const ExprId product = rounded(build.dot(query, rounded(factor), {symbols.depth}, precision()));
    std::map<int, ExprId> known;
    if (is_weighted()) {
      const int sums = buffer_of(draft, true, false, summary.sums, kernel::BufferRole::kInput);
      const ExprId sum = build.cast(DType::f32, rounded(draft.load(sums, at({batch, symbols.depth}))));
      const ExprId weight = draft.named(
          "weight", rounded(sum_of(build, build.mul(build.cast(DType::f32, query), sum), symbols.depth)));
      for (size_t buffer = 0; buffer < group_.buffers.size(); ++buffer)
        if (group_.buffers[buffer] == one_.weight) known[static_cast<int>(buffer)] = weight;
    }
    store_results(draft, group_, symbols.result_places(), product, kernel::kNoExpr, {}, {}, -1, std::move(known));
    KernelSchedule schedule;
    schedule.axes.resize(1);
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = blocks_.queries});
    const int64_t features = tile_of(values_.depth), step = kOfSummary / tile_of(values_.columns);
    if (features > step) schedule.axes.push_back({.mapping = Mapping::kLoop, .width = step, .stages = 1});
    else schedule.axes.push_back({.mapping = Mapping::kTile, .width = features});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = tile_of(values_.columns)});
    schedule.warps = blocks_.warps;
    finish(draft, schedule);
  }

  const LinearAttention& one_;
  const Product& values_;
  const LinearAttentionBlocks& blocks_;
};

}  // namespace

ScheduledGroup linear_attention_kernels(const LoweredGroup& group, const LinearAttentionBlocks& blocks) {
  return LinearAttentionKernels(group, blocks).run();
}

}  // namespace kw::plan
