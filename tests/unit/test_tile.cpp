// Tile programs: text and verifier.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/error.hpp"
#include "tile/text.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

constexpr std::string_view kEverything = R"(program everything {
  doc "every \"instruction\" once"
  size rows = 16..4096 by 16
  size depth = 1..64
  grid row_block = rows / 16, column_block = 4
  lane row = 16, column = 64, inner = 64, n = 8, slow = 32, fast = 2, pair = 2
  launch warps 8 registers 128 approximate contracts narrow
  order grouped 8 (row_block, column_block)
  buffer x: f32[rows, 256] input
  buffer weight: f16[64, 8] input align 4
  buffer table: i32[rows] input
  buffer staged: f16[2, 64, 8] scratch shared
  buffer partial: f32[rows] strides [2] scratch align 128
  buffer count: i64[] inout
  buffer out: f32[rows, 256] strides [8192, 1] output

  %at: i32[column] = index column_block * 64 + column
  %far: i64[row] = index row_block * 17592186044416 + row % 4 wide
  %limit: i32 = constant 250
  %inside: b1[column] = less %at, %limit
  %always: b1 = constant true
  %place: i32[row] = load table[row_block * 16 + row] hint stream
  %size: i32 = constant 4096
  %safe: i32[row] = bounded %place, %size
  %x_tile: f32[row, column] = load x[%safe, column_block * 64 + column] offset i64 where %inside otherwise -inf hint keep
  %counted: i64 = load count[] where %always otherwise any coherent
  %shifted: f32[row] = load x[row_block * 16 + %safe, 0] where %always otherwise 0.0
  %tiny: f32 = constant 0.000244140625
  %scaled: f32[row, column] = mul %x_tile, %tiny
  %half: f16[row, column] = cast %scaled
  %turned: f16[row, inner] = relabel %half column -> inner
  %parted: f32[row, fast, slow] = split %scaled column -> slow, fast
  %both: f32[row, column, pair] = stack %x_tile, %scaled along pair
  %lower: f32[row, column], %upper: f32[row, column] = unstack %both along pair
  %best: f32[row] = fold max %scaled over column
  %best_at: i64[row] = fold arg_max %scaled over column
  %everywhere: b1[row, column] = constant true
  %beside: i32[row, column] = select %everywhere, %place, %limit
  %peak: f32, %peak_at: i32 = fold max %scaled, %beside over row, column
  %running: f32[row, column] = scan sum %scaled along column reversed
  copy plain staged[0, inner, n] <- weight[inner, n] over inner, n
  copy async staged[1, inner, n] <- weight[inner, n] over inner, n where %always
  wait 0
  barrier block
  %w: f16[inner, n] = load staged[0, inner, n]
  %zero: f32[row, n] = constant 0.0
  for step = 0 to depth step 2 stages 3 carry %sums: f32[row, n] = %zero, %most: f32[row] = %best -> %total, %top {
    index after_next: i64 = step + 4
    %next: f32[row, n] = dot %sums, %turned, %w
    %other: f32[row] = maximum %most, %shifted
    for twice = 0 to 2 {
      barrier block
    }
    for twice = 0 to 3 until %limit {
      wait 0
    }
    yield %next, %other
  }
  %close: f32[row, column] = select %inside, %running, %x_tile
  if %always -> %chosen: f32[row] {
    %one: f32[row] = add %top, %peak
    %share: f32[row] = div %one, %peak exact
    %tangent: f32[row] = tanh %share approximate
    %base: f32[row] = exp %tangent
    %power: f32[row] = pow %base, %share approximate nonnegative
    %size_of_part: i32 = floor_div %size, %limit nonnegative
    yield %power
  } else {
    yield %best
  }
  %here: i32 = index column_block
  %none: i32 = constant 0
  %first: b1 = equal %here, %none
  if %first {
    store partial[row_block * 16 + row] <- %chosen
  }
  %zeros: f32[row, column] = constant 0.0
  %square: f32 = constant nan
  %dotted: f32[row] = constant 0.0
  %gram: f32[row] = dot %dotted, %scaled, %close precision tf32
  %finer: f32[row] = dot %dotted, %scaled, %close precision tf32x3
  barrier grid
  %one_more: i64 = constant 1
  store count[] <- %one_more combine sum
  %box: f32[row, column] = load x[row_block * 16 + row, column_block * 64 + column] bulk
  store out[row_block * 16 + row, column_block * 64 + column] <- %close where %inside hint stream
}
)";

TEST(TileText, PrintsWhatItParses) { EXPECT_EQ(print_program(parse_program(kEverything)), kEverything); }

std::string fault_of_blocks(const std::string& body) {
  try {
    parse_program(
        "program blocks {\n  grid block = 4\n  lane i = 8\n  launch warps 4\n  buffer x: f32[8] input\n"
        "  buffer own: f32[1] scratch shared\n  buffer y: f32[8] output\n" +
        body + "}\n");
  } catch (const Error& error) { return error.text().message; }
  return "";
}

TEST(TileWriters, BlocksMayStoreTheSameValueOrPartTheElements) {
  const char* const kept[] = {
      "%v: f32[i] = load x[i]\nstore y[i] <- %v\n",
      "%v: f32 = load x[block]\nstore y[block] <- %v\n",
      "for at = block to 8 step 4 {\n%v: f32 = load x[at]\nstore y[at] <- %v\n}\n",
      "%v: f32 = load x[block]\nstore y[0] <- %v combine sum\n",
      "%here: i32 = index block\n%last: i32 = constant 3\n%mask: b1 = equal %here, %last\n%v: f32 = load x[block]\n"
      "store y[0] <- %v where %mask\n",
      "%v: f32 = load x[0]\nstore own[0] <- %v\nbarrier block\n%w: f32 = load own[0]\nstore y[0] <- %w\n",
  };
  for (const char* body : kept) EXPECT_EQ(fault_of_blocks(body), "") << body;
}

TEST(TileWriters, ValuesOfBlocksAreFollowedThroughLoopsBranchesAndSharedMemory) {
  const char* const refused[] = {
      "%v: f32 = load x[block]\nstore own[0] <- %v\nbarrier block\n%w: f32 = load own[0]\nstore y[0] <- %w\n",
      "%z: f32 = constant 0.0\n%one: f32 = constant 1.0\n"
      "for at = 0 to block carry %sum: f32 = %z -> %all {\n%more: f32 = add %sum, %one\nyield %more\n}\n"
      "store y[0] <- %all\n",
      "%z: f32 = constant 0.0\n%v: f32 = load x[block]\n"
      "for at = 0 to 3 carry %before: f32 = %z, %next: f32 = %z -> %a, %b {\nyield %next, %v\n}\nstore y[0] <- %a\n",
      "%here: i32 = index block\n%last: i32 = constant 3\n%late: b1 = equal %here, %last\n%z: f32 = constant 0.0\n"
      "%one: f32 = constant 1.0\nif %late -> %v: f32 {\nyield %one\n} else {\nyield %z\n}\nstore y[0] <- %v\n",
  };
  for (const char* body : refused)
    EXPECT_NE(fault_of_blocks(body).find("blocks along 'block' store values of their own"), std::string::npos)
        << body << fault_of_blocks(body);
}

TEST(TileText, ReadsWhatPeopleWrite) {
  const std::string_view written = R"(program small { # a comment
    grid block = 4  lane i=8
    buffer x: f32[32] input global buffer y: f32[32] output
    %v: f32[i] = load x[i + 8*block]   # 8 apart
    %c: f32 = constant 0x1p-12
    %r: f32[i] = mul %v,%c
    %rest: i32[i] = index i % 3
    %k: i32[i] = index (i+1) %3
    store y[block * 8 + i] <- %r })";
  const std::string printed = print_program(parse_program(written));
  EXPECT_NE(printed.find("%c: f32 = constant 0.000244140625\n"), std::string::npos);
  EXPECT_NE(printed.find("load x[block * 8 + i]"), std::string::npos);
  EXPECT_NE(printed.find("index i % 3\n"), std::string::npos);
  EXPECT_NE(printed.find("index (i + 1) % 3\n"), std::string::npos);
  EXPECT_EQ(print_program(parse_program(printed)), printed);
}

// Symbols may stand in any order in a program made by code; the text is the same as that of the parsed one.
TEST(TileBuffers, SpanElementsFromTheFirstToTheLastByTheirStrides) {
  const Program program = parse_program(kEverything);
  std::vector<int64_t> elements;
  for (const Buffer& buffer : program.buffers) elements.push_back(elements_spanned(program, buffer));
  // x, weight, table, staged, partial with every second element, a single count, and out with gaps behind its rows: of
  // 4096 rows, the most.
  EXPECT_EQ(elements, (std::vector<int64_t>{4096 * 256, 64 * 8, 4096, 2 * 64 * 8, 4095 * 2 + 1, 1, 4095 * 8192 + 256}));
  Buffer empty;
  empty.shape = {kernel::Index(0), kernel::Index(8)};
  EXPECT_EQ(elements_spanned(program, empty), 0);
}

TEST(TileText, DoesNotDependOnTheOrderOfSymbols) {
  Program program;
  program.name = "mixed";
  program.symbols = {{"column", SymbolKind::kLane, {0, 15, 1}, {}},
                     {"loop", SymbolKind::kLoop, {0, 48, 16}, {}},
                     {"block", SymbolKind::kGrid, {0, 7, 1}, Index(8)}};
  program.grid = {2};
  program.buffers.push_back({.name = "y",
                             .dtype = DType::f32,
                             .shape = {8 * 64},
                             .strides = {},
                             .role = BufferRole::kOutput,
                             .space = Space::kGlobal,
                             .alignment = 16});
  program.values = {{"zero", {DType::f32, {}}}};
  Instruction constant, loop, store;
  constant.results = {0};
  store.kind = Kind::kStore;
  store.operands = {0};
  store.access.buffer = 0;
  store.access.coordinates = {{kernel::symbol_index(0) + kernel::symbol_index(1) + kernel::symbol_index(2) * 64}};
  loop.kind = Kind::kFor;
  loop.symbol = 1;
  loop.end = Index(64);
  loop.step = 16;
  loop.body = {store};
  program.body = {constant, loop};
  EXPECT_EQ(find_fault(program), "");
  const std::string text = print_program(program);
  EXPECT_NE(text.find("store y[block * 64 + column + loop] <- %zero"), std::string::npos) << text;
  EXPECT_EQ(print_program(parse_program(text)), text);
}

struct Wrong {
  std::string_view what, instead, message, where;
};

std::string replaced(std::string_view what, std::string_view instead) {
  std::string text(kEverything);
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  if (at != std::string::npos) text.replace(at, what.size(), instead);
  return text;
}

class TileFaults : public testing::TestWithParam<Wrong> {};

TEST_P(TileFaults, AreNamedWithTheirPlace) {
  const Wrong& wrong = GetParam();
  try {
    parse_program(replaced(wrong.what, wrong.instead));
    FAIL() << "no fault found, but expected: " << wrong.message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_NE(error.text().message.find(wrong.message), std::string::npos) << error.text().message;
    if (!wrong.where.empty()) { EXPECT_EQ(error.text().where, wrong.where); }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, TileFaults,
    testing::Values(
        Wrong{"doc \"every \\\"instruction\\\" once\"", "doc \"every", "this quotation has no end", ""},
        Wrong{"rows / 16,", "ranks / 16,", "nothing is called 'ranks' here", "line 5, column 20"},
        Wrong{"rows / 16,", "rows / 0,", "an index is divided by 0", "line 5, column 27"},
        Wrong{"n = 8", "n = 0", "lane 'n' is 0 wide", "line 6, column 47"},
        Wrong{"launch warps 8", "launch warp 8", "expected 'warps', found 'warp'", "line 7, column 10"},
        Wrong{"(row_block, column_block)", "(row_block, row)", "no dimension of the grid is called 'row'",
              "line 8, column 31"},
        Wrong{"f32[rows, 256] input", "f12[rows, 256] input", "there is no type 'f12'", "line 9, column 13"},
        Wrong{"[64, 8] input", "[64, 8] into", "there is no role of a buffer called 'into'", ""},
        Wrong{"scratch shared", "scratch local", "there is no memory space 'local', only global, shared, cluster",
              "line 12, column 40"},
        Wrong{"strides [8192, 1]", "strides [8192]", "2 dimensions, but 1 strides", "line 15, column 38"},
        Wrong{"i32[column] = index", "i32[columns] = index", "no lane is called 'columns'", "line 17, column 12"},
        Wrong{"= less ", "= lesser ", "there is no operation 'lesser'", "line 20, column 25"},
        Wrong{"less %at", "less %missing", "no value is called '%missing' here", "line 20, column 30"},
        Wrong{"constant true", "constant 1", "expected 'false', found '1'", ""},
        Wrong{"%always: b1 =", "%this: f32 = exp %that\n  %that: f32 = exp %this\n  %always: b1 =",
              "no value is called '%that' here", "line 21, column 20"},
        Wrong{"load table", "load tables", "no buffer is called 'tables'", "line 22, column 27"},
        Wrong{"hint keep", "hint hold", "there is no hint 'hold', only none, keep, stream", ""},
        Wrong{"otherwise -inf", "otherwise low", "expected a number, found 'low'", ""},
        Wrong{"fold max", "fold most", "there is no reduction 'most'", ""},
        Wrong{"copy async", "copy later", "there is no mode of copies called 'later'", ""},
        Wrong{"wait 0", "wait -1", "-1 is not within 0 and", ""},
        Wrong{"barrier grid", "barrier all", "there is no scope of a barrier called 'all'", ""},
        Wrong{"-> %total, %top {", "-> %total {", "the loop carries 2 values, but has 1 results", ""},
        Wrong{"    yield %power\n  } else {", "    yield %power\n    wait 0\n  } else {", "expected '}'", ""},
        Wrong{"precision tf32", "precision tf16", "there is no precision 'tf16'", ""},
        Wrong{"hint stream\n}\n", "hint stream\n}\n}\n", "expected the end of the text", ""},
        Wrong{"%zeros: f32", "%zero: f32", "'zero' is the name of something else already", ""},
        Wrong{"for twice", "for step", "'step' is the name of something else already", ""},
        Wrong{"add %top, %peak", "add %next, %peak", "no value is called '%next' here", ""},
        Wrong{"barrier grid", "%at_last: i32 = index step", "nothing is called 'step' here", ""}));

INSTANTIATE_TEST_SUITE_P(
    Rules, TileFaults,
    testing::Values(
        Wrong{"%square: f32", "%twice: f32", "'twice' names two things", ""},
        Wrong{"program everything", "program class", "'class' is a keyword", "line 1, column 1"},
        Wrong{"size depth = 1..64", "size depth = 65..64", "the range of 'depth' is empty", ""},
        Wrong{"size depth = 1..64", "size depth = 17..31 by 16", "no multiple of 16 is in the range of 'depth'", ""},
        Wrong{"(row_block, column_block)", "(row_block, row_block)", "two dimensions of the grid", ""},
        Wrong{"staged: f16[2, 64, 8]", "staged: f16[2, 64, depth]", "shared memory: its shape must be numbers", ""},
        Wrong{"scratch shared", "output shared", "is on chip, but not scratch", ""},
        Wrong{"align 4", "align 12", "no power of two", ""},
        Wrong{"f32[rows] strides [2]", "c64[rows] strides [2]", "buffer 'partial' is complex", ""},
        Wrong{"%turned: f16[row, inner]", "%turned: f16[row, row]", "'%turned' has lane 'row' twice", ""},
        Wrong{"%far: i64", "%far: i32", "beyond i32", "line 18, column 3"},
        Wrong{"%far: i64[row]", "%far: i64[column]", "the result has lanes [column], but the index varies along [row]",
              ""},
        Wrong{"%limit: i32 = constant 250", "%limit: i8 = constant 250", "250 is no number of type i8", ""},
        Wrong{"%inside: b1[column] = less", "%inside: i32[column] = less", "is of type i32, but b1 is expected", ""},
        Wrong{"less %at, %limit", "less %at", "1 operands, but 2 are expected", ""},
        Wrong{"less %at, %limit", "less %at, %far", "operands are of types i32 and i64", ""},
        Wrong{"add %top, %peak", "add %top, %peak exact", "add has no exact form", ""},
        Wrong{"tanh %share approximate", "tanh %share exact", "tanh has no exact form", ""},
        Wrong{"exp %tangent", "cast %tangent approximate", "cast has no approximate form", ""},
        Wrong{"%size_of_part: i32 = floor_div", "%size_of_part: i32 = trunc_div",
              "trunc_div of i32 does not depend on whether its operands are negative", ""},
        Wrong{"%share approximate nonnegative", "%share approximate", "one of nonnegative bases", ""},
        Wrong{"= bounded ", "= logical_and ", "the result is of type i32, but b1 is expected", ""},
        Wrong{"mul %x_tile, %tiny", "bit_and %x_tile, %tiny", "there is no bit_and of f32", ""},
        Wrong{"%scaled: f32[row, column] = mul", "%scaled: f32[column, row] = mul",
              "operand 0 has lanes [row, column], but the result has them in the order [column, row]", ""},
        Wrong{"%scaled: f32[row, column] = mul", "%scaled: f32[row] = mul",
              "the result has lanes [row], but its operands have [row, column]", ""},
        Wrong{"column -> inner", "column -> n", "'column' is 64 wide, but 'n' is 8", ""},
        Wrong{"relabel %half column -> inner", "relabel %half inner -> inner", "the operand has no lane 'inner'", ""},
        Wrong{"split %scaled column -> slow, fast", "split %scaled column -> slow, n",
              "'column' is 64 wide, but 'slow' and 'n' are 32 and 8", ""},
        Wrong{"split %scaled column -> slow, fast", "split %scaled column -> slow", "1 lanes are split off", ""},
        Wrong{"split %scaled column -> slow, fast", "split %scaled inner -> slow, fast",
              "the operand has no lane 'inner'", ""},
        Wrong{"%parted: f32[row, fast, slow]", "%parted: f32[row, slow]",
              "the result has lanes [row, slow], but [row, slow, fast] are expected", ""},
        Wrong{"stack %x_tile, %scaled along pair", "stack %x_tile along pair", "1 parts, but 'pair' is 2 wide", ""},
        Wrong{"stack %x_tile, %scaled along pair", "stack %x_tile, %half along pair",
              "a part is of type f16, but f32 is expected", ""},
        Wrong{"stack %x_tile, %scaled along pair", "stack %x_tile, %scaled along fast",
              "'fast' is not the last lane of the stacked tile", ""},
        Wrong{"unstack %both along pair", "unstack %both along row", "'row' is not the last lane", ""},
        Wrong{"%upper: f32[row, column] = unstack", "%upper: f32[row] = unstack", "a part has lanes [row]", ""},
        Wrong{"until %limit", "until %at", "the loop runs until what is no whole number of the block", ""},
        Wrong{"until %limit", "until %limit reversed", "neither reversed nor unrolled", ""},
        Wrong{"select %inside, %running", "select %at, %running", "the condition is of type i32, but b1", ""},
        Wrong{"table[row_block * 16 + row]", "table[row_block, row]", "1 dimensions, but 2 coordinates", ""},
        Wrong{"where %inside otherwise", "where %at otherwise", "the mask is of type i32, but b1 is expected", ""},
        Wrong{"%x_tile: f32[row, column] = load", "%x_tile: f32[row] = load",
              "the result has lanes [row], but the access varies along [row, column]", ""},
        Wrong{"x[%safe, column_block", "x[%shifted, column_block", "no value is called '%shifted' here", ""},
        Wrong{"table[row_block * 16 + row] hint", "table[row_block * 16 + row + 1] hint",
              "dimension 0 of buffer 'table' is left: 16 outside 16 where rows = 16, row_block = 0, row = 15", ""},
        Wrong{"weight[inner, n] over inner, n\n  copy", "weight[inner - 1, n] over inner, n\n  copy",
              "dimension 0 of buffer 'weight' is left: -1 outside 64 where inner = 0", ""},
        Wrong{"<- weight[inner, n] over inner, n\n  copy", "<- staged[1, inner, n] over inner, n\n  copy",
              "copies read global memory", ""},
        Wrong{"copy plain staged[0, inner, n] <- weight[inner, n] over inner, n",
              "copy plain staged[0, inner, n] <- weight[inner, n] over inner", "the copy is over [inner]", ""},
        Wrong{"where %always\n  wait", "where %always otherwise 1.0\n  wait", "fills with 0", ""},
        Wrong{"hint stream\n  %size", "coherent\n  %size", "a coherent load of buffer 'table', an input", ""},
        Wrong{"store out[", "store x[", "buffer 'x' is an input, and is not written", ""},
        Wrong{"store partial[row_block * 16 + row] <- %chosen", "store partial[0] <- %chosen",
              "the values along 'row' are stored to one element", ""},
        Wrong{"if %first {", "if %always {",
              "blocks along 'column_block' store values of their own in one element of buffer 'partial': neither its "
              "index nor its mask depends on 'column_block'",
              "line 75, column 5"},
        Wrong{"row_block * 16 + row, column_block * 64 + column] <- %close", "row, column] <- %close",
              "blocks along 'row_block' store values of their own in one element of buffer 'out'", ""},
        Wrong{"combine sum", "combine any", "stores combine by sum, prod, max or min, not by any", ""},
        Wrong{"= fold max %scaled over column", "= fold max %scaled over n", "the operand has no lane 'n'", ""},
        Wrong{"= fold max %scaled over", "= fold sort_up %scaled over", "sort_up is of scans only", ""},
        Wrong{"= fold max %scaled over", "= fold extended_sum %scaled over", "there is no extended_sum of f32", ""},
        Wrong{"%best: f32[row] = fold max", "%best: f32[column] = fold max", "has lanes [column], but [row]", ""},
        Wrong{"%best_at: i64[row]", "%best_at: f32[row]", "arg_max results in i32 or i64, not in f32", ""},
        Wrong{"%peak: f32, %peak_at: i32 = fold", "%peak: f32 = fold", "1 results, but 2 are expected", ""},
        Wrong{"fold max %scaled over", "fold moments %scaled over", "moments is of kernels only: a tile program has",
              ""},
        Wrong{"fold max %scaled over", "fold max_sum_exp %scaled over", "max_sum_exp is of kernels only", ""},
        Wrong{"fold max %scaled, %beside", "fold combine_max_sum_exp %scaled, %beside",
              "combine_max_sum_exp is of kernels only", ""},
        Wrong{"fold max %scaled, %beside", "fold combine_moments %scaled, %scaled, %scaled",
              "combine_moments is of kernels only", ""},
        Wrong{"scan sum", "scan moments", "moments is of kernels only", ""},
        Wrong{"scan sum", "scan extended_sum", "extended_sum is of folds only", ""},
        Wrong{"along column reversed", "along n", "the operand has no lane 'n'", ""},
        Wrong{"dot %sums, %turned, %w", "dot %sums, %scaled, %w", "operands are of types f32 and f16", ""},
        Wrong{"dot %sums, %turned, %w", "dot %sums, %half, %w", "lane 'column' is in one operand only", ""},
        Wrong{"dot %dotted, %scaled, %close", "dot %zeros, %scaled, %close", "has lanes [row], but [row, column]", ""},
        Wrong{"    yield %next, %other", "    yield %next", "yields of a loop: 1 values, but 2 are expected", ""},
        Wrong{"    yield %next, %other", "    yield %next, %next", "'%next' has another type than '%most'", ""},
        Wrong{"%most: f32[row] = %best", "%most: f32[row] = %zero", "'%most' has other types at the beginning", ""},
        Wrong{"= 0 to depth", "= 0 to depth + row", "a bound of the loop varies along [row]", ""},
        Wrong{"  } else {\n    yield %best\n", "", "yields of an else: 0 values, but 1 are expected", ""},
        Wrong{"if %first {", "if %inside {", "the condition has lanes [column], but is one value", ""}));

// What text cannot say, or what its parser finds before the verifier.
TEST(TileVerifier, BulkLoadsAreBoxes) {
  const auto fault = [](const std::string& load, const std::string& buffer = "f32[rows, 256]") {
    const std::string text =
        "program boxes {\n  size rows = 1..64\n  lane row = 16, column = 64, wide = 512\n  buffer x: " + buffer +
        " input\n  buffer y: f32[16, 512] output\n\n  " + load + "\n}\n";
    try {
      parse_program(text);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(fault("%t: f32[row, column] = load x[row + 60, column] bulk"), "");  // may leave its buffer
  EXPECT_NE(fault("%t: f32[row, column] = load x[row + 60, column]").find("dimension 0 of buffer 'x' is left"),
            std::string::npos);
  const std::string no_box = "is no box that the bulk copy engine takes";
  for (const char* load :
       {"%t: f32[row, column] = load x[row * 2, column] bulk", "%t: f32[wide] = load x[0, wide] bulk",
        "%t: f32[row] = load x[row, 0] bulk", "%t: f32[row, column] = load x[column, row] bulk"})
    EXPECT_NE(fault(load).find(no_box), std::string::npos) << load << ": " << fault(load);
  EXPECT_NE(fault("%t: f32[row, column] = load x[row, column] bulk", "f32[rows, 255]").find(no_box), std::string::npos);
  EXPECT_NE(fault("%t: f32[row, column] = load x[row, column] bulk hint keep").find("has a hint"), std::string::npos);
}

TEST(TileVerifier, BulkStoresAreBoxes) {
  const auto fault = [](const std::string& store, const std::string& buffer = "f32[rows, 256]") {
    const std::string text =
        "program boxes {\n  size rows = 1..64\n  lane row = 16, column = 64\n  launch warps 4\n  buffer y: " + buffer +
        " output\n\n  %one: f32[row, column] = constant 1.0\n  %all: b1[row] = constant true\n  " + store + "\n}\n";
    try {
      EXPECT_EQ(print_program(parse_program(text)), text);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(fault("store y[row + 60, column] bulk <- %one"), "");  // may leave its buffer
  EXPECT_NE(fault("store y[row + 60, column] <- %one").find("dimension 0 of buffer 'y' is left"), std::string::npos);
  const std::string no_box = "stored to 'y' is no box that the bulk copy engine takes";
  for (const char* store : {"store y[row * 2, column] bulk <- %one", "store y[column, row] bulk <- %one",
                            "store y[row, column] bulk <- %one where %all"})
    EXPECT_NE(fault(store).find(no_box), std::string::npos) << store << ": " << fault(store);
  EXPECT_NE(fault("store y[row, column] bulk <- %one", "f32[rows, 255]").find(no_box), std::string::npos);
  EXPECT_NE(fault("store y[row, column] bulk <- %one combine sum").find("does not combine"), std::string::npos);
  EXPECT_NE(fault("%few: f32[column] = constant 2.0\n  store y[row, column] bulk <- %few").find("writes a whole tile"),
            std::string::npos);
}

TEST(TileVerifier, NamesProgramAndInstruction) {
  Program program = parse_program(kEverything);
  std::swap(program.body[3], program.body[0]);
  EXPECT_EQ(find_fault(program),
            "tile program 'everything', '%inside: b1[column] = less %at, %limit': '%at' is used before it is defined");
  EXPECT_THROW(verify(program), Error);
}

TEST(TileVerifier, FindsWhatTheTextCannotSay) {
  const Program good = parse_program(kEverything);
  ASSERT_EQ(find_fault(good), "");
  const auto fault_after = [&](auto change) {
    Program program = good;
    change(program);
    return find_fault(program);
  };
  const auto loop_of = [](Program& program) -> Instruction& {
    for (Instruction& instruction : program.body)
      if (instruction.kind == Kind::kFor) return instruction;
    throw Error(ErrorKind::kInternal, "no loop");
  };
  const auto expect = [&](auto change, std::string_view message) {
    const std::string fault = fault_after(change);
    EXPECT_NE(fault.find(message), std::string::npos) << message << " | " << fault;
  };
  expect([](Program& p) { p.values[1].name = p.buffers[0].name; }, "'x' names two things");
  expect([](Program& p) { p.values[1].name = "2nd"; }, "'2nd' is not an identifier");
  expect([](Program& p) { p.body.push_back(p.body[0]); }, "'%at' is defined twice");
  expect([](Program& p) { p.body[0].results = {1000}; }, "value 1000 is not in the program's table");
  expect([](Program& p) { p.body[3].operands = {0, -3}; }, "value -3 is not in the program's table");
  expect([](Program& p) { p.body[0].index = kernel::symbol_index(99); }, "a symbol that the program does not have");
  expect([](Program& p) { p.body[5].access.buffer = 70; }, "buffer 70 is not in the program's table");
  expect([](Program& p) { p.grid.pop_back(); }, "the grid does not list 'column_block'");
  expect([](Program& p) { p.grid.push_back(p.grid[0]); }, "the grid lists 'row_block' twice");
  expect([](Program& p) { p.symbols[p.grid[0]].range.high = 3; }, "does not hold all its blocks");
  expect([](Program& p) { p.symbols[p.grid[0]].count = kernel::symbol_index(p.grid[1]); }, "else than sizes");
  expect([](Program& p) { p.buffers[0].shape[0] = kernel::symbol_index(p.grid[0]); }, "else than sizes");
  expect([&](Program& p) { p.symbols[loop_of(p).symbol].range.high = 3; }, "does not hold all its values");
  expect([&](Program& p) { p.symbols[loop_of(p).body[3].symbol].name = "step"; }, "of a loop and of one inside it");
  expect([&](Program& p) { loop_of(p).symbol = p.grid[0]; }, "'row_block' is no loop variable");
  expect([&](Program& p) { p.body.back().access.coordinates[1].index = kernel::symbol_index(loop_of(p).symbol); },
         "loop variable 'step' is used outside its loop");
  expect([&](Program& p) { p.body.back().operands = {loop_of(p).yields[0]}; },
         "'%next' is used outside the body that defines it");
  expect([&](Program& p) { loop_of(p).results[0] = loop_of(p).arguments[0]; }, "'%sums' is defined twice");
  expect([](Program& p) { p.warps = 0; }, "at least one warp");
}

}  // namespace
TEST(Programs, AreForRareInputsWhereDataSayWhetherAnythingIsStored) {
  const auto is_rare = [](const std::string& body) {
    const Program program = parse_program(R"(program p {
  grid row = 4
  lane column = 16
  launch warps 4
  buffer flags: i32[4] input
  buffer y: f32[4, 16] output
  %one: f32[column] = constant 1.0
  %zero: i32 = constant 0
  )" + body + "\n}");
    verify(program);
    return stores_for_rare_inputs(program);
  };
  const std::string store = "store y[row, column] <- %one";
  EXPECT_FALSE(is_rare(store));
  EXPECT_TRUE(is_rare("%flag: i32 = load flags[row]\n%set: b1 = greater %flag, %zero\nif %set {\n" + store + "\n}"));
  EXPECT_FALSE(is_rare("%place: i32 = index row\n%set: b1 = greater %place, %zero\nif %set {\n" + store + "\n}"))
      << "where the block stands says so, not data";
  EXPECT_TRUE(
      is_rare("%flag: i32 = load flags[row]\n%set: b1 = greater %flag, %zero\n"
              "if %set {\nfor step_start = 0 to 2 {\n" +
              store + "\n}\n}"));
  EXPECT_FALSE(is_rare("%flag: i32 = load flags[row]\n%set: b1 = greater %flag, %zero\n" + store + "\nif %set {\n" +
                       store + "\n}"));
}

}  // namespace kw::tile
