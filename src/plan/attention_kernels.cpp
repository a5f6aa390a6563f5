#include "plan/attention_kernels.hpp"

#include <algorithm>
#include <limits>

#include "lower/needed.hpp"
#include "plan/attention_axes.hpp"
#include "plan/attention_mask.hpp"
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
constexpr int64_t kKeysAgain = 32;  // of a step of the kernel in f32, half its queries

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
      if (has_parts()) {
        const Shape shape = shape_of_parts(false);
        largest_ = scratch("largest_of_parts", DType::f32, shape, contiguous_strides(shape));
        totals_ = scratch("totals_of_parts", DType::f32, shape, contiguous_strides(shape));
        sums_ = scratch("sums_of_parts", DType::f32, shape_of_parts(true), contiguous_strides(shape_of_parts(true)));
      }
      attend(nullptr, false);
      if (has_parts()) add_parts();
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
  using Symbols = AttentionSymbols;
  using Piece = PieceOfHead;

  struct Operands {
    SplitOperand query, key, value;
  };

  // A kernel of attention before it is scheduled, and its folds.
  struct Unscheduled {
    KernelDraft draft;
    Symbols symbols;
    std::vector<ExprId> folds;
  };

  bool in_powers_of_two() const { return values_.left.dtype != DType::f32; }

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
    if (has_parts()) symbols.scores.part_of_columns = symbols.values.part = draft.axis("part", blocks_.parts);
    symbols.scores.part_size = symbols.values.part_size = keys_of_part();
    symbols.scores.row = symbols.values.row = draft.axis("query", values_.rows);
    symbols.scores.column = symbols.values.depth = draft.axis("key", keys_of_part());
    symbols.features = pieces_of_head(draft, "feature", scores_.depth, blocks_.features);
    symbols.columns = pieces_of_head(draft, "column", values_.columns, blocks_.columns);
    symbols.scores.depth = symbols.features[0].axis;
    symbols.values.column = symbols.columns[0].axis;
    return symbols;
  }

  // The sum over all pieces of a head's features of what `product` makes of one.
  template <typename Product>
  static ExprId over_features(kernel::Builder& build, const Symbols& symbols, Product&& product) {
    ExprId sum = kernel::kNoExpr;
    for (const Piece& piece : symbols.features) {
      const ExprId one = product(along(symbols.scores, piece));
      sum = sum == kernel::kNoExpr ? one : build.op(ScalarOp::kAdd, {sum, one});
    }
    return sum;
  }

  // `again`: in f32, where a query, or a key or values of its head, are no sum of halves.
  void attend(const Operands* halves, bool again) {
    Unscheduled made = unscheduled(halves, again);
    const int64_t queries = again ? std::min(blocks_.queries, 2 * kKeysAgain) : blocks_.queries,
                  keys = again ? std::min(blocks_.keys, kKeysAgain) : blocks_.keys;
    const bool is_bounded = ends_early(made, queries, keys),
               stops = blocks_.last_keys && attention_.has_softmax && !again && !is_bounded && find_last_keys();
    if (stops) made = unscheduled(halves, again);
    KernelSchedule schedule = schedule_of(halves != nullptr && !again, again, queries, keys);
    lower::AxisSchedule& loop = schedule.axes[values_.batch.size() + (has_parts() ? 2 : 1)];
    loop.bounded = is_bounded;
    loop.stops = stops;
    finish(made.draft, schedule);
  }

  Unscheduled unscheduled(const Operands* halves, bool again) const {
    KernelDraft draft(group_.kernel.name + (again ? "_in_f32" : ""),
                      again ? "The same in f32, where rows are no sums of halves." : group_.kernel.doc);
    const Symbols symbols = declare(draft);
    kernel::Builder& build = draft.build;
    const bool split = halves != nullptr && !again;
    const auto number = [&](double value) { return build.constant(DType::f32, value); };
    const auto times = [&](ExprId a, ExprId b) { return build.op(ScalarOp::kMul, {a, b}); };

    if (!attention_.has_softmax) {
      multiply_twice(draft, symbols);
      return {std::move(draft), symbols, {}};
    }
    // Powers of two are what the hardware has, so scores may be in units of log2(e); without anything between the
    // product and the softmax, its factor has that already. In single precision only their differences are: what
    // rounding adds to large scores would not cancel.
    const bool plain = attention_.scores->kernel.stores.empty() && !attention_.mask && !scores_.addend;
    Product scores = scores_;
    if (in_powers_of_two() && plain) scores.alpha *= kLog2OfE;
    ExprId score = kernel::kNoExpr, inside = kernel::kNoExpr;  // of the keys
    if (has_parts() && values_.depth < blocks_.parts * keys_of_part())
      inside = up_to(build, symbols, values_.depth - 1);
    if (split) {
      score = over_features(build, symbols, [&](const ProductSymbols& piece) {
        const ExprId key = ProductKernels::halves(draft, halves->key, piece);
        return build.dot(ProductKernels::halves(draft, halves->query, piece), key, {piece.depth});
      });
      const ExprId of_query = scale(draft, halves->query, symbols.scores);
      score = times(score, scores.alpha == 1.0 ? of_query : times(of_query, number(scores.alpha)));
      score = times(score, scale(draft, halves->key, symbols.scores));
      scores.alpha = 1.0;
    } else {
      score = product_of_scores(draft, symbols, inside);
    }
    score = masked(draft, symbols, result_of(draft, scores, symbols.scores, score));
    if (in_powers_of_two() && !plain) score = times(score, number(kLog2OfE));
    const auto kept = [&](ExprId condition) { return build.op(ScalarOp::kSelect, {condition, score, lowest(build)}); };
    if (attention_.is_causal) score = kept(up_to(build, symbols, kernel::symbol_index(symbols.scores.row)));
    if (inside != kernel::kNoExpr) score = kept(inside);
    if (last_keys_ && !again) score = kept(before_end(draft, symbols));
    build.named("score", score);
    const ExprId largest = build.named("largest",
                                       build.reduce(kernel::ReduceOp::kMax, {score}, {symbols.values.depth}));
    const ExprId weight = build.named("weight", weight_of(build, score, largest, split));
    const ExprId total = build.named("total", build.reduce(kernel::ReduceOp::kSum, {weight}, {symbols.values.depth}));
    const KeptSum kept_sum = kept_weights_of(draft, symbols, score, weight, split);
    ExprId counted = split ? kept_sum.weight : kernel::kNoExpr;
    std::vector<ExprId> folds = {largest, total};
    if (kept_sum.largest != kernel::kNoExpr) folds.push_back(kept_sum.largest);
    const auto row_of_part = [&](const std::string& what, int scratch, ExprId value) {
      std::vector<kernel::Index> row = symbols.values.places_of_part(symbols.values.result_places());
      row.pop_back();
      draft.store(buffer_of_parts(draft, what, scratch, kernel::BufferRole::kOutput), row, value);
    };
    for (const Piece& piece : symbols.columns) {
      const Symbols here = at(symbols, piece);
      const ExprId value = split ? ProductKernels::halves(draft, halves->value, here.values)
                                 : operand(draft, values_, Side::kRight, here.values, inside);
      if (counted == kernel::kNoExpr) counted = build.cast(values_.left.dtype, kept_sum.weight);
      const ExprId sum = draft.build.named(piece.first == 0 ? "sum" : "sum_of_" + std::to_string(piece.first),
                                           product_of(build, counted, value, symbols.values.depth));
      folds.push_back(sum);
      if (has_parts() && piece.first == 0) {
        row_of_part("largest", largest_, largest);
        row_of_part("totals", totals_, total);
      }
      if (has_parts()) {
        draft.store(buffer_of_parts(draft, "sums", sums_, kernel::BufferRole::kOutput),
                    here.values.places_of_part(here.values.result_places()), sum);
        continue;
      }
      ExprId result = with_scale(build, build.op(ScalarOp::kDiv, {over_all(build, sum, kept_sum, largest), total}));
      if (split) result = times(result, scale(draft, halves->value, here.values));
      result = without_rows_of_nothing(build, largest, result);
      ExprId mask = kernel::kNoExpr;
      if (again) mask = draft.named("has_no_halves", has_no_halves(draft, *halves, here));
      store_values(draft, here, result, mask);
    }
    return {std::move(draft), symbols, std::move(folds)};
  }

  // Of queries and keys as they are.
  ExprId product_of_scores(KernelDraft& draft, const Symbols& symbols, ExprId inside) const {
    return over_features(draft.build, symbols, [&](const ProductSymbols& piece) {
      const ExprId key = operand(draft, scores_, Side::kRight, piece, inside);
      return product_of(draft.build, operand(draft, scores_, Side::kLeft, piece), key, piece.depth);
    });
  }

  // PyTorch's operator has zeros where no key is attended to.
  ExprId without_rows_of_nothing(kernel::Builder& build, ExprId largest, ExprId result) const {
    if (!attention_.nothing_is_zero) return result;
    const ExprId nothing = build.op(ScalarOp::kEqual, {largest, lowest(build)});
    return build.op(ScalarOp::kSelect, {nothing, build.constant(DType::f32, 0.0), result});
  }

  // exp(score − largest), as halves times 2^7.
  ExprId weight_of(kernel::Builder& build, ExprId score, ExprId largest, bool split) const {
    const auto number = [&](double value) { return build.constant(DType::f32, value); };
    const ExprId shift = split ? build.op(ScalarOp::kSub, {largest, number(kWeightPower / kLog2OfE)}) : largest;
    ExprId exponent = build.op(ScalarOp::kSub, {score, shift});
    if (!in_powers_of_two()) exponent = build.op(ScalarOp::kMul, {exponent, number(kLog2OfE)});
    return build.op(ScalarOp::kExp2, {exponent});
  }

  // What values are multiplied by: weights of which some are 0, and the largest score that they are relative to, where
  // that is not the largest of all.
  struct KeptSum {
    ExprId weight = kernel::kNoExpr, largest = kernel::kNoExpr;
  };

  // Totals are of all weights. Halves hold a weight to 2^-32 of the largest one, which may be dropped: of what is kept
  // beside it, weights relative to the largest that is kept lose no digits.
  KeptSum kept_weights_of(KernelDraft& draft, const Symbols& symbols, ExprId score, ExprId weight, bool split) const {
    const KeptWeights& weights = attention_.weights;
    if (!weights.group) return {weight};
    kernel::Builder& build = draft.build;
    const ExprId kept = beside_product(draft, *weights.group, symbols.scores.result_places(), weights.kept);
    if (!split)
      return {draft.named("weight_kept", build.op(ScalarOp::kSelect, {kept, weight, build.constant(DType::f32, 0.0)}))};
    const ExprId score_kept = draft.named("score_kept", build.op(ScalarOp::kSelect, {kept, score, lowest(build)}));
    const ExprId largest = draft.named("largest_kept",
                                       build.reduce(kernel::ReduceOp::kMax, {score_kept}, {symbols.values.depth}));
    return {draft.named("weight_kept", weight_of(build, score_kept, largest, split)), largest};
  }

  // The sum relative to the largest score of all, as totals are. Where no weight is kept it is 0.
  ExprId over_all(kernel::Builder& build, ExprId sum, const KeptSum& kept, ExprId largest) const {
    if (kept.largest == kernel::kNoExpr) return sum;
    const ExprId below = build.op(
        ScalarOp::kMul, {build.op(ScalarOp::kSub, {kept.largest, largest}), build.constant(DType::f32, kLog2OfE)});
    const ExprId none = build.op(ScalarOp::kEqual, {kept.largest, lowest(build)});
    return build.op(ScalarOp::kSelect, {none, build.constant(DType::f32, 0.0),
                                        build.op(ScalarOp::kMul, {sum, build.op(ScalarOp::kExp2, {below})})});
  }

  ExprId with_scale(kernel::Builder& build, ExprId result) const {
    const double scale = attention_.weights.scale;
    return scale == 1.0 ? result : build.op(ScalarOp::kMul, {result, build.constant(DType::f32, scale)});
  }

  static ExprId lowest(kernel::Builder& build) {
    return build.constant(DType::f32, -std::numeric_limits<double>::infinity());
  }

  // In f32. Of few rows the operands' elements are multiplied and added up: a dot's block would be mostly empty.
  ExprId product_of(kernel::Builder& build, ExprId left, ExprId right, kernel::Symbol along) const {
    if (blocks_.queries >= kLeastRowsOfDot) return build.dot(left, right, {along});
    const ExprId product = build.op(ScalarOp::kMul, {build.cast(DType::f32, left), build.cast(DType::f32, right)});
    return build.reduce(kernel::ReduceOp::kSum, {product}, {along});
  }

  void store_values(KernelDraft& draft, const Symbols& symbols, ExprId value, ExprId mask) const {
    value = draft.build.cast(values_.right.dtype, result_of(draft, values_, symbols.values, value));
    store_results(draft, group_, symbols.values.result_places(), value, mask);
  }

  // In single precision by f32's own products: what stands for weights may be of any size, so that halves would want a
  // scale for each row of each block, and numbers of TF32 round the largest ones to infinity.
  void multiply_twice(KernelDraft& draft, const Symbols& symbols) const {
    kernel::Builder& build = draft.build;
    const ExprId score = masked(
        draft, symbols, result_of(draft, scores_, symbols.scores, product_of_scores(draft, symbols, kernel::kNoExpr)));
    const ExprId weight = build.named("weight", build.cast(values_.left.dtype, score));
    for (const Piece& piece : symbols.columns) {
      const Symbols here = at(symbols, piece);
      const ExprId sum = draft.named(
          "sum", product_of(build, weight, operand(draft, values_, Side::kRight, here.values), symbols.values.depth));
      store_values(draft, here, sum, kernel::kNoExpr);
    }
  }

  ExprId masked(KernelDraft& draft, const Symbols& symbols, ExprId score) const {
    kernel::Builder& build = draft.build;
    if (!attention_.scores->kernel.stores.empty())
      score = build.cast(DType::f32,
                         value_after(draft, *attention_.scores, symbols.scores, build.cast(scores_.left.dtype, score)));
    if (attention_.mask) {
      const ExprId mask = shared_operand(draft, scores_, *attention_.mask, symbols.scores);
      // PyTorch adds -inf where a mask is false: an infinite score becomes NaN there.
      const ExprId added = attention_.mask->dtype == DType::b1
                               ? build.op(ScalarOp::kSelect, {mask, build.constant(DType::f32, 0.0), lowest(build)})
                               : build.cast(DType::f32, mask);
      score = build.op(ScalarOp::kAdd, {score, added});
    }
    return score;
  }

  // Is the key at a place, or before it?
  static ExprId up_to(kernel::Builder& build, const Symbols& symbols, const kernel::Index& last) {
    return build.op(ScalarOp::kLessEqual,
                    {build.index(symbols.scores.column_index(), DType::i32), build.index(last, DType::i32)});
  }

  // --- The last key of each query ---

  // Where a query attends to a key, and which axes say so: scratch has a number for each point of those but the keys.
  struct LastKeys {
    int scratch = 0;
    std::vector<size_t> axes;  // of the product's batch, then its row
    Shape shape;
  };

  // kNoExpr where there is no mask. `places`: of scores.
  ExprId keeps(KernelDraft& draft, const ProductSymbols& symbols, const std::vector<kernel::Index>& places) const {
    kernel::Builder& build = draft.build;
    if (attention_.mask) {
      const ExprId mask = shared_operand(draft, scores_, *attention_.mask, symbols);
      if (attention_.mask->dtype == DType::b1) return mask;
      return build.op(ScalarOp::kNotEqual, {build.cast(DType::f32, mask), lowest(build)});
    }
    const auto masked = masked_scores(attention_);
    if (!masked) return kernel::kNoExpr;
    const ExprId condition = beside_product(draft, *attention_.scores, places, masked->condition);
    return masked->holds ? condition : build.op(ScalarOp::kLogicalNot, {condition});
  }

  // A kernel that finds them. Returns whether the mask depends on the key.
  bool find_last_keys() {
    KernelDraft probe("probe", "");
    const ProductSymbols all = declare(probe).scores;
    const ExprId found = keeps(probe, all, all.result_places());
    if (found == kernel::kNoExpr) return false;
    const std::vector<bool> depends = kernel::dependences(probe.build.kernel())[found];
    if (!depends[all.column]) return false;

    KernelDraft draft("last_keys_kernel", "One more than the last key that each query attends to.");
    LastKeys last;
    ProductSymbols symbols = all;
    std::vector<kernel::Index> places(values_.batch.size() + 2, 0), row;
    KernelSchedule schedule;
    const auto declare_axis = [&](kernel::Symbol& symbol, size_t place, const std::string& name, int64_t extent) {
      if (!depends[symbol]) return;
      symbol = draft.axis(name, extent);
      places[place] = kernel::symbol_index(symbol);
      row.push_back(places[place]);
      last.axes.push_back(place);
      last.shape.push_back(extent);
      schedule.axes.emplace_back();
    };
    for (size_t axis = 0; axis < values_.batch.size(); ++axis)
      declare_axis(symbols.batch[axis], axis, "batch_" + std::to_string(axis), values_.batch[axis]);
    declare_axis(symbols.row, values_.batch.size(), "query", values_.rows);
    symbols.part_of_columns = -1;
    symbols.column = draft.axis("key", values_.depth);
    places.back() = kernel::symbol_index(symbols.column);
    schedule.axes.push_back(
        {.mapping = Mapping::kLoop, .width = std::min<int64_t>(next_power_of_two(values_.depth), 1024)});
    kernel::Builder& build = draft.build;
    const ExprId behind = build.op(
        ScalarOp::kSelect, {keeps(draft, symbols, places), build.index(places.back() + kernel::Index(1), DType::i32),
                            build.constant(DType::i32, int64_t{0})});
    last.scratch = scratch("last_keys", DType::i32, last.shape, contiguous_strides(last.shape));
    const int buffer = draft.buffer("last_keys", DType::i32, last.shape, {}, kernel::BufferRole::kOutput,
                                    -1 - last.scratch);
    draft.store(buffer, row, build.reduce(kernel::ReduceOp::kMax, {behind}, {symbols.column}));
    finish(draft, schedule);
    last_keys_ = std::move(last);
    return true;
  }

  ExprId before_end(KernelDraft& draft, const Symbols& symbols) const {
    std::vector<kernel::Index> places = symbols.values.result_places(), row;
    for (size_t axis : last_keys_->axes) row.push_back(places[axis]);
    const int buffer = draft.buffer("last_keys", DType::i32, last_keys_->shape, {}, kernel::BufferRole::kInput,
                                    -1 - last_keys_->scratch);
    kernel::Builder& build = draft.build;
    ExprId end = draft.load(buffer, row);
    if (has_parts())
      end = build.op(ScalarOp::kSub, {end, build.index(kernel::symbol_index(symbols.scores.part_of_columns) *
                                                           kernel::Index(keys_of_part()),
                                                       DType::i32)});
    return build.op(ScalarOp::kLess, {build.index(kernel::symbol_index(symbols.scores.column), DType::i32), end});
  }

  // --- Parts of the keys ---

  bool has_parts() const { return blocks_.parts > 1 && attention_.has_softmax && !blocks_.halves; }
  // Whole steps, where parts need not divide the keys.
  int64_t keys_of_part() const {
    const int64_t keys = ceil_divide(values_.depth, blocks_.parts);
    return values_.depth % blocks_.parts == 0 ? keys : ceil_divide(keys, blocks_.keys) * blocks_.keys;
  }

  // Of what each part has for a row, or for each of its columns.
  Shape shape_of_parts(bool columns) const {
    Shape shape = {blocks_.parts};
    shape.insert(shape.end(), values_.batch.begin(), values_.batch.end());
    shape.push_back(values_.rows);
    if (columns) shape.push_back(values_.columns);
    return shape;
  }

  int buffer_of_parts(KernelDraft& draft, const std::string& what, int scratch, kernel::BufferRole role) const {
    return draft.buffer(what + "_of_parts", DType::f32, shape_of_parts(scratch == sums_), {}, role, -1 - scratch);
  }

  // exp(m - M) of each part's sums, m its largest score and M the largest of all. A part without any key adds nothing.
  void add_parts() {
    KernelDraft draft(group_.kernel.name + "_of_parts", "Adds what blocks have summed over parts of the keys.");
    kernel::Builder& build = draft.build;
    ProductSymbols symbols;
    symbols.batch = draft.batch_axes(values_.batch);
    symbols.row = draft.axis("query", values_.rows);
    symbols.part = draft.axis("part", blocks_.parts);
    symbols.column = draft.axis("column", values_.columns);
    const std::vector<kernel::Index> places = symbols.places_of_part(symbols.result_places());
    const std::vector<kernel::Index> row(places.begin(), places.end() - 1);
    const auto load = [&](const std::string& what, int scratch, const std::vector<kernel::Index>& at) {
      return draft.load(buffer_of_parts(draft, what, scratch, kernel::BufferRole::kInput), at);
    };
    const ExprId largest = load("largest", largest_, row);
    const ExprId most = build.named("largest", build.reduce(kernel::ReduceOp::kMax, {largest}, {symbols.part}));
    ExprId exponent = build.op(ScalarOp::kSub, {largest, most});
    if (!in_powers_of_two()) exponent = build.op(ScalarOp::kMul, {exponent, build.constant(DType::f32, kLog2OfE)});
    const ExprId nothing = build.op(ScalarOp::kEqual, {largest, lowest(build)}),
                 factor = build.op(ScalarOp::kExp2, {exponent});
    const auto sum_of = [&](ExprId value) {
      const ExprId scaled = build.op(ScalarOp::kMul, {factor, value});
      const ExprId kept = build.op(ScalarOp::kSelect, {nothing, build.constant(DType::f32, 0.0), scaled});
      return build.reduce(kernel::ReduceOp::kSum, {kept}, {symbols.part});
    };
    const ExprId total = build.named("total", sum_of(load("totals", totals_, row)));
    const ExprId sum = build.named("sum", sum_of(load("sums", sums_, places)));
    const ExprId share = with_scale(build, build.op(ScalarOp::kDiv, {sum, total}));
    const ExprId result = without_rows_of_nothing(build, most, share);
    store_values(draft, {symbols, symbols, {}, {}}, result, kernel::kNoExpr);
    KernelSchedule schedule;
    schedule.axes.resize(values_.batch.size() + 1);
    schedule.axes.push_back({.mapping = Mapping::kTile, .width = next_power_of_two(blocks_.parts)});
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = std::min<int64_t>(blocks_.columns, 64)});
    schedule.warps = 4;
    finish(draft, schedule);
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

  KernelSchedule schedule_of(bool split, bool again, int64_t queries, int64_t keys) const {
    KernelSchedule schedule;
    schedule.axes.resize(values_.batch.size() + (has_parts() ? 1 : 0));
    // What is computed again has two steps' operands in flight, where they fit.
    const std::vector<int64_t> features = lanes_of_pieces(scores_.depth, blocks_.features),
                               columns = lanes_of_pieces(values_.columns, blocks_.columns);
    const auto whole = [](int64_t extent, int64_t widest) { return std::max(next_power_of_two(extent), widest); };
    const int64_t feature_lanes = whole(scores_.depth, blocks_.features),
                  column_lanes = whole(values_.columns, blocks_.columns);
    const int64_t bytes = (queries * feature_lanes + 2 * keys * (feature_lanes + column_lanes)) * size_of(DType::f32);
    const int stages_again = bytes <= blocks_.operand_bytes ? 0 : 1;
    schedule.axes.push_back({.mapping = Mapping::kGrid, .width = queries});
    schedule.axes.push_back({.mapping = Mapping::kLoop,
                             .width = keys,
                             .stages = again ? stages_again : blocks_.stages,
                             .online = attention_.has_softmax});
    for (const std::vector<int64_t>* pieces : {&features, &columns})
      for (const int64_t lanes : *pieces) schedule.axes.push_back({.mapping = Mapping::kTile, .width = lanes});
    schedule.scheme = split ? lower::Scheme::kFp16x3 : lower::Scheme::kIeee;
    schedule.bulk = !again && blocks_.bulk;
    schedule.skip_masked = again;
    if (again) schedule.walkers = kProductWalkers;
    schedule.warps = again ? 4 : blocks_.warps;
    return schedule;
  }

  // Does a mask leave nothing behind some key for every block of queries?
  bool ends_early(const Unscheduled& made, int64_t queries, int64_t keys) const {
    if (made.folds.empty() || has_parts() || values_.rows % queries != 0 || values_.depth % keys != 0) return false;
    const kernel::Kernel& kernel = made.draft.build.kernel();
    const auto end = lower::first_needless(kernel, made.folds, made.symbols.values.depth);
    if (!end) return false;
    const auto range = kernel::range_of(*end, kernel::ranges_of(kernel));
    return range.low >= 1 && range.high <= values_.depth &&
           kernel::linear_in(*end, made.symbols.values.row).has_value();
  }

  const Attention& attention_;
  const Product& scores_;
  const Product& values_;
  const AttentionBlocks& blocks_;
  // Scratch.
  int whole_heads_ = 0, least_large_ = 0;
  int largest_ = 0, totals_ = 0, sums_ = 0;  // of each part
  std::optional<LastKeys> last_keys_;
};

}  // namespace

ScheduledGroup attention_kernels(const LoweredGroup& group, const AttentionBlocks& blocks) {
  return AttentionKernels(group, blocks).run();
}

}  // namespace kw::plan
