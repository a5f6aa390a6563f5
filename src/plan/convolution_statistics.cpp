#include "plan/convolution_statistics.hpp"

#include <algorithm>
#include <numeric>

#include "plan/axes.hpp"
#include "plan/group_tiles.hpp"

namespace kw::plan {

using kernel::ExprId;
using kernel::ScalarOp;

namespace {

constexpr int64_t kWidest = 8192;  // parts that a program has in registers

// The sum of ones and zeros along lanes, of which they need not depend on all: where all places of a phase count.
ExprId count_of(kernel::Builder& build, ExprId counted, const std::vector<kernel::Symbol>& lanes) {
  const std::vector<bool> depends = kernel::dependences(build.kernel())[counted];
  std::vector<kernel::Symbol> along;
  int64_t each = 1;
  for (const kernel::Symbol lane : lanes)
    if (depends[lane]) along.push_back(lane);
    else each *= kernel::as_constant(build.kernel().symbols[lane].extent).value();
  const ExprId sum = along.empty() ? counted : build.reduce(kernel::ReduceOp::kSum, {counted}, along);
  return each == 1 ? sum : build.op(ScalarOp::kMul, {sum, build.constant(DType::f32, static_cast<double>(each))});
}

}  // namespace

bool ConvolutionStatistics::is_of_one_sample() const {
  return one_.is_direct() || one_.places() >= kManyBlocksOfOne * blocks_.positions ||
         (group_.statistics && group_.statistics->are_of_samples());
}

int64_t ConvolutionStatistics::places_of_sample() const {
  if (one_.window() == 1) return places_of_threads(one_, blocks_.rows);
  return std::accumulate(one_.dims.begin(), one_.dims.end(), int64_t{1},
                         [](int64_t count, const ConvolutionDim& dim) { return count * (dim.places / dim.window); });
}

// Of each filter and sample the phases and blocks; so that all parts of one fold lie side by side.
Shape ConvolutionStatistics::parts_shape() const {
  const int64_t samples = is_of_one_sample() ? one_.samples : 1, filters = one_.groups * one_.filters,
                outer = product(outer_phases());
  if (group_.statistics->are_of_samples()) return {samples, filters, rows_of_filter_, outer, blocks_of_places()};
  return {filters, rows_of_filter_, samples, outer, blocks_of_places()};
}

std::vector<kernel::Index> ConvolutionStatistics::place_of(const KernelDraft& draft, const Part& part) const {
  const Index sample = is_of_one_sample() ? part.sample : Index(0),
              inner = kernel::modulo(part.row, rows_of_filter_, kernel::ranges_of(draft.build.kernel()));
  if (group_.statistics->are_of_samples()) return {sample, part.filter, inner, part.phase, part.block};
  return {part.filter, inner, sample, part.phase, part.block};
}

void ConvolutionStatistics::declare_parts() {
  const Shape shape = parts_shape();
  const auto declare = [&](const char* name) { return scratch(name, DType::f32, shape, contiguous_strides(shape)); };
  for (int buffer : group_.buffers) {
    if (buffer >= 0) continue;
    parts_.folds.push_back({declare("part_mean"), declare("part_squares")});
  }
  parts_.count = product(shape) / parallel_points(group_.statistics->group->kernel);
  parts_.length = whole_block();
  parts_.period = blocks_of_places();
  parts_.last = counted_places() * blocks_.rows - (parts_.period - 1) * parts_.length;
  if (has_phases()) parts_.elements = declare("part_elements");
}

void ConvolutionStatistics::store_parts(ScheduledDraft& draft, const Part& part, const std::vector<ExprId>& folded,
                                        ExprId counts, ExprId mask) const {
  kernel::Builder& build = draft.build;
  const auto sum = [&](ExprId value) { return build.reduce(kernel::ReduceOp::kSum, {value}, part.lanes); };
  const auto scaled = [&](ExprId value, ExprId factor) { return build.op(ScalarOp::kMul, {value, factor}); };
  const auto where_counted = [&](ExprId value) {
    return counts == kernel::kNoExpr ? value : build.op(ScalarOp::kSelect, {counts, value, number(build, 0.0)});
  };
  const auto store = [&](const std::string& name, int scratch, ExprId value) {
    const int buffer = draft.buffer(name, DType::f32, parts_shape(), {}, kernel::BufferRole::kOutput, -1 - scratch);
    draft.store(buffer, place_of(draft, part), value, mask);
  };
  const auto width = static_cast<double>(whole_block());
  // How many count, where that is not all.
  ExprId elements = kernel::kNoExpr;
  if (has_phases()) {
    elements = draft.named("elements", count_of(build, where_counted(number(build, 1.0)), part.lanes));
    store("part_elements", parts_.elements, elements);
    elements = build.op(ScalarOp::kMaximum, {elements, number(build, 1.0)});
  } else if (counts != kernel::kNoExpr) {
    const ExprId left = build.index(part.left * Index(blocks_.rows), DType::i32);
    elements = build.cast(DType::f32, build.op(ScalarOp::kMinimum, {left, whole(build, whole_block())}));
  }
  // A value's share of a sum. Where lanes alone say what counts, those that do not have a number of the same fold:
  // where it is infinite the statistics are NaN in any case, and a factor costs less than a choice. A phase that a row
  // lacks has anything.
  const auto weighed = [&](ExprId value, double share) {
    if (has_phases()) return where_counted(scaled(value, number(build, share)));
    return scaled(value, where_counted(number(build, share)));
  };
  for (size_t fold = 0; fold < folded.size(); ++fold) {
    // Of shares of a whole block, so that no sum is larger than the largest value.
    ExprId mean = sum(weighed(folded[fold], 1.0 / width));
    if (elements != kernel::kNoExpr) mean = scaled(mean, build.op(ScalarOp::kDiv, {number(build, width), elements}));
    mean = draft.named("mean", mean);
    const ExprId deviation = draft.named("deviation", build.op(ScalarOp::kSub, {folded[fold], mean}));
    ExprId squares = kernel::kNoExpr;
    if (has_phases()) squares = where_counted(scaled(deviation, deviation));
    else squares = scaled(counts == kernel::kNoExpr ? deviation : weighed(deviation, 1.0), deviation);
    store("part_mean", parts_.folds[fold][0], mean);
    store("part_squares", parts_.folds[fold][1], draft.named("squares", sum(squares)));
  }
}

void ConvolutionStatistics::combine() {
  LoweredGroup finish = combine_parts(*group_.statistics->group, parts_, result_.scratch);
  const int64_t parts = extent_of(finish.kernel.symbols.back()), width = std::min(next_power_of_two(parts), kWidest);
  lower::KernelSchedule schedule = in_single_points(finish.kernel, std::clamp<int64_t>(width / 256, 1, 16));
  schedule.cache_hints = true;
  if (parts > kWidest) schedule.axes.back() = in_loop(width);
  result_.tiles.push_back(as_tiles(std::move(finish), std::move(schedule)));
}

}  // namespace kw::plan
