#include "plan/attention_kernels.hpp"

#include <algorithm>
#include <limits>

#include "lower/needed.hpp"
#include "plan/product_kernels.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

using kernel::ExprId;
using kernel::ScalarOp;
using lower::KernelSchedule;
using lower::Mapping;

// Weights are at most 1: as halves they keep more digits where they are scaled by 2^7, by a shift of their exponents,
// which is rounded where scores are large, to 2^11.6 at most. A larger one might be beyond the largest half.
constexpr double kWeightPower = 7.0;
constexpr double kLog2OfE = 1.4426950408889634;
// Scales beyond might leave the range of f32 on the way to a score that is inside.
constexpr double kLargestScale = 0x1p64;

// Blocks of queries walk the keys once: each step folds its scores into the largest so far, and rescales what was
// summed before (Milakov & Gimelshein 2018; Dao et al. 2022).
class AttentionKernels : ProductKernels {
 public:
  AttentionKernels(const LoweredGroup& group, const AttentionBlocks& blocks)
      : ProductKernels(group, operands_of(group)),
        attention_(*group.attention),
        scores_(*attention_.scores->product),
        values_(*group.product),
        blocks_(blocks) {}

  ScheduledGroup run() {
    if (!blocks_.halves) {
      attend(nullptr, false);
      return std::move(result_);
    }
    KW_ASSERT(scores_.left.dtype == DType::f32, "what is not in single precision is split into halves");
    const Operands halves{split(scores_, Side::kLeft), split(scores_, Side::kRight), split(values_, Side::kRight)};
    attend(&halves, false);
    find_whole_heads(halves);
    attend(&halves, true);
    return std::move(result_);
  }

 private:
  struct Operands {
    SplitOperand query, key, value;
  };

  // A kernel's axes: those of the product of queries and keys, and those of weights and values.
  struct Symbols {
    ProductSymbols scores, values;
  };

  static std::vector<const ProductOperand*> operands_of(const LoweredGroup& group) {
    const Product &scores = *group.attention->scores->product, &values = *group.product;
    std::vector<const ProductOperand*> operands = {&scores.left, &scores.right, &values.right};
    for (const auto* one : {&group.attention->mask, &scores.addend, &values.addend})
      if (*one) operands.push_back(&**one);
    return operands;
  }

  Symbols declare(KernelDraft& draft) const {
    Symbols symbols;
    symbols.scores.batch = symbols.values.batch = draft.batch_axes(values_.batch);
    symbols.scores.row = symbols.values.row = draft.axis("query", values_.rows);
    symbols.scores.column = symbols.values.depth = draft.axis("key", values_.depth);
    symbols.scores.depth = draft.axis("feature", scores_.depth);
    symbols.values.column = draft.axis("column", values_.columns);
    return symbols;
  }

  // `again`: in f32, where a query, or a key or values of its head, are no sum of halves.
  void attend(const Operands* halves, bool again) {
    KernelDraft draft(group_.kernel.name + (again ? "_in_f32" : ""),
                      again ? "The same in f32, where rows are no sums of halves." : group_.kernel.doc);
    const Symbols symbols = declare(draft);
    kernel::Builder& build = draft.build;
    const bool split = halves != nullptr && !again;
    const auto number = [&](double value) { return build.constant(DType::f32, value); };
    const auto times = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kMul, {a, b}); };

    if (!attention_.has_softmax) return multiply_twice(draft, symbols);
    // Powers of two are what the hardware has, so scores may be in units of log2(e); without anything between the
    // product and the softmax, its factor has that already. In single precision only their differences are: what
    // rounding adds to large scores would not cancel.
    const bool in_powers_of_two = values_.left.dtype != DType::f32,
               plain = attention_.scores->kernel.stores.empty() && !attention_.mask && !scores_.addend;
    Product scores = scores_;
    if (in_powers_of_two && plain) scores.alpha *= kLog2OfE;
    ExprId score = kernel::kNoExpr;
    if (split) {
      score = build.dot(ProductKernels::halves(draft, halves->query, symbols.scores),
                        ProductKernels::halves(draft, halves->key, symbols.scores), {symbols.scores.depth});
      const ExprId of_query = scale(draft, halves->query, symbols.scores);
      score = times(score, scores.alpha == 1.0 ? of_query : times(of_query, number(scores.alpha)));
      score = times(score, scale(draft, halves->key, symbols.scores));
      scores.alpha = 1.0;
    } else {
      score = build.dot(operand(draft, scores_, Side::kLeft, symbols.scores),
                        operand(draft, scores_, Side::kRight, symbols.scores), {symbols.scores.depth});
    }
    score = masked(draft, symbols, result_of(draft, scores, symbols.scores, score));
    if (in_powers_of_two && !plain) score = times(score, number(kLog2OfE));
    if (attention_.is_causal) score = up_to_the_query(draft, symbols, score);
    build.named("score", score);
    const ExprId largest = build.named("largest",
                                       build.reduce(kernel::ReduceOp::kMax, {score}, {symbols.values.depth}));
    const ExprId shift = split ? build.op(ScalarOp::kSub, {largest, number(kWeightPower / kLog2OfE)}) : largest;
    ExprId exponent = build.op(ScalarOp::kSub, {score, shift});
    if (!in_powers_of_two) exponent = times(exponent, number(kLog2OfE));
    const ExprId weight = build.named("weight", build.op(ScalarOp::kExp2, {exponent}));
    const ExprId total = build.named("total", build.reduce(kernel::ReduceOp::kSum, {weight}, {symbols.values.depth}));
    const ExprId value = split ? ProductKernels::halves(draft, halves->value, symbols.values)
                               : operand(draft, values_, Side::kRight, symbols.values);
    const ExprId sum = build.named(
        "sum", build.dot(split ? weight : build.cast(values_.left.dtype, weight), value, {symbols.values.depth}));
    ExprId result = build.op(ScalarOp::kDiv, {sum, total});
    if (split) result = times(result, scale(draft, halves->value, symbols.values));
    if (attention_.nothing_is_zero) {
      const ExprId lowest = number(-std::numeric_limits<double>::infinity());
      result = build.op(ScalarOp::kSelect, {build.op(ScalarOp::kEqual, {largest, lowest}), number(0.0), result});
    }
    ExprId mask = kernel::kNoExpr;
    if (again) mask = build.named("has_no_halves", has_no_halves(draft, *halves, symbols));
    store_values(draft, symbols, result, mask);
    finish(draft, schedule_of(draft, symbols, {largest, total, sum}, split, again));
  }

  void store_values(KernelDraft& draft, const Symbols& symbols, ExprId value, ExprId mask) const {
    value = draft.build.cast(values_.right.dtype, result_of(draft, values_, symbols.values, value));
    store_results(draft, group_, symbols.values.result_places(), value, mask);
  }

  // In single precision by f32's own products: what stands for weights may be of any size, so that halves would want a
  // scale for each row of each block, and numbers of TF32 round the largest ones to infinity.
  void multiply_twice(KernelDraft& draft, const Symbols& symbols) {
    kernel::Builder& build = draft.build;
    ExprId score = build.dot(operand(draft, scores_, Side::kLeft, symbols.scores),
                             operand(draft, scores_, Side::kRight, symbols.scores), {symbols.scores.depth});
    score = masked(draft, symbols, result_of(draft, scores_, symbols.scores, score));
    const ExprId weight = build.named("weight", build.cast(values_.left.dtype, score));
    const ExprId sum = build.named(
        "sum", build.dot(weight, operand(draft, values_, Side::kRight, symbols.values), {symbols.values.depth}));
    store_values(draft, symbols, sum, kernel::kNoExpr);
    finish(draft, schedule_of(draft, symbols, {}, false, false));
  }

  ExprId masked(KernelDraft& draft, const Symbols& symbols, ExprId score) const {
    kernel::Builder& build = draft.build;
    if (!attention_.scores->kernel.stores.empty())
      score = build.cast(DType::f32,
                         value_after(draft, *attention_.scores, symbols.scores, build.cast(scores_.left.dtype, score)));
    const ExprId lowest = build.constant(DType::f32, -std::numeric_limits<double>::infinity());
    if (attention_.mask) {
      const ExprId mask = shared_operand(draft, scores_, *attention_.mask, symbols.scores);
      // PyTorch adds -inf where a mask is false: an infinite score becomes NaN there.
      const ExprId added = attention_.mask->dtype == DType::b1
                               ? build.op(ScalarOp::kSelect, {mask, build.constant(DType::f32, 0.0), lowest})
                               : build.cast(DType::f32, mask);
      score = build.op(ScalarOp::kAdd, {score, added});
    }
    return score;
  }

  static ExprId up_to_the_query(KernelDraft& draft, const Symbols& symbols, ExprId score) {
    kernel::Builder& build = draft.build;
    const auto place = [&](kernel::Symbol symbol) { return build.index(kernel::symbol_index(symbol), DType::i32); };
    const ExprId before = build.op(ScalarOp::kLessEqual, {place(symbols.scores.column), place(symbols.scores.row)});
    return build.op(ScalarOp::kSelect,
                    {before, score, build.constant(DType::f32, -std::numeric_limits<double>::infinity())});
  }

  // --- Rows that are no sums of halves ---

  // For each head: 1 where every one of its queries is computed again, because of its keys or values; and how many
  // large numbers each of its keys has at least.
  void find_whole_heads(const Operands& halves) {
    const Shape strides = contiguous_strides(values_.batch);
    whole_heads_ = scratch("whole_heads", DType::f32, values_.batch, strides);
    least_large_ = scratch("least_large", DType::i32, values_.batch, strides);
    KernelDraft draft("whole_heads_kernel",
                      "Heads all of whose queries are computed again: keys or values are no halves.");
    Symbols symbols;
    symbols.scores.batch = symbols.values.batch = draft.batch_axes(values_.batch);
    symbols.scores.row = draft.axis("query", scores_.rows);
    symbols.scores.column = draft.axis("key", scores_.columns);
    symbols.values.column = draft.axis("column", values_.columns);
    kernel::Builder& build = draft.build;
    const auto most = [&](ExprId value, kernel::Symbol axis) {
      return build.reduce(kernel::ReduceOp::kMax, {value}, {axis});
    };
    const auto least = [&](const SplitOperand& operand, kernel::Symbol axis) {
      return build.reduce(kernel::ReduceOp::kMin, {large(draft, operand, symbols.scores)}, {axis});
    };
    const auto either = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kLogicalOr, {a, b}); };
    const kernel::Symbol key = symbols.scores.column, query = symbols.scores.row, column = symbols.values.column;
    const auto flag = [&](ExprId condition) {
      return build.op(ScalarOp::kSelect, {condition, build.constant(DType::f32, 1.0), build.constant(DType::f32, 0.0)});
    };
    const auto any = [&](ExprId condition, kernel::Symbol axis) {
      return build.op(ScalarOp::kGreater, {most(flag(condition), axis), build.constant(DType::f32, 0.0)});
    };
    const ExprId keys = any(is_too_large(build, scale(draft, halves.key, symbols.scores)), key);
    const ExprId miss = build.op(ScalarOp::kGreaterEqual,
                                 {most(needs(draft, halves.key, symbols.scores), key), least(halves.query, query)});
    // What weights the values will meet is not known yet.
    const ExprId loses = build.op(ScalarOp::kGreaterEqual,
                                  {needs(draft, halves.value, symbols.values), build.constant(DType::i32, int64_t{0})});
    const ExprId values = any(either(is_too_large(build, scale(draft, halves.value, symbols.values)), loses), column);
    const std::vector<kernel::Index> heads = places_of_heads(symbols);
    const auto store = [&](const std::string& name, int scratch, DType dtype, ExprId value) {
      const int buffer = draft.buffer(name, dtype, values_.batch, strides, kernel::BufferRole::kOutput, -1 - scratch);
      draft.store(buffer, heads, value);
    };
    store("whole_heads", whole_heads_, DType::f32, flag(either(either(keys, miss), values)));
    store("least_large", least_large_, DType::i32, least(halves.key, key));
    KernelSchedule schedule;
    for (size_t axis = 0; axis < values_.batch.size(); ++axis) schedule.axes.emplace_back();
    for (const int64_t extent : {scores_.rows, scores_.columns})
      schedule.axes.push_back({.mapping = Mapping::kLoop, .width = std::min<int64_t>(next_power_of_two(extent), 2048)});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = next_power_of_two(values_.columns)});
    finish(draft, schedule);
  }

  static std::vector<kernel::Index> places_of_heads(const Symbols& symbols) {
    std::vector<kernel::Index> places;
    for (kernel::Symbol symbol : symbols.values.batch) places.push_back(kernel::symbol_index(symbol));
    return places;
  }

  static ExprId is_too_large(kernel::Builder& build, ExprId scale) {
    return build.op(ScalarOp::kGreater, {scale, build.constant(DType::f32, kLargestScale)});
  }

  ExprId has_no_halves(KernelDraft& draft, const Operands& halves, const Symbols& symbols) const {
    kernel::Builder& build = draft.build;
    const auto of_head = [&](const std::string& name, int scratch, DType dtype) {
      const int buffer = draft.buffer(name, dtype, values_.batch, {}, kernel::BufferRole::kInput, -1 - scratch);
      return draft.load(buffer, places_of_heads(symbols));
    };
    const auto either = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kLogicalOr, {a, b}); };
    const ExprId head = build.op(ScalarOp::kGreater,
                                 {of_head("whole_heads", whole_heads_, DType::f32), build.constant(DType::f32, 0.0)});
    const ExprId miss = build.op(ScalarOp::kGreaterEqual, {needs(draft, halves.query, symbols.scores),
                                                           of_head("least_large", least_large_, DType::i32)});
    const ExprId row = either(is_too_large(build, scale(draft, halves.query, symbols.scores)), miss);
    // Every store's place has a column, and so has its mask.
    const ExprId column = build.op(
        ScalarOp::kGreaterEqual,
        {build.index(kernel::symbol_index(symbols.values.column), DType::i32), build.constant(DType::i32, int64_t{0})});
    return build.op(ScalarOp::kLogicalAnd, {either(head, row), column});
  }

  // --- Schedules ---

  KernelSchedule schedule_of(const KernelDraft& draft, const Symbols& symbols, const std::vector<ExprId>& folds,
                             bool split, bool again) const {
    constexpr int64_t kAgain = 32;  // keys of the kernel in f32, half its queries
    KernelSchedule schedule;
    for (size_t axis = 0; axis < values_.batch.size(); ++axis) schedule.axes.emplace_back();
    const int64_t queries = again ? std::min(blocks_.queries, 2 * kAgain) : blocks_.queries,
                  keys = again ? std::min(blocks_.keys, kAgain) : blocks_.keys;
    // What is computed again has two steps' operands in flight, where they fit.
    const int64_t bytes = (queries * blocks_.features + 2 * keys * (blocks_.features + blocks_.columns)) *
                          size_of(DType::f32);
    const int stages_again = bytes <= blocks_.operand_bytes ? 0 : 1;
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = queries});
    schedule.axes.push_back({.mapping = Mapping::kLoop,
                             .width = keys,
                             .stages = again ? stages_again : blocks_.stages,
                             .online = attention_.has_softmax,
                             .bounded = ends_early(draft, symbols, folds, queries, keys)});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.features});
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = blocks_.columns});
    schedule.scheme = split ? lower::Scheme::kFp16x3 : lower::Scheme::kIeee;
    schedule.bulk = !again && blocks_.bulk;
    schedule.skip_masked = again;
    if (again) schedule.walkers = kProductWalkers;
    schedule.warps = again ? 4 : blocks_.warps;
    return schedule;
  }

  // Does a mask leave nothing behind some key for every block of queries?
  bool ends_early(const KernelDraft& draft, const Symbols& symbols, const std::vector<ExprId>& folds, int64_t queries,
                  int64_t keys) const {
    if (folds.empty() || values_.rows % queries != 0 || values_.depth % keys != 0) return false;
    const kernel::Kernel& kernel = draft.build.kernel();
    const auto end = lower::first_needless(kernel, folds, symbols.values.depth);
    if (!end) return false;
    const auto range = kernel::range_of(*end, kernel::ranges_of(kernel));
    return range.low >= 1 && range.high <= values_.depth && kernel::linear_in(*end, symbols.values.row).has_value();
  }

  const Attention& attention_;
  const Product& scores_;
  const Product& values_;
  const AttentionBlocks& blocks_;
  int whole_heads_ = 0, least_large_ = 0;  // scratch
};

}  // namespace

ScheduledGroup attention_kernels(const LoweredGroup& group, const AttentionBlocks& blocks) {
  return AttentionKernels(group, blocks).run();
}

}  // namespace kw::plan
