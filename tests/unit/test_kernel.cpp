// Kernels: operations, index algebra, the text form, the rules, and what kernels mean.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>
#include <sstream>

#include "kernel/builder.hpp"
#include "kernel/evaluate.hpp"
#include "kernel/index_parse.hpp"
#include "kernel/text.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::kernel {
namespace {

TEST(Operations, EachHasItsOwnName) {
  for (int op = 0; op <= static_cast<int>(ScalarOp::kCast); ++op)
    EXPECT_EQ(find_scalar_op(name_of(static_cast<ScalarOp>(op))), static_cast<ScalarOp>(op));
  for (int op = 0; op <= static_cast<int>(ReduceOp::kSortDown); ++op)
    EXPECT_EQ(find_reduce_op(name_of(static_cast<ReduceOp>(op))), static_cast<ReduceOp>(op));
}

// --- Indices ---

constexpr const char* kNames[] = {"i", "j", "n", "t"};
const std::vector<SymbolRange> kRanges = {{0, 6, 1}, {0, 4, 1}, {2, 8, 2}, {0, 48, 16}};

IndexWords words() {
  return {[](Symbol symbol) { return std::string(kNames[symbol]); }};
}

Index parsed(const std::string& text) {
  TextReader reader(text, "index");
  const FindSymbol find = [](std::string_view name) -> std::optional<Symbol> {
    for (int symbol = 0; symbol < 4; ++symbol)
      if (name == kNames[symbol]) return symbol;
    return std::nullopt;
  };
  Index index = parse_index(reader, find, kRanges);
  if (!reader.at_end()) reader.fail("expected the end");
  return index;
}

// An index, and the same arithmetic on numbers.
struct Both {
  Index index;
  std::function<int64_t(const std::vector<int64_t>&)> direct;
};

Both random_index(std::mt19937& random, int depth) {
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  const int kind = below(depth == 0 ? 2 : 8);
  if (kind == 0) {
    const int64_t number = below(9) - 2;
    return {Index(number), [=](const auto&) { return number; }};
  }
  if (kind == 1) {
    const int symbol = below(4);
    return {symbol_index(symbol), [=](const auto& values) { return values[symbol]; }};
  }
  const Both left = random_index(random, depth - 1);
  if (kind <= 4) {
    const Both right = random_index(random, depth - 1);
    if (kind == 2)
      return {left.index + right.index, [=](const auto& at) { return left.direct(at) + right.direct(at); }};
    if (kind == 3)
      return {left.index - right.index, [=](const auto& at) { return left.direct(at) - right.direct(at); }};
    return {left.index * right.index, [=](const auto& at) { return left.direct(at) * right.direct(at); }};
  }
  if (kind == 7) {
    const Both right = random_index(random, depth - 1);
    return {minimum(left.index, right.index, kRanges),
            [=](const auto& at) { return std::min(left.direct(at), right.direct(at)); }};
  }
  const bool by_size = below(3) == 0;
  const int64_t number = 1 + below(6);
  const Index divisor = by_size ? symbol_index(2) : Index(number);
  return {kind == 5 ? floor_divide(left.index, divisor, kRanges) : modulo(left.index, divisor, kRanges),
          [=](const std::vector<int64_t>& at) {
            const int64_t dividend = left.direct(at), by = by_size ? at[2] : number;
            const int64_t quotient = dividend / by - (dividend % by < 0 ? 1 : 0);
            return kind == 5 ? quotient : dividend - quotient * by;
          }};
}

TEST(Index, RandomIndicesMeanWhatTheirArithmeticDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const Both both = random_index(random, 3);
    const std::string text = print_index(both.index, words());
    const Index again = parsed(text);
    const Interval range = range_of(both.index, kRanges);
    const int64_t divisor = known_divisor(both.index, kRanges);
    for (int point = 0; point < 6; ++point) {
      const std::vector<int64_t> at = {static_cast<int64_t>(random() % 7), static_cast<int64_t>(random() % 5),
                                       2 + 2 * static_cast<int64_t>(random() % 4),
                                       16 * static_cast<int64_t>(random() % 4)};
      const int64_t expected = both.direct(at);
      ASSERT_EQ(evaluate(both.index, at), expected) << text;
      ASSERT_EQ(evaluate(again, at), expected) << text;
      ASSERT_EQ(evaluate(recombined(both.index, kRanges), at), expected) << text;
      ASSERT_TRUE(range.low <= expected && expected <= range.high) << text;
      ASSERT_TRUE(divisor == 0 ? expected == 0 : expected % divisor == 0) << text << " by " << divisor;
    }
  }
}

TEST(Index, DigitsOfANumberAreThatNumber) {
  const std::pair<const char*, const char*> cases[] = {
      {"i / 3 * 3 + i % 3", "i"},
      {"i / 3 * 6 + i % 3 * 2 + j", "i * 2 + j"},
      {"i / 6 * 6 + i / 3 % 2 * 3 + i % 3", "i"},
      {"i / 3 * 4 + i % 3", "i / 3 * 4 + i % 3"},
  };
  for (const auto& [given, expected] : cases) EXPECT_EQ(recombined(parsed(given), kRanges), parsed(expected)) << given;
}

TEST(Index, SimplifiesByWhatIsKnown) {
  const std::pair<const char*, const char*> cases[] = {
      {"(i * 5 + j) / 5", "i"},
      {"(i * 5 + j) % 5", "j"},
      {"(i * 10 + j * 2 + 1) / 2", "i * 5 + j"},
      {"t * 2 / 32", "t / 16"},
      {"t % 8", "0"},
      {"(i + 14) / 7 - 2", "0"},
      {"i / 2 / 2", "i / 4"},
      {"(n * i + n) / n", "i + 1"},
      {"(i % 6) % 3", "i % 3"},
      {"(i + 1) * (i + 1) - i * i", "i * 2 + 1"},
      {"i - j - i", "-1 * j"},
      {"min(i, 6)", "i"},
      {"min(n - i, 2) - 1", "min(n - i, 2) - 1"},
      {"min(i + 3, j + 3) * 2", "min(i + 3, j + 3) * 2"},
      {"j / (min(i, j) + 1)", "j / (min(i, j) + 1)"},
      {"t / min(n, 3)", "t / min(n, 3)"},
  };
  for (const auto& [given, expected] : cases) EXPECT_EQ(print_index(parsed(given), words()), expected) << given;
}

TEST(Index, SaysWhereItsTextIsWrong) {
  const std::pair<const char*, const char*> cases[] = {{"i + k", "line 1, column 5"},
                                                       {"i / 0", "line 1, column 5"},
                                                       {"(i", "line 1, column 3"},
                                                       {"i +", "line 1, column 4"}};
  for (const auto& [text, where] : cases) try {
      parsed(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_EQ(error.text().where, where) << text;
    }
}

TEST(Index, BoundsDoNotOverflow) {
  const std::vector<SymbolRange> far = {{0, int64_t{1} << 61, 1}};
  const Interval range = range_of(symbol_index(0) * symbol_index(0) * Index(1000), far);
  EXPECT_EQ(range.low, 0);
  EXPECT_GT(range.high, int64_t{1} << 60);
}

// --- Text ---

std::vector<std::string> golden_kernels() {
  std::vector<std::string> texts;
  for (const auto& file : std::filesystem::directory_iterator(std::string(KW_GOLDEN_DIR) + "/kernel"))
    texts.push_back(read_file(file.path().string()));
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST(KernelForm, PrintsWhatItParses) {
  const std::vector<std::string> texts = golden_kernels();
  EXPECT_GE(texts.size(), 8U);
  for (const std::string& text : texts) EXPECT_EQ(print_kernel(parse_kernel(text)), text);
}

// From its first line to its last, four columns less to the right.
std::string kernel_of_page(const std::string& name) {
  std::istringstream page(read_file(std::string(KW_GOLDEN_DIR) + "/../../docs/" + name));
  std::string text, line;
  while (std::getline(page, line))
    if (line.starts_with("    kernel ") || (!text.empty() && !text.ends_with("}\n"))) text += line.substr(4) + "\n";
  return text;
}

TEST(KernelForm, ExamplesOfTheDocsAreKernels) {
  for (const char* page : {"architecture.md", "kernel.md"}) {
    const std::string text = kernel_of_page(page);
    ASSERT_NE(text, "") << page;
    EXPECT_EQ(print_kernel(parse_kernel(text)), text) << page;
  }
}

std::string with(const std::string& lines) {
  return "kernel k {\n  size n = 2..8 by 2\n  axis i = 4, j = n, s = 3 ordered\n  in x: f32[4, n]\n  in h: bf16[4]\n"
         "  in ids: i64[4]\n  out y: f32[4]\n" +
         lines + "\n}\n";
}

TEST(KernelForm, SharedResultsGetNames) {
  const Kernel kernel = parse_kernel(with("y[i] = exp(sum(x[i, j]; j)) + exp(sum(x[i, j]; j))"));
  const std::string text = print_kernel(kernel);
  EXPECT_NE(text.find("value_1 = exp(sum(x[i, j]; j))\n  y[i] = value_1 + value_1"), std::string::npos) << text;
  EXPECT_EQ(print_kernel(parse_kernel(text)), text);
}

TEST(KernelForm, BareNumbersTakeTheTypeBesideThem) {
  const Kernel kernel = parse_kernel(with("y[i] = f32(h[i] * 2 + 1.5)"));
  for (const Expr& expr : kernel.exprs)
    if (expr.kind == ExprKind::kConstant) { EXPECT_EQ(expr.dtype, DType::bf16); }
}

// Places of a 50000 x 50000 matrix go beyond i32.
TEST(KernelForm, IndicesOfCoordinatesDoNotWrap) {
  const std::string text =
      "kernel transpose {\n  axis row = 50000, column = 50000\n  in mul: f32[2500000000]\n"
      "  out y: f32[50000, 50000]\n  y[column, row] = mul[row * 50000 + column]\n}\n";
  const Kernel kernel = parse_kernel(text);
  EXPECT_EQ(print_kernel(kernel), text);
  ASSERT_EQ(kernel.exprs.size(), 1U);
  const Coordinate& place = kernel.exprs[0].access.coordinates[0];
  EXPECT_EQ(place.value, kNoExpr);
  EXPECT_EQ(evaluate(place.index, std::vector<int64_t>{49999, 49999}), 2499999999);
}

TEST(KernelForm, TheLastCornerOfAHugeTransposeIsWhatItIs) {
  const std::string text =
      "kernel corner {\n  axis row = 2, column = 2\n  in places: i64[2500000000] strides [0]\n"
      "  out y: i64[2, 2]\n"
      "  y[column, row] = places[row * 50000 + column + 2499949998] + {row * 50000 + column + 2499949998}:i64\n"
      "}\n";
  Memory memory;
  memory["places"].wholes = {0};
  const Kernel kernel = parse_kernel(print_kernel(parse_kernel(text)));
  EXPECT_EQ(evaluate(kernel, memory).at("y").wholes,
            (std::vector<int64_t>{2499949998, 2499999998, 2499949999, 2499999999}));
}

TEST(KernelForm, ArithmeticOfI32ThatWrapsKeepsItsType) {
  const std::string text = print_kernel(
      parse_kernel("kernel k {\n axis i = 8\n out y: i32[8]\n y[i] = i:i32 * 1000000000\n}"));
  EXPECT_NE(text.find("y[i] = i:i32 * 1000000000"), std::string::npos) << text;
  EXPECT_EQ(print_kernel(parse_kernel(text)), text);
}

std::string far(const std::string& line) {
  return "kernel k {\n  axis i = 2147483649, j = 4\n  in x: f32[2147483650]\n  in small: i32[4]\n  in ids: i64[4]\n"
         "  out y: f32[2147483649]\n  out z: f32[4]\n" +
         line + "\n}\n";
}

TEST(KernelForm, AxesBeyondI32AreIndexedAndCompared) {
  for (const char* line :
       {"y[i] = x[i + 1]", "y[i] = select(i:i64 > 3, x[i], 0.0)", "y[i] = select(ids[0] > i, 1.0, 0.0)",
        "y[i] = (x[i + small[0]] where ids[0] > 5000000000 otherwise 0.0)"})
    EXPECT_EQ(print_kernel(parse_kernel(print_kernel(parse_kernel(far(line))))), print_kernel(parse_kernel(far(line))))
        << line;
}

struct Case {
  const char *lines, *where, *words;
};

void expect_error(const std::string& text, const Case& one) {
  try {
    parse_kernel(text);
    ADD_FAILURE() << one.lines;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << one.lines;
    EXPECT_EQ(error.text().where, one.where) << one.lines << ": " << error.what();
    EXPECT_NE(std::string(error.what()).find(one.words), std::string::npos) << one.lines << ": " << error.what();
  }
}

TEST(KernelForm, WhatIsBeyondI32SaysHowToWriteIt) {
  const Case cases[] = {
      {"y[i] = select(i > 3, 1.0, 0.0)", "line 8, column 15", "i goes from 0 to 2147483648, beyond i32: write i:i64"},
      {"y[i] = f32(i * 2 + 1)", "line 8, column 12", "beyond i32: write {i * 2 + 1}:i64"},
      {"y[i] = x[small[0] * i]", "line 8, column 21", "beyond i32: write i:i64"},
      {"y[i] = select(small[0] > 5000000000, 1.0, 0.0)", "line 8, column 26",
       "5000000000 is no number of type i32: write 5000000000:i64"},
      {"y[i] = x[i + 2]", "line 8, column 8", "an index of 'x' reaches 2147483650, beyond its size 2147483650"},
      {"z[j] = x[j - 1]", "line 8, column 8", "an index of 'x' may be negative"},
      {"y[i] = i", "line 8, column 8", "a f32 is expected here, and this is an index: cast it with f32(…)"},
  };
  for (const Case& one : cases) expect_error(far(one.lines), one);
}

TEST(KernelForm, SaysWhereItIsWrong) {
  const Case cases[] = {
      {"y[i] = x[i, j]", "line 8, column 1", "its value depends on 'j'"},
      {"y[i] = x[i]", "line 8, column 9", "'x' has 2 dimensions, and here are 1 coordinates"},
      {"y[i] = z[i]", "line 8, column 8", "nothing is called 'z' here"},
      {"y[i] = x[i, 0] + h[i]", "line 8, column 18", "a f32 is expected here, and this is a bf16: cast it with f32(…)"},
      {"y[i] = select(x[i, 0], 1.0, 2.0)", "line 8, column 15", "the condition of a select is a b1"},
      {"y[i] = sum(x[i, 0]; k)", "line 8, column 21", "'k' is no axis"},
      {"y[i] = sum(x[i, 0]; n)", "line 8, column 21", "'n' is no axis"},
      {"y[i] = maximum(x[i, 0])", "line 8, column 8", "maximum takes 2 operands, not 1"},
      {"y[i] = moments(x[i, j]; j)", "line 9, column 1", "expected '.', found '}'"},
      {"y[i] = moments(x[i, j]; j).2", "line 8, column 8", "moments has no result 2"},
      {"y[i] = dot(x[i, j], h[i]; j)", "line 8, column 8", "a dot of f32 and bf16"},
      {"y[i] = blend(x[i, 0])", "line 8, column 8", "there is no operation 'blend'"},
      {"y[i] = 1 / 0", "line 8, column 12", "a whole number is divided by 0"},
      {"y[i] = x[h[i], 0]", "line 8, column 10", "a coordinate is a whole number"},
      {"y[i] = y[i]", "line 8, column 8", "'y' is an output, and read"},
      {"x[i, j] = 1.0", "line 8, column 1", "it writes an input"},
      {"axis i = 3", "line 8, column 6", "'i' is named twice"},
      {"y[i] = x[i, 0] where x[i, 0]", "line 8, column 22", "a mask is a condition"},
      {"next h = 1.0", "line 8, column 6", "'h' is no state"},
      {"state c: f32[i] along s from 0.0\ny[i] = c.previous[i]", "line 8, column 7", "state 'c' has no next value"},
      {"state c: f32[i] along i from 0.0\nnext c = c.previous[i]", "line 8, column 7", "carried along no ordered axis"},
      {"y[i] = c.previous[i]", "line 8, column 8", "nothing is called 'c' here"},
      {"y[i] = x[4, 0]", "line 8, column 8", "reaches 4, beyond its size 4"},
      {"y[i] = x[i, 0] and x[i, 1]", "line 8, column 8", "logical_and is of conditions"},
      {"size m = 5..2", "line 8, column 10", "has no range"},
      {"in b: f12[3]", "line 8, column 7", "'f12' is no type"},
      {"y[i] = \"text\"", "line 8, column 8", "expected a name"},
      {"y[i] = 1.0 }", "line 9, column 1", "expected the end of the text"},
      {"y[i] = x[i + 1, 0]", "line 8, column 8", "reaches 4, beyond its size 4"},
      {"y[i - 1] = 1.0", "line 8, column 1", "may be negative"},
      {"y[i] = 1.0\ny[i] = 2.0", "line 9, column 1", "another store writes the same elements"},
      {"y[i] where i > 1 = 1.0\ny[i] where i > 1 = x[i, 0]", "line 9, column 1", "another store writes the same"},
      {"a = b\nb = a\ny[i] = a", "line 8, column 5", "nothing is called 'b' here"},
      {"y[i] = 1.0\nz = exp(x[i, 0] + x[i + 2, 0])\ny[i] = z", "line 9, column 19", "reaches 5, beyond its size 4"},
      {"y[i] = any(x[i, j]; j)", "line 8, column 8", "any and all fold b1"},
      {"in w: f32[i]", "line 8, column 4", "'i' is no size"},
      {"axis far = i", "line 8, column 6", "'i' is no size"},
  };
  for (const Case& one : cases) expect_error(with(one.lines), one);
}

TEST(KernelForm, StoresThatMayMissEachOtherAreTwo) {
  for (const char* lines : {"y[i] where i > 1 = 1.0\ny[i] where i <= 1 = 2.0", "y[0] = 1.0\ny[1] = 2.0",
                            "y[i] = 1.0\ny[i] += x[i, 0]", "y[ids[0]] = 1.0\ny[ids[1]] = 2.0"})
    EXPECT_EQ(parse_kernel(with(lines)).stores.size(), 2U) << lines;
}

// --- Meaning ---

Numbers reals(std::vector<double> values) { return {std::move(values), {}}; }

TEST(Evaluate, FoldsStatesMasksAndSizes) {
  const Kernel kernel = parse_kernel(
      "kernel k {\n size n = 0..8\n axis i = 2, j = n, s = n ordered\n in x: f32[2, n]\n in ids: i64[n]\n"
      " out total: f32[2]\n out best: i64[2]\n out running: f32[2, n]\n out picked: f32[n]\n out count: f32[1]\n"
      " total[i] = sum(x[i, j]; j)\n best[i] = arg_max(x[i, j]; j)\n"
      " state c: f32[i] along s from 100.0\n new = c.previous[i] + x[i, s]\n next c = new\n running[i, s] = new\n"
      " picked[j] = (x[0, ids[j]] where ids[j] >= 0 otherwise -1.0)\n count[0] += x[i, j]\n}");
  Memory memory;
  memory["x"] = reals({1, 5, 5, -2, 0, NAN});
  memory["ids"].wholes = {2, -7, 0};
  memory["count"] = reals({10});
  const Memory found = evaluate(kernel, memory, {{"n", 3}});
  EXPECT_EQ(found.at("total").reals[0], 11);
  EXPECT_TRUE(std::isnan(found.at("total").reals[1]));
  EXPECT_EQ(found.at("best").wholes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(found.at("running").reals[2], 111);
  EXPECT_EQ(found.at("picked").reals, (std::vector<double>{5, -1, 1}));
  EXPECT_TRUE(std::isnan(found.at("count").reals[0]));
  // Nothing to fold: identities, and no step.
  Memory nothing;
  nothing["x"] = reals({});
  nothing["ids"] = {};
  nothing["count"] = reals({10});
  const Kernel sums = parse_kernel(
      "kernel k {\n size n = 0..8\n axis i = 2, j = n\n in x: f32[2, n]\n out total: f32[2]\n total[i] = sum(x[i, j]; "
      "j)\n}");
  EXPECT_EQ(evaluate(sums, nothing, {{"n", 0}}).at("total").reals, (std::vector<double>{0, 0}));
}

TEST(Evaluate, ExtendedSumsKeepWhatDoublesLose) {
  const Kernel kernel = parse_kernel(
      "kernel k {\n axis i = 4\n in x: f64[4]\n out plain: f64[1]\n out total: f64[1]\n plain[0] = sum(x[i]; i)\n"
      " total[0] = extended_sum(x[i]; i)\n}");
  EXPECT_EQ(print_kernel(parse_kernel(print_kernel(kernel))), print_kernel(kernel));
  const Memory found = evaluate(kernel, {{"x", reals({0x1p60, 1, 2, -0x1p60})}});
  EXPECT_EQ(found.at("plain").reals[0], 0);
  EXPECT_EQ(found.at("total").reals[0], 3);
}

TEST(Evaluate, NamesWhatIsMissing) {
  const Kernel kernel = parse_kernel(with("y[i] = x[i, 0]"));
  Memory memory;
  memory["x"] = reals(std::vector<double>(16));
  memory["h"] = reals(std::vector<double>(4));
  const auto words = [&](const Memory& given, const std::map<std::string, int64_t>& sizes) {
    try {
      evaluate(kernel, given, sizes);
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_NE(words(memory, {{"n", 4}}).find("buffer 'ids' is not given"), std::string::npos);
  memory["ids"].wholes.resize(4);
  EXPECT_EQ(words(memory, {{"n", 4}}), "");
  EXPECT_NE(words(memory, {}).find("size 'n' is not given"), std::string::npos);
  EXPECT_NE(words(memory, {{"n", 5}}).find("from 2 to 8 and a multiple of 2"), std::string::npos);
  EXPECT_NE(words(memory, {{"n", 8}}).find("buffer 'x' has 16 elements of 32"), std::string::npos);
}

}  // namespace
}  // namespace kw::kernel
