#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <functional>
#include <set>

#include "tile/block_places.hpp"
#include "tile/definitions.hpp"
#include "tile/rules.hpp"
#include "tile/verifier.hpp"

namespace kw::tile {
namespace {

constexpr std::string_view kKeywords[] = {
    "False",        "None",    "True",       "alignas",   "alignof",   "and",          "and_eq",
    "as",           "asm",     "assert",     "async",     "auto",      "await",        "bitand",
    "bitor",        "bool",    "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",     "char8_t", "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",      "const",   "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",     "def",     "default",    "del",       "delete",    "do",           "double",
    "dynamic_cast", "elif",    "else",       "enum",      "except",    "explicit",     "export",
    "extern",       "false",   "finally",    "float",     "for",       "friend",       "from",
    "global",       "goto",    "if",         "import",    "in",        "inline",       "int",
    "is",           "lambda",  "long",       "mutable",   "namespace", "new",          "noexcept",
    "nonlocal",     "not",     "not_eq",     "nullptr",   "operator",  "or",           "or_eq",
    "pass",         "private", "protected",  "public",    "raise",     "register",     "reinterpret_cast",
    "requires",     "return",  "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast",  "struct",  "switch",     "template",  "this",      "thread_local", "throw",
    "true",         "try",     "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",        "virtual", "void",       "volatile",  "wchar_t",   "while",        "with",
    "xor",          "xor_eq",  "yield"};
static_assert(std::is_sorted(std::begin(kKeywords), std::end(kKeywords)));

}  // namespace

bool is_keyword(std::string_view name) { return std::binary_search(std::begin(kKeywords), std::end(kKeywords), name); }

namespace {

void check_name(const std::string& name) {
  const auto word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) || !std::all_of(name.begin(), name.end(), word))
    throw BrokenRule{fmt::format("'{}' is not an identifier", name)};
  if (is_keyword(name)) throw BrokenRule{fmt::format("'{}' is a keyword of Python or C++", name)};
}

void check_names(const Program& program) {
  check_name(program.name);
  std::set<std::string_view> names;
  const auto add = [&](const std::string& name) {
    check_name(name);
    if (!names.insert(name).second) throw BrokenRule{fmt::format("'{}' names two things", name)};
  };
  // Loops that do not hold one another may have variables and named indices of one name.
  std::set<std::string_view> loops, named;
  for (const SymbolInfo& symbol : program.symbols) {
    if (symbol.kind == SymbolKind::kLoop && !loops.insert(symbol.name).second) continue;
    if (symbol.kind == SymbolKind::kNamed && !named.insert(symbol.name).second) continue;
    add(symbol.name);
  }
  for (const Buffer& buffer : program.buffers) add(buffer.name);
  for (const ValueInfo& value : program.values) add(value.name);
}

bool uses_only_sizes(const Program& program, const Index& index) {
  std::vector<bool> used;
  collect_symbols(index, used);
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && program.symbols[symbol].kind != SymbolKind::kSize) return false;
  return true;
}

void check_size_index(const Program& program, const Index& index, const std::string& what) {
  if (!has_known_symbols(program, index))
    throw BrokenRule{fmt::format("{} uses a symbol that the program does not have", what)};
  if (!uses_only_sizes(program, index)) throw BrokenRule{fmt::format("{} uses something else than sizes", what)};
}

// Is it made of itself, by way of other names?
bool is_circular(const Program& program, Symbol symbol, std::vector<int>& seen) {
  constexpr int kOpen = 1, kDone = 2;
  const SymbolInfo& info = program.symbols[symbol];
  if (info.kind != SymbolKind::kNamed || seen[symbol] == kDone) return false;
  if (seen[symbol] == kOpen) return true;
  seen[symbol] = kOpen;
  std::vector<bool> used;
  collect_symbols(info.value, used);
  for (size_t other = 0; other < used.size(); ++other)
    if (used[other] && is_circular(program, static_cast<Symbol>(other), seen)) return true;
  seen[symbol] = kDone;
  return false;
}

// Before anything is written out.
void check_definitions(const Program& program) {
  std::vector<int> seen(program.symbols.size());
  for (const SymbolInfo& symbol : program.symbols)
    if (symbol.kind == SymbolKind::kNamed && !has_known_symbols(program, symbol.value))
      throw BrokenRule{fmt::format("'{}' uses a symbol that the program does not have", symbol.name)};
  for (size_t symbol = 0; symbol < seen.size(); ++symbol)
    if (is_circular(program, static_cast<Symbol>(symbol), seen))
      throw BrokenRule{fmt::format("'{}' is made of itself", program.symbols[symbol].name)};
}

void check_named(const Program& program, const SymbolInfo& symbol, kernel::SymbolRanges ranges) {
  if (symbol.dtype != DType::i32 && symbol.dtype != DType::i64)
    throw BrokenRule{fmt::format("'{}' is of type {}, but indices are i32 or i64", symbol.name, name_of(symbol.dtype))};
  const kernel::SymbolRange least = range_of_named(program, symbol.value);
  if (symbol.range.low > least.low || symbol.range.high < least.high || symbol.range.divisor != 1)
    throw BrokenRule{fmt::format("the range of '{}' does not hold all its values", symbol.name)};
  if (symbol.dtype == DType::i32 && leaves_32_bits(symbol.value, ranges))
    throw BrokenRule{fmt::format("'{}' is of type i32, but may leave it", symbol.name)};
}

void check_symbol_info(const Program& program, const SymbolInfo& symbol, kernel::SymbolRanges ranges) {
  const kernel::SymbolRange& range = symbol.range;
  if (range.low > range.high || range.divisor < 1)
    throw BrokenRule{fmt::format("the range of '{}' is empty", symbol.name)};
  if (symbol.threads > 0 && (symbol.kind != SymbolKind::kSize || range.low != 1 || range.divisor != 1))
    throw BrokenRule{fmt::format("'{}' is no size from 1 on, as the number of threads is", symbol.name)};
  switch (symbol.kind) {
    case SymbolKind::kSize:
      if (range.low < 0) throw BrokenRule{fmt::format("size '{}' may be below 0", symbol.name)};
      if (range.high / range.divisor * range.divisor < range.low)
        throw BrokenRule{fmt::format("no multiple of {} is in the range of '{}'", range.divisor, symbol.name)};
      break;
    case SymbolKind::kGrid: {
      check_size_index(program, symbol.count, fmt::format("the number of blocks along '{}'", symbol.name));
      const kernel::SymbolRange least = grid_range(symbol.count, ranges);
      if (range.low > least.low || range.high < least.high || range.divisor != 1)
        throw BrokenRule{fmt::format("the range of '{}' does not hold all its blocks", symbol.name)};
      break;
    }
    case SymbolKind::kLane:
      if (range.low != 0 || range.divisor != 1)
        throw BrokenRule{fmt::format("lane '{}' does not count from 0", symbol.name)};
      if (symbol.shared && !program.grid.empty())
        throw BrokenRule{fmt::format("lane '{}' is shared by threads, beside blocks of a grid", symbol.name)};
      break;
    case SymbolKind::kLoop: break;  // checked at its For
    case SymbolKind::kBlock:
    case SymbolKind::kConsumer: break;  // checked with the places
    case SymbolKind::kNamed: check_named(program, symbol, ranges); break;
  }
}

void check_grid(const Program& program) {
  std::vector<int> listed(program.symbols.size());
  for (const Symbol symbol : program.grid) {
    if (symbol < 0 || symbol >= static_cast<Symbol>(program.symbols.size()) ||
        program.symbols[symbol].kind != SymbolKind::kGrid)
      throw BrokenRule{"the grid lists a symbol that is no position in it"};
    if (++listed[symbol] > 1) throw BrokenRule{fmt::format("the grid lists '{}' twice", program.symbols[symbol].name)};
  }
  for (size_t symbol = 0; symbol < listed.size(); ++symbol)
    if (program.symbols[symbol].kind == SymbolKind::kGrid && listed[symbol] == 0)
      throw BrokenRule{fmt::format("the grid does not list '{}'", program.symbols[symbol].name)};
  const auto in_grid = [&](Symbol symbol) { return std::count(program.grid.begin(), program.grid.end(), symbol) > 0; };
  if (program.consumers.along >= 0 && !in_grid(program.consumers.along))
    throw BrokenRule{"the consumers need a dimension of the grid"};
  if (program.consumers.count != 1 && program.consumers.along < 0 && program.consumers.programs == 0)
    throw BrokenRule{"consumers that take blocks in turn need a number of programs"};
  const GridOrder& order = program.order;
  if (order.count < 1) throw BrokenRule{"the order of blocks groups fewer than one"};
  if (order.grouped < 0 && order.along < 0) return;
  if (order.grouped == order.along || !in_grid(order.grouped) || !in_grid(order.along))
    throw BrokenRule{"the order of blocks needs two dimensions of the grid"};
}

void check_buffer(const Program& program, const Buffer& buffer, kernel::SymbolRanges ranges) {
  const std::string what = fmt::format("buffer '{}'", buffer.name);
  if (buffer.dtype == DType::c64 || buffer.dtype == DType::c128)
    throw BrokenRule{fmt::format("{} is complex: tiles hold its two parts", what)};
  for (const Index& extent : buffer.shape) {
    check_size_index(program, extent, "the shape of " + what);
    if (range_of(extent, ranges).high < 0) throw BrokenRule{fmt::format("{} has an extent below 0", what)};
    if (buffer.space != Space::kGlobal && !as_constant(extent))
      throw BrokenRule{fmt::format("{} is in {} memory: its shape must be numbers", what,
                                   buffer.space == Space::kShared ? "shared" : "cluster")};
  }
  if (!buffer.strides.empty() && buffer.strides.size() != buffer.shape.size())
    throw BrokenRule{
        fmt::format("{} has {} dimensions, but {} strides", what, buffer.shape.size(), buffer.strides.size())};
  for (const Index& stride : buffer.strides) check_size_index(program, stride, "the strides of " + what);
  if (buffer.space != Space::kGlobal && buffer.role != BufferRole::kScratch)
    throw BrokenRule{fmt::format("{} is on chip, but not scratch", what)};
  if (buffer.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(buffer.alignment)))
    throw BrokenRule{fmt::format("the alignment of {} is no power of two", what)};
}

// Lanes of one tile are different dimensions of it.
void check_rank(const Program& program) {
  std::vector<bool> stacked(program.symbols.size());
  for_each(program.body, [&](const Instruction& one) {
    for (const Symbol lane : {one.kind == Kind::kStack ? one.to : -1, one.kind == Kind::kUnstack ? one.from : -1})
      if (lane >= 0 && lane < static_cast<Symbol>(stacked.size())) stacked[lane] = true;
  });
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    const SymbolInfo& info = program.symbols[symbol];
    const int least = program.rank < 0 || info.kind != SymbolKind::kLane ? -1 : stacked[symbol] ? program.rank : 0;
    const int most = least < 0 ? -1 : stacked[symbol] ? program.rank : program.rank - 1;
    if (info.dimension < least || info.dimension > most)
      throw BrokenRule{
          fmt::format("'{}' is dimension {} of tiles that have {}", info.name, info.dimension, program.rank)};
  }
  if (program.rank < 0) return;
  for (const ValueInfo& value : program.values)
    for (const Symbol lane : value.type.lanes)
      for (const Symbol other : value.type.lanes)
        if (lane != other && program.symbols[lane].dimension == program.symbols[other].dimension)
          throw BrokenRule{fmt::format("'{}' and '{}' are one dimension of '%{}'", program.symbols[lane].name,
                                       program.symbols[other].name, value.name)};
}

void check_tickets(const Program& program) {
  if (program.tickets < 0) return;
  const int count = static_cast<int>(program.buffers.size());
  if (program.tickets >= count)
    throw BrokenRule{fmt::format("buffer {} is not in the program's table", program.tickets)};
  const Buffer& buffer = program.buffers[program.tickets];
  if (buffer.dtype != DType::i32 || buffer.space != Space::kGlobal || buffer.role == BufferRole::kInput)
    throw BrokenRule{
        fmt::format("'{}' cannot give tickets: they are of i32, in global memory, and written to", buffer.name)};
  if (program.consumers.count != 1) throw BrokenRule{"blocks that run as one take no tickets"};
}

void check_type(const Program& program, const ValueInfo& value) {
  if (value.type.dtype == DType::c64 || value.type.dtype == DType::c128)
    throw BrokenRule{fmt::format("'%{}' is complex: tiles hold its two parts", value.name)};
  std::set<Symbol> lanes;
  for (const Symbol lane : value.type.lanes) {
    if (lane < 0 || lane >= static_cast<Symbol>(program.symbols.size()) ||
        program.symbols[lane].kind != SymbolKind::kLane)
      throw BrokenRule{fmt::format("'%{}' has a dimension that is no lane", value.name)};
    if (!lanes.insert(lane).second)
      throw BrokenRule{fmt::format("'%{}' has lane '{}' twice", value.name, program.symbols[lane].name)};
  }
}

}  // namespace

void check_declarations(const Program& program) {
  check_names(program);
  check_definitions(program);
  const std::vector<kernel::SymbolRange> ranges = ranges_of(program);
  for (size_t symbol = 0; symbol < program.symbols.size(); ++symbol) {
    const bool is_place = std::count(program.places.begin(), program.places.end(), static_cast<Symbol>(symbol)) > 0;
    if (!is_place || program.symbols[symbol].kind == SymbolKind::kGrid)
      check_symbol_info(program, program.symbols[symbol], ranges);
  }
  check_grid(program);
  if (const std::string fault = fault_of_places(program); !fault.empty()) throw BrokenRule{fault};
  for (const ValueInfo& value : program.values) check_type(program, value);
  check_rank(program);
  for (const Buffer& buffer : program.buffers) check_buffer(program, buffer, ranges);
  check_tickets(program);
  if (program.warps < 1) throw BrokenRule{"a block has at least one warp"};
  if (program.max_registers < 0) throw BrokenRule{"the limit of registers is below 0"};
}

}  // namespace kw::tile
