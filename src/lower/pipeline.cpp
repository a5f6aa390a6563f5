#include "lower/pipeline.hpp"

#include <algorithm>
#include <chrono>

#include "lower/arrange.hpp"
#include "lower/cache_hints.hpp"
#include "lower/chained_products.hpp"
#include "lower/dead_code.hpp"
#include "lower/folded_stores.hpp"
#include "lower/late_operations.hpp"
#include "lower/loop_plan.hpp"
#include "lower/loop_verifier.hpp"
#include "lower/owners.hpp"
#include "lower/products_first.hpp"
#include "lower/prefetch.hpp"
#include "lower/serpentine.hpp"
#include "lower/shared_loops.hpp"
#include "lower/skip_masked.hpp"
#include "lower/steps_inside.hpp"
#include "lower/three_products.hpp"
#include "lower/unrolled_tiles.hpp"
#include "lower/values.hpp"
#include "lower/walkers.hpp"
#include "lower/wide_accesses.hpp"
#include "support/error.hpp"
#include "tile/consumers.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

// What steps know besides the program: the schedule, and what arrange made of it.
struct Draft {
  const kernel::Kernel& kernel;
  const KernelSchedule& schedule;
  Mapped mapped;

  tile::Program& program() { return mapped.program; }
};

struct Step {
  std::string_view name;
  bool (*is_asked)(const Draft&);  // nullptr: always runs
  void (*run)(Draft&);
};

bool is_unrolled_tile(const MappedAxis& axis) { return axis.unrolled && axis.lane >= 0; }

void take_tiles_apart(Draft& draft) {
  std::vector<tile::Symbol> lanes;
  for (const MappedAxis& axis : draft.mapped.axes)
    if (is_unrolled_tile(axis)) lanes.push_back(axis.lane);
  draft.program() = take_apart(draft.program(), lanes);
  remove_dead_code(draft.program());
}

void put_steps_inside(Draft& draft) {
  const StepsInside& steps = draft.schedule.steps_inside;
  const tile::Program& program = draft.program();
  const auto size = std::find_if(program.symbols.begin(), program.symbols.end(), [&](const tile::SymbolInfo& symbol) {
    return symbol.name == steps.size && symbol.kind == tile::SymbolKind::kSize;
  });
  const auto buffer = [&](const std::string& name) {
    const auto found = std::find_if(program.buffers.begin(), program.buffers.end(),
                                    [&](const tile::Buffer& one) { return one.name == name; });
    KW_ASSERT(found != program.buffers.end(), "a schedule names a buffer that the kernel has");
    return static_cast<int>(found - program.buffers.begin());
  };
  KW_ASSERT(size != program.symbols.end(), "a schedule names a size that the kernel has");
  std::vector<SameMemory> same;
  for (const auto& [read, written] : steps.same) same.push_back({buffer(read), buffer(written)});
  draft.program() = with_steps_inside(draft.program(), static_cast<tile::Symbol>(size - program.symbols.begin()),
                                      steps.count, same);
}

void let_blocks_run_as_one(Draft& draft) {
  draft.program().consumers = draft.mapped.consumers;
  if (const std::string why = tile::why_no_consumers(draft.program()); !why.empty())
    cannot_schedule(draft.kernel, why, "Leave consumers away, or change what they cannot do.");
}

constexpr Step kSteps[] = {
    {"arrange", nullptr, [](Draft& draft) { draft.mapped = arrange(draft.kernel, draft.schedule); }},
    {"fold-combined",
     [](const Draft& draft) {
       return std::any_of(draft.kernel.stores.begin(), draft.kernel.stores.end(),
                          [](const kernel::Store& store) { return store.combines; });
     },
     [](Draft& draft) { fold_before_combining(draft.program()); }},
    {"three-products", [](const Draft& draft) { return draft.schedule.scheme == Scheme::kFp16x3; },
     [](Draft& draft) { write_three_products(draft.program()); }},
    {"run-as-one", [](const Draft& draft) { return draft.schedule.consumers.count > 1; }, let_blocks_run_as_one},
    {"unroll-tiles",
     [](const Draft& draft) {
       return std::any_of(draft.mapped.axes.begin(), draft.mapped.axes.end(), is_unrolled_tile);
     },
     take_tiles_apart},
    {"join-shared-loops",
     [](const Draft& draft) {
       return std::any_of(draft.schedule.axes.begin(), draft.schedule.axes.end(),
                          [](const AxisSchedule& axis) { return axis.threads; });
     },
     [](Draft& draft) { join_shared_loops(draft.program()); }},
    {"own-places", [](const Draft& draft) { return draft.schedule.owners > 0; },
     [](Draft& draft) { own_places(draft.program(), draft.schedule.owners); }},
    {"prefetch",
     [](const Draft& draft) {
       return std::any_of(draft.mapped.nest.begin(), draft.mapped.nest.end(),
                          [](const MappedLoop& loop) { return loop.prefetch > 1; });
     },
     [](Draft& draft) {
       for (const MappedLoop& loop : draft.mapped.nest)
         if (loop.prefetch > 1) prefetch(draft.program(), loop.variable, loop.prefetch);
     }},
    {"serpentine", [](const Draft& draft) { return draft.schedule.serpentine; },
     [](Draft& draft) { turn_later_walks(draft.program()); }},
    {"cache-hints", [](const Draft& draft) { return draft.schedule.cache_hints; },
     [](Draft& draft) { give_cache_hints(draft.program(), folded_symbols(draft.kernel, draft.mapped)); }},
    {"skip-masked", [](const Draft& draft) { return draft.schedule.skip_masked; },
     [](Draft& draft) { skip_masked_blocks(draft.program()); }},
    {"walkers", [](const Draft& draft) { return draft.schedule.walkers > 0; },
     [](Draft& draft) { walk_blocks(draft.program(), draft.mapped.axes, draft.schedule.walkers); }},
    {"products-first", [](const Draft& draft) { return draft.schedule.consumers.count > 1; },
     [](Draft& draft) { put_products_first(draft.program()); }},
    {"wide-accesses", [](const Draft& draft) { return draft.schedule.wide_accesses; },
     [](Draft& draft) { widen_accesses(draft.program()); }},
    {"late-operations", [](const Draft& draft) { return draft.schedule.wide_accesses; },
     [](Draft& draft) { delay_operations(draft.program()); }},
    {"chain-products", [](const Draft& draft) { return !draft.schedule.steps_inside.size.empty(); },
     [](Draft& draft) { chain_products(draft.program()); }},
    {"steps-inside", [](const Draft& draft) { return !draft.schedule.steps_inside.size.empty(); }, put_steps_inside},
};

int64_t instructions_of(const tile::Program& program) {
  int64_t count = 0;
  tile::for_each(program.body, [&](const tile::Instruction&) { ++count; });
  return count;
}

// Runs a step, and notes how long that took.
template <typename Run>
void timed(std::string_view name, const tile::Program& program, LoweringReport* report, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  run();
  if (!report) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report->steps.push_back({name, seconds, instructions_of(program)});
}

}  // namespace

tile::Program to_tiles(const kernel::Kernel& kernel, const KernelSchedule& schedule, LoweringReport* report,
                       std::string_view last) {
  Draft draft{kernel, schedule, {}};
  for (const Step& step : kSteps) {
    if (!step.is_asked || step.is_asked(draft))
      timed(step.name, draft.program(), report, [&] {
        step.run(draft);
        tile::verify(draft.program());
      });
    if (step.name == last) break;
  }
  return std::move(draft.program());
}

Lowered::Lowered(tile::Program made) : program(std::move(made)) {}

Lowered::~Lowered() = default;

std::shared_ptr<const Lowered> lowered_by(std::span<const TargetStep> steps, tile::Program program,
                                          LoweringReport* report, std::string_view last) {
  auto lowered = std::make_shared<Lowered>(std::move(program));
  for (const TargetStep& step : steps) {
    timed(step.name, lowered->program, report, [&] {
      step.run(*lowered);
      tile::verify(lowered->program, lowered->ends);
      if (lowered->loops) verify_loops(lowered->program, *lowered->loops);
    });
    if (step.name == last) break;
  }
  return lowered;
}

std::vector<std::string> step_names(std::span<const TargetStep> of_target) {
  std::vector<std::string> names;
  for (const Step& step : kSteps) names.emplace_back(step.name);
  for (const TargetStep& step : of_target) names.emplace_back(step.name);
  return names;
}

}  // namespace kw::lower
