#include "targets/cpu/lowering.hpp"

#include "lower/block_numbers.hpp"
#include "lower/chosen_functions.hpp"
#include "lower/extreme_places.hpp"
#include "lower/first_places.hpp"
#include "lower/guarded_boxes.hpp"
#include "lower/lane_bounds.hpp"
#include "lower/lane_ends.hpp"
#include "lower/lane_order.hpp"
#include "lower/late_stores.hpp"
#include "lower/loop_ends.hpp"
#include "lower/loop_marks.hpp"
#include "lower/loop_plan.hpp"
#include "lower/loop_tree.hpp"
#include "lower/named_ends.hpp"
#include "lower/packed.hpp"
#include "lower/place_starts.hpp"
#include "lower/positions.hpp"
#include "lower/refused_stores.hpp"
#include "lower/repeated.hpp"
#include "lower/tile_places.hpp"

namespace kw::cpu {

namespace {

using lower::Lowered;

constexpr lower::TargetStep kSteps[] = {
    {"guard-boxes", [](Lowered& made) { lower::guard_boxes(made.program); }},
    {"end-lanes", [](Lowered& made) { made.ends = lower::end_lanes(made.program); }},
    {"number-blocks", [](Lowered& made) { lower::number_blocks_of_cpu(made.program); }},
    {"extreme-places", [](Lowered& made) { lower::fold_places_along(made.program); }},
    {"order-lanes",
     [](Lowered& made) {
       made.loops = std::make_unique<lower::LoopPlan>();
       made.loops->ranks = lower::rank_lanes(made.program);
     }},
    {"repeat-values",
     [](Lowered& made) { made.loops->is_repeated = lower::find_repeated(made.program, made.loops->ranks); }},
    {"loops",
     [](Lowered& made) {
       made.loops->body = lower::build_loops(made.program, made.loops->ranks, made.loops->is_repeated);
     }},
    {"bound-lanes",
     [](Lowered& made) { lower::bound_lanes(made.program, made.ends, made.loops->is_repeated, made.loops->body); }},
    {"place-repeated",
     [](Lowered& made) { lower::place_repeated(made.program, made.loops->is_repeated, made.loops->body); }},
    {"late-stores", [](Lowered& made) { lower::put_stores_behind_loads(made.loops->body); }},
    {"refused-stores", [](Lowered& made) { lower::mark_refused_stores(made.program, made.loops->body); }},
    {"places", [](Lowered& made) { lower::place_tiles(made.program, *made.loops); }},
    {"positions", [](Lowered& made) { lower::write_compared_positions(made.program, *made.loops); }},
    {"chosen-functions", [](Lowered& made) { lower::compute_before_choices(made.program, made.loops->places); }},
    {"marks", [](Lowered& made) { lower::mark_loops(made.program, *made.loops); }},
    {"packed", [](Lowered& made) { lower::pack(made.program, made.loops->places); }},
    {"loop-ends", [](Lowered& made) { lower::end_loops(made.ends, made.loops->body); }},
    {"first-places", [](Lowered& made) { lower::end_after_first_places(made.program, *made.loops); }},
    {"name-ends", [](Lowered& made) { lower::name_ends(made.program, *made.loops); }},
    {"hoist-starts", [](Lowered& made) { lower::hoist_starts(made.program, *made.loops); }},
};

}  // namespace

std::span<const lower::TargetStep> lowering_steps() { return kSteps; }

std::unique_ptr<const Lowered> priced_loops(const tile::Program& program) {
  auto made = std::make_unique<Lowered>(program);
  for (const lower::TargetStep& step : lowering_steps().subspan(2, std::size(kSteps) - 4)) step.run(*made);
  return made;
}

}  // namespace kw::cpu
