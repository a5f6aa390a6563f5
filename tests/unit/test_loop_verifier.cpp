// Loop plans as text, golden files that KW_UPDATE_GOLDEN=1 prints again, and plans that break a rule.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kernel/text.hpp"
#include "lower/lane_order.hpp"
#include "lower/loop_text.hpp"
#include "lower/loop_tree.hpp"
#include "lower/loop_verifier.hpp"
#include "lower/repeated.hpp"
#include "support/text.hpp"
#include "targets/cpu/lowering.hpp"
#include "tile/text.hpp"

namespace kw::lower {
namespace {

const std::string kGolden = KW_GOLDEN_DIR;

struct Golden {
  const char *name, *kernel, *schedule;
};
constexpr Golden kGoldens[] = {
    {"softmax", "softmax", R"({"row":{"grid":4},"column":{"loop":64,"online":true}})"},
    {"softmax_rows", "softmax", R"({"row":{"loop":1,"threads":true},"column":{"tile":256,"simd":true}})"},
    {"attention", "attention",
     R"({"head":{"grid":1},"query":{"grid":16},"key":{"loop":16,"online":true},"feature":{"tile":16},
         "value":{"tile":16}})"},
    {"running", "running", R"({"row":{"grid":4},"column":{"loop":32}})"},
    {"scatter_owners", "scatter",
     R"({"column":{"loop":1,"simd":true},"row":{"loop":1},"nest":["row","column"],"in_order":true,"owners":4})"},
};

TEST(LoopGolden, PlansReadLikeTheFiles) {
  const char* update = std::getenv("KW_UPDATE_GOLDEN");
  for (const Golden& golden : kGoldens) {
    const kernel::Kernel kernel = kernel::parse_kernel(read_file(kGolden + "/kernel/" + golden.kernel + ".kernel"));
    const auto made = lowered_by(cpu::lowering_steps(),
                                 to_tiles(kernel, parse_schedule(std::string_view(golden.schedule), kernel)));
    const std::string text = print_loops(made->program, *made->loops);
    const std::string path = kGolden + "/loops/" + golden.name + ".loops";
    if (update && std::string(update) == "1") write_file_atomically(path, text);
    EXPECT_EQ(read_file(path), text) << "KW_UPDATE_GOLDEN=1 writes " << path;
  }
}

TEST(LoopText, SaysAfterEachStepWhatIsThere) {
  const kernel::Kernel kernel = kernel::parse_kernel(read_file(kGolden + "/kernel/softmax.kernel"));
  const tile::Program program = to_tiles(kernel, parse_schedule(std::string_view(kGoldens[1].schedule), kernel));
  const auto after = [&](std::string_view step) {
    const auto made = lowered_by(cpu::lowering_steps(), program, nullptr, step);
    return made->loops ? print_loops(made->program, *made->loops) : "";
  };
  EXPECT_EQ(after("end-lanes"), "");
  EXPECT_EQ(after("order-lanes"), "loops of softmax\n  order column\n");
  const std::string loops = after("loops"), places = after("places"), marks = after("marks");
  EXPECT_EQ(loops.find("places\n"), std::string::npos) << loops;
  EXPECT_EQ(places.find("simd"), std::string::npos) << places;
  EXPECT_NE(places.find("places\n"), std::string::npos) << places;
  EXPECT_NE(marks.find("simd"), std::string::npos) << marks;
}

// --- The verifier ---

// Of each row, what is left of its elements' sum; and a wider array, in scratch memory.
constexpr const char* kRows = R"(program rows {
  grid block = 2
  lane row = 4, column = 16, wide = 8192
  launch warps 4
  buffer x: f32[2, 64, 64] input
  buffer y: f32[2, 64, 64] output
  buffer w: f32[8192] input
  buffer v: f32[8192] output
  %a: f32[row, column] = load x[block, row, column]
  %total: f32[row] = fold sum %a over column
  %c: f32[row, column] = div %a, %total
  store y[block, row, column] <- %c
  %b: f32[wide] = load w[wide]
  %d: f32[wide] = exp %b
  %most: f32 = fold max %d over wide
  %e: f32[wide] = sub %d, %most
  %least: f32 = fold min %e over wide
  %f: f32[wide] = sub %e, %least
  %g: f32[wide] = sub %b, %f
  store v[wide] <- %g
  for at = 0 to 4 carry %sum: f32 = %least -> %end {
    %next: f32 = add %sum, %most
    yield %next
  }
  store y[block, 1, 1] <- %end
}
)";

struct Broken {
  explicit Broken(const char* text = kRows)
      : made(lowered_by(cpu::lowering_steps(), tile::parse_program(text))), plan(*made->loops) {}

  std::shared_ptr<const Lowered> made;
  const tile::Program& program = made->program;
  LoopPlan plan;

  tile::Value value(const std::string& name) const {
    for (size_t i = 0; i < program.values.size(); ++i)
      if (program.values[i].name == name) return static_cast<tile::Value>(i);
    throw std::runtime_error("no value is called " + name);
  }
  TilePlace& place(const std::string& name) { return plan.places[value(name)]; }

  // The list of steps that has the loop or instruction with this text, and where in it.
  std::pair<std::vector<LoopStep>*, size_t> find(const std::string& text, std::vector<LoopStep>& steps) const {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (print_step(program, steps[i]).starts_with(text)) return {&steps, i};
      if (const auto found = find(text, steps[i].body); found.first) return found;
    }
    return {nullptr, 0};
  }
  LoopStep& step(const std::string& text) {
    const auto [steps, place] = find(text, plan.body);
    if (!steps) throw std::runtime_error("no step is " + text);
    return (*steps)[place];
  }
  void erase(const std::string& text) {
    const auto [steps, place] = find(text, plan.body);
    if (!steps) throw std::runtime_error("no step is " + text);
    steps->erase(steps->begin() + static_cast<std::ptrdiff_t>(place));
  }

  std::string fault() const { return find_loop_fault(program, plan); }
};

TEST(LoopVerifier, TakesWhatTheStepsMake) {
  EXPECT_EQ(Broken().fault(), "") << print_loops(Broken().program, Broken().plan);
  EXPECT_EQ(Broken().place("b").home, Home::kScratch);
}

TEST(LoopVerifier, EveryInstructionStandsOnceWhereTheProgramHasIt) {
  Broken missing;
  missing.erase("store y");
  EXPECT_EQ(missing.fault(), "loops of tile program 'rows': an instruction without results stands nowhere");
  Broken twice;
  twice.plan.body.push_back(twice.step("store y"));
  EXPECT_EQ(twice.fault(), "loops of tile program 'rows', 'store y': it reads '%c' outside a loop over 'row'");
  Broken again;
  again.step("lane row").body.push_back(again.step("lane row").body.back());
  EXPECT_EQ(again.fault(), "loops of tile program 'rows': '%c' stands 2 times, and is not repeated");
  Broken moved;
  LoopStep loop = moved.step("lane row");
  moved.erase("lane row");
  moved.step("for at").body.push_back(loop);
  EXPECT_EQ(moved.fault(), "loops of tile program 'rows', '%a': it stands in another body than in the program");
  Broken other;
  const tile::Program copy = other.program;
  other.step("%next").instruction = &copy.body[0];
  EXPECT_EQ(other.fault(), "loops of tile program 'rows': an instruction is not one of the program's");
}

TEST(LoopVerifier, LanesAreOpenOrInArrays) {
  Broken outside;
  LoopStep& row = outside.step("lane row");
  const LoopStep column = row.body.back();
  row.body.back() = column.body.front();
  EXPECT_EQ(outside.fault(), "loops of tile program 'rows', '%c': it reads '%a' outside a loop over 'column'");
  Broken inside;
  inside.step("lane column").lane = inside.plan.body[0].lane;
  EXPECT_NE(inside.fault().find("is inside another one"), std::string::npos) << inside.fault();
  Broken kept;
  kept.place("a").home = Home::kVariable;
  kept.place("a").lanes.clear();
  EXPECT_EQ(kept.fault(), "loops of tile program 'rows', '%c': '%a' is of another loop over 'column'");
}

TEST(LoopVerifier, ValuesAreMadeAndDeclaredBeforeTheyAreUsed) {
  Broken early;
  LoopStep& row = early.step("lane row");
  std::swap(row.body.front().body, row.body.back().body);
  EXPECT_EQ(early.fault(), "loops of tile program 'rows', '%c': '%a' is used before it is made");
  Broken undeclared;
  LoopStep& first = undeclared.step("lane row").body.front();
  ASSERT_FALSE(first.declared.empty());
  std::erase(first.declared, undeclared.value("a"));
  EXPECT_EQ(undeclared.fault(), "loops of tile program 'rows', '%a': '%a' is in an array that is not declared");
  Broken twice;
  twice.step("lane row").body.back().declared.push_back(twice.value("a"));
  EXPECT_NE(twice.fault().find("'%a' is declared where it is declared already"), std::string::npos) << twice.fault();
  Broken fold;  // read by the loop that makes it
  LoopStep& column = fold.step("lane row").body.front();
  column.body.push_back(fold.step("lane row").body.back().body.front());
  EXPECT_EQ(fold.fault(), "loops of tile program 'rows', '%c': '%total' is used before it is made");
}

TEST(LoopVerifier, StartsAreKnownBeforeTheirStepAndMakePlaces) {
  Broken whole;
  const std::string text = print_loops(whole.program, whole.plan);
  EXPECT_NE(text.find("\n  start x_start = block * 4096\n  lane row"), std::string::npos) << text;
  EXPECT_NE(text.find("\n    start x_at_row = x_start + row * 64\n    lane column"), std::string::npos) << text;
  Broken early;
  std::swap(early.step("lane row").starts, early.step("lane row").body.front().starts);
  EXPECT_EQ(early.fault(),
            "loops of tile program 'rows', 'lane row = 4': 'x_at_row' is added to what is computed elsewhere");
  const int first = whole.step("lane row").starts.front();
  Broken outside;
  tile::Index& start = outside.plan.starts[first].index;
  start = start + kernel::symbol_index(outside.step("lane row").lane);
  EXPECT_EQ(outside.fault(),
            "loops of tile program 'rows', 'lane row = 4': 'x_start' is computed outside a loop over 'row'");
  Broken variable;
  variable.plan.starts[first].index = kernel::symbol_index(variable.step("for at").instruction->symbol);
  EXPECT_NE(variable.fault().find("'x_start' is computed outside the loop of 'at'"), std::string::npos);
  Broken beside;
  beside.plan.starts[first].index = beside.plan.starts[first].index + tile::Index(1);
  EXPECT_NE(beside.fault().find("a place in 'x' is not its start and what is left"), std::string::npos);
  Broken missing;
  missing.step("lane row").starts.clear();
  EXPECT_NE(missing.fault().find("computed elsewhere"), std::string::npos) << missing.fault();
}

TEST(LoopVerifier, EndsAreComputedBeforeTheirLoops) {
  constexpr const char* kEnding = R"(program ending {
  grid block = 2
  lane row = 4
  launch warps 4
  buffer x: f32[6] input
  buffer y: f32[6] output
  %at: i32[row] = index block * 4 + row
  %six: i32 = constant 6
  %inside: b1[row] = less %at, %six
  %a: f32[row] = load x[block * 4 + row] where %inside otherwise 0.0
  %b: f32[row] = exp %a
  store y[block * 4 + row] <- %b where %inside
}
)";
  Broken whole(kEnding);
  const std::string text = print_loops(whole.program, whole.plan);
  EXPECT_NE(text.find("\n  end row = 6 - block * 4\n  lane row = 4 to"), std::string::npos) << text;
  EXPECT_EQ(whole.fault(), "");
  Broken missing(kEnding);
  missing.step("lane row").named_ends.clear();
  EXPECT_NE(missing.fault().find("the loop's end is computed elsewhere"), std::string::npos) << missing.fault();
  Broken other(kEnding);
  other.plan.named_ends[0].end = other.plan.named_ends[0].end + tile::Index(1);
  EXPECT_NE(other.fault().find("the loop's end is named as another one is"), std::string::npos) << other.fault();
  Broken fewer(kEnding);
  fewer.plan.named_ends[0].points = tile::Index(3);
  EXPECT_NE(fewer.fault().find("the points of 'row' before its end are others"), std::string::npos) << fewer.fault();
  Broken outside(kEnding);
  outside.plan.named_ends[0].end = kernel::symbol_index(outside.step("lane row").lane);
  EXPECT_NE(outside.fault().find("the end of 'row' is computed outside a loop over 'row'"), std::string::npos)
      << outside.fault();
}

TEST(LoopVerifier, FoldsBeginBeforeLoopsOverTheirLanes) {
  Broken never;
  never.step("lane row").body.front().folds.clear();
  EXPECT_NE(never.fault(), "");
  Broken elsewhere;
  std::swap(elsewhere.step("lane row").folds, elsewhere.step("lane row").body.front().folds);
  EXPECT_EQ(
      elsewhere.fault(),
      "loops of tile program 'rows', 'lane row = 4 folds %total in_parts': '%total' begins before a loop over another "
      "lane than it folds");
  Broken twice;
  auto& folds = twice.step("lane row").body.front().folds;
  folds.push_back(folds.front());
  EXPECT_NE(twice.fault().find("'%total' begins twice"), std::string::npos) << twice.fault();
}

BegunFold* find_fold(Broken& plan, const std::string& result, std::vector<LoopStep>& steps) {
  for (LoopStep& step : steps) {
    for (BegunFold& begun : step.folds)
      if (plan.program.values[begun.fold->results[0]].name == result) return &begun;
    if (BegunFold* found = find_fold(plan, result, step.body)) return found;
  }
  return nullptr;
}
BegunFold& begun_fold(Broken& plan, const std::string& result) {
  BegunFold* found = find_fold(plan, result, plan.plan.body);
  if (!found) throw std::runtime_error("no loop folds " + result);
  return *found;
}

// Beside a sum, an extreme of floats and one of whole numbers: of a row, and of a column, whose parts are an array.
constexpr const char* kExtremes = R"(program extremes {
  lane row = 4, column = 16
  launch warps 4
  buffer x: f32[4, 16] input
  buffer n: i32[4, 16] input
  buffer y: f32[4] output
  buffer z: f32[16] output
  buffer m: i32[4] output
  %a: f32[row, column] = load x[row, column]
  %whole: i32[row, column] = load n[row, column]
  %total: f32[row] = fold sum %a over column
  %most: f32[row] = fold max %a over column
  %count: i32[row] = fold min %whole over column
  %highest: f32[column] = fold max %a over row
  %sums: f32[column] = fold sum %a over row
  %both: f32[row] = add %total, %most
  store y[row] <- %both
  store m[row] <- %count
  %summed: f32[column] = add %highest, %sums
  store z[column] <- %summed
}
)";

TEST(LoopVerifier, FoldsSideBySideAreInPartsAndLoseNoNan) {
  Broken made(kExtremes);
  EXPECT_EQ(made.fault(), "");
  const std::string text = print_loops(made.program, made.plan);
  EXPECT_NE(text.find("%total in_parts"), std::string::npos) << text;
  EXPECT_NE(text.find("%most in_parts flags_nan"), std::string::npos) << text;
  EXPECT_TRUE(begun_fold(made, "count").in_parts && !begun_fold(made, "count").flags_nan) << text;
  EXPECT_FALSE(begun_fold(made, "highest").in_parts || begun_fold(made, "highest").flags_nan) << text;

  Broken one(kExtremes);
  begun_fold(one, "total").in_parts = false;
  EXPECT_NE(one.fault().find("'%total' is one variable, and points that it folds are met side by side"),
            std::string::npos)
      << one.fault();
  Broken apart(kExtremes);
  begun_fold(apart, "highest").in_parts = true;
  EXPECT_NE(apart.fault().find("'%highest' is folded in parts, and nothing runs side by side"), std::string::npos)
      << apart.fault();
  Broken lost(kExtremes);
  begun_fold(lost, "most").flags_nan = false;
  EXPECT_NE(lost.fault().find("'%most' is compared in parts, and nothing says whether NaN is met"), std::string::npos)
      << lost.fault();
  Broken flagged(kExtremes);
  begun_fold(flagged, "count").flags_nan = true;
  EXPECT_NE(flagged.fault().find("'%count' flags NaN, which it does not lose"), std::string::npos) << flagged.fault();
}

TEST(LoopVerifier, ThreadsDoNotShareAnArrayOfExtremes) {
  std::string text = kExtremes;
  text.replace(text.find("row = 4"), 7, "row = 4 shared");
  Broken made(text.c_str());
  EXPECT_EQ(made.fault(), "");
  std::vector<LoopStep*> loops;
  for (LoopStep& step : made.plan.body)
    if (!step.instruction && !step.folds.empty()) loops.push_back(&step);
  ASSERT_EQ(loops.size(), 1U) << print_loops(made.program, made.plan);
  EXPECT_EQ(loops[0]->shared, 0);
  loops[0]->shared = 1;
  EXPECT_NE(made.fault().find("threads combine '%highest' by comparisons, and nothing says whether NaN is met"),
            std::string::npos)
      << made.fault();
}

// Running sums of rows that are walked side by side.
constexpr const char* kWalks = R"(program walks {
  lane row = 4, column = 16
  launch warps 4
  buffer x: f32[4, 16] input
  buffer y: f32[4, 16] output
  %a: f32[row, column] = load x[row, column]
  %running: f32[row, column] = scan sum %a along column
  store y[row, column] <- %running
}
)";

TEST(LoopVerifier, WalksKeepWhatTheyHaveMetOfEachRow) {
  Broken made(kWalks);
  EXPECT_EQ(made.fault(), "");
  const std::string text = print_loops(made.program, made.plan);
  EXPECT_NE(text.find("scans %running of row\n"), std::string::npos) << text;
  made.step("lane column").scans[0].kept.clear();
  EXPECT_NE(made.fault().find("what '%running' has met is not kept of each row that is walked beside others"),
            std::string::npos)
      << made.fault();
}

// Rows in memory, and what is computed, sorted down columns.
constexpr const char* kSorts = R"(program sorts {
  grid block = 2
  lane row = 4, column = 16
  launch warps 4
  buffer x: f32[2, 4, 16] input
  buffer y: f32[2, 4, 16] output
  buffer at: i32[2, 4, 16] output
  buffer z: f32[2, 4, 16] output
  %a: f32[row, column] = load x[block, row, column]
  %place: i32[column] = index column
  %none: i32 = constant 0
  %everywhere: b1[row, column] = constant true
  %places: i32[row, column] = select %everywhere, %place, %none
  %up: f32[row, column], %found: i32[row, column] = scan sort_up %a, %places along column
  store y[block, row, column] <- %up
  store at[block, row, column] <- %found
  %b: f32[row, column] = exp %a
  %down: f32[row, column] = scan sort_down %b along row
  store z[block, row, column] <- %down
}
)";

TEST(LoopVerifier, RowsAreSortedSideBySide) {
  Broken made(kSorts);
  EXPECT_EQ(made.fault(), "");
  const std::string text = print_loops(made.program, made.plan);
  EXPECT_NE(text.find("%up, %found from_memory takes_places\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%down copies %b, %down\n"), std::string::npos) << text;
  Broken apart(kSorts);
  apart.step("%down").rows.copied.pop_back();
  EXPECT_NE(apart.fault().find("rows of '%down' lie apart, and are sorted in place"), std::string::npos)
      << apart.fault();
  Broken copied(kSorts);
  copied.step("%up").rows.copied.push_back(copied.value("up"));
  EXPECT_NE(copied.fault().find("rows of '%up' lie side by side, and are copied"), std::string::npos) << copied.fault();
  Broken nowhere(kSorts);
  nowhere.step("%down").rows.load = nowhere.step("%up").rows.load;
  EXPECT_NE(nowhere.fault().find("it reads '%b' from where no load finds its rows"), std::string::npos)
      << nowhere.fault();
}

// The place of each row's extreme, and of each column's.
constexpr const char* kPlaces = R"(program places {
  lane row = 4, column = 16
  launch warps 4
  buffer x: f32[4, 16] input
  buffer y: i64[4] output
  buffer z: i64[16] output
  %a: f32[row, column] = load x[row, column]
  %found: i64[row] = fold arg_max %a over column
  %least: i64[column] = fold arg_min %a over row
  store y[row] <- %found
  store z[column] <- %least
}
)";

TEST(LoopVerifier, WhatFoldsTakeAlongMeetsOnePointAfterTheOther) {
  EXPECT_EQ(Broken(kPlaces).fault(), "");
  EXPECT_NE(print_loops(Broken(kPlaces).program, Broken(kPlaces).plan).find("folds %found_extreme, %found_left"),
            std::string::npos)
      << print_loops(Broken(kPlaces).program, Broken(kPlaces).plan);
  Broken simd(kPlaces);
  const auto along = [](Broken& one, const std::string& result) -> LoopStep& {
    for (LoopStep& row : one.plan.body)
      for (LoopStep& column : row.body)
        for (const LoopStep& step : column.body)
          if (print_step(one.program, step).starts_with(result)) return column;
    throw std::runtime_error("no loop has " + result);
  };
  ASSERT_FALSE(along(simd, "%found_extreme").simd);
  along(simd, "%found_extreme").simd = true;
  EXPECT_EQ(simd.fault(),
            "loops of tile program 'places', '%found_extreme, %found_left': '%found_extreme' takes a value along a "
            "loop whose iterations run side by side");
  std::string text = kPlaces;
  text.replace(text.find("column = 16"), 11, "column = 16 shared");
  Broken shared(text.c_str());
  EXPECT_EQ(shared.fault(), "");
  ASSERT_EQ(along(shared, "%found_extreme").shared, 0);
  along(shared, "%found_extreme").shared = 1;
  EXPECT_NE(shared.fault().find("takes a value along a loop whose iterations run side by side"), std::string::npos)
      << shared.fault();
}

TEST(LoopVerifier, FoldsAreDonePointByPoint) {
  const tile::Program program = tile::parse_program(kPlaces);
  LoopPlan plan;
  plan.ranks = rank_lanes(program);
  plan.is_repeated = find_repeated(program, plan.ranks);
  plan.body = build_loops(program, plan.ranks, plan.is_repeated);
  EXPECT_NE(find_loop_fault(program, plan).find("is a fold by arg_min, which no loop does point by point"),
            std::string::npos)
      << find_loop_fault(program, plan);
}

// An index that may be refused, and stores at such places: at once, and in a loop of their own.
constexpr const char* kRefused = R"(program refused {
  grid block = 2
  lane column = 16
  launch warps 4
  buffer at: i32[2, 8] input
  buffer x: f32[2, 8, 16] input
  buffer y: f32[64, 16] inout
  buffer z: f32[64] inout
  for row = 0 to 8 step 1 {
    %place: i32 = load at[block, row]
    %size: i32 = constant 64
    %safe: i32 = bounded %place, %size
    %first: f32 = load x[block, row, 0]
    store z[%safe] <- %first
    %a: f32[column] = load x[block, row, column]
    store y[%safe, column] <- %a
  }
}
)";

TEST(LoopVerifier, NoStoreWhereDataSayIsReachedBehindARefusedIndex) {
  EXPECT_EQ(Broken(kRefused).fault(), "");
  Broken loop(kRefused);
  loop.step("lane column = 16 unless_refused").unless_refused = false;
  EXPECT_EQ(
      loop.fault(),
      "loops of tile program 'refused', 'store y': it stores where data say, behind an index that may be refused");
  Broken store(kRefused);
  store.step("store z unless_refused").unless_refused = false;
  EXPECT_EQ(
      store.fault(),
      "loops of tile program 'refused', 'store z': it stores where data say, behind an index that may be refused");
  Broken outside(kRefused);
  outside.step("for row").unless_refused = true;
  EXPECT_EQ(outside.fault(),
            "loops of tile program 'refused', 'for row unless_refused': no loop goes on instead of it behind a refused "
            "index");
}

TEST(LoopVerifier, MarksFitTheirLoops) {
  Broken simd;
  simd.step("lane row").simd = true;
  EXPECT_EQ(simd.fault(),
            "loops of tile program 'rows', 'lane row = 4 simd': a loop whose iterations run side by side has a loop "
            "inside");
  Broken moves;
  moves.step("lane column").moves = true;
  EXPECT_NE(moves.fault().find("a loop that moves memory does something else, too"), std::string::npos);
  Broken product;
  product.step("%next").product = {.way = Product::Way::kColumns, .column = -1};
  EXPECT_EQ(product.fault(), "loops of tile program 'rows', '%next columns': what is no dot is computed as one");
  Broken lane;
  lane.step("lane row").shared = 1;
  EXPECT_EQ(lane.fault(),
            "loops of tile program 'rows', 'lane row = 4 shared 1': threads share a lane that is not shared");
  Broken shared;
  shared.step("for at").shared = 1;
  EXPECT_EQ(shared.fault(), "loops of tile program 'rows', 'for at shared 1': threads share what is no shared loop");
}

// A product by the function; planes have a loop of their own.
constexpr const char* kProducts = R"(program products {
  grid block = 2
  lane plane = 2, m = 16, k = 32, n = 16
  launch warps 4
  buffer x: f32[2, 2, 16, 32] input
  buffer w: f32[2, 32, 16] input
  buffer y: f32[2, 2, 16, 16] output
  %a: f32[plane, m, k] = load x[block, plane, m, k]
  %b: f32[plane, k, n] = load w[plane, k, n]
  %zero: f32[plane, m, n] = constant 0.0
  %sum: f32[plane, m, n] = dot %zero, %a, %b
  store y[block, plane, m, n] <- %sum
}
)";

TEST(LoopVerifier, ProductsWalkEachOfTheirLanesOnce) {
  Broken made(kProducts);
  EXPECT_EQ(made.fault(), "");
  const std::string text = print_loops(made.program, made.plan);
  EXPECT_NE(text.find("%sum call along n loops plane rows m columns n depth k\n"), std::string::npos) << text;
  const auto fault_of = [](const auto& change) {
    Broken broken(kProducts);
    change(broken.step("%sum").product);
    return broken.fault();
  };
  const char* once = "the dot does not walk each of its lanes once";
  EXPECT_NE(fault_of([](Product& product) { product.loops.clear(); }).find(once), std::string::npos);
  EXPECT_NE(fault_of([](Product& product) { product.rows = product.columns; }).find(once), std::string::npos);
  EXPECT_NE(fault_of([](Product& product) { product.depth.push_back(product.depth[0]); }).find(once),
            std::string::npos);
  EXPECT_NE(fault_of([](Product& product) {
              product.right = product.left;
            }).find("the dot multiplies something else than its operands"),
            std::string::npos);
}

TEST(LoopVerifier, PlacesFitWhatTheyHold) {
  Broken lanes;
  lanes.place("a").lanes.clear();
  EXPECT_NE(lanes.fault(), "");
  Broken packed;
  packed.place("total").packed = true;
  EXPECT_EQ(packed.fault(), "loops of tile program 'rows': '%total' is packed, and no float of 16 bits or fewer");
  Broken written;
  written.place("total").home = Home::kWritten;
  EXPECT_EQ(written.fault(),
            "loops of tile program 'rows': '%total' is written where it is used, but no constant or position");
  Broken storage;
  storage.place("total").storage = storage.value("a");
  EXPECT_NE(storage.fault(), "");
}

TEST(LoopVerifier, ScratchMemoryIsNotSharedByWhatIsNeededAtOnce) {
  Broken overlap;
  ASSERT_NE(overlap.place("b").storage, overlap.place("d").storage);
  const int64_t offset = overlap.place("b").offset;
  for (TilePlace& place : overlap.plan.places)
    if (place.home == Home::kScratch) place.offset = offset;
  EXPECT_NE(overlap.fault().find("overlap in the scratch memory"), std::string::npos) << overlap.fault();
  Broken beyond;
  beyond.plan.scratch_bytes -= 128;  // the last line is to spare
  EXPECT_NE(beyond.fault().find("leaves the scratch memory"), std::string::npos) << beyond.fault();
  Broken taken;  // %b is read after %d is made
  for (const char* name : {"d", "e", "f"}) taken.place(name) = taken.place("b");
  EXPECT_EQ(taken.fault(), "loops of tile program 'rows': '%b' is still needed when '%d' takes its place");
}

}  // namespace
}  // namespace kw::lower
