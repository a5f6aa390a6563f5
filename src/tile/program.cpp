#include "tile/program.hpp"

#include <algorithm>
#include <numeric>

namespace kw::tile {

bool has_form(ScalarOp op, Exactness exactness) {
  switch (op) {
    case ScalarOp::kDiv:
    case ScalarOp::kReciprocal:
    case ScalarOp::kRsqrt:
    case ScalarOp::kSigmoid: return true;
    case ScalarOp::kExp:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kPow: return exactness != Exactness::kExact;
    case ScalarOp::kTruncDiv: return exactness != Exactness::kApproximate;
    default: return exactness == Exactness::kUsual;
  }
}

bool has_nonnegative_form(ScalarOp op, DType dtype) {
  if (op == ScalarOp::kPow) return dtype == DType::f32;
  return (op == ScalarOp::kFloorDiv || op == ScalarOp::kRemainder) && is_integral(dtype);
}
namespace {

void mark_named(const Program& program, std::vector<bool>& used) {
  std::vector<Symbol> left;
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && program.symbols[symbol].kind == SymbolKind::kNamed) left.push_back(static_cast<Symbol>(symbol));
  while (!left.empty()) {
    const Index& value = program.symbols[left.back()].value;
    left.pop_back();
    std::vector<bool> inside;
    collect_symbols(value, inside);
    for (size_t symbol = 0; symbol < inside.size(); ++symbol) {
      if (!inside[symbol] || used[symbol]) continue;
      used[symbol] = true;
      if (program.symbols[symbol].kind == SymbolKind::kNamed) left.push_back(static_cast<Symbol>(symbol));
    }
  }
}

// Those of the symbols, and of what named indices are made of.
std::vector<Symbol> lanes_among(const Program& program, std::vector<bool> used) {
  std::vector<Symbol> lanes;
  used.resize(program.symbols.size());
  mark_named(program, used);
  for (size_t symbol = 0; symbol < used.size(); ++symbol)
    if (used[symbol] && program.symbols[symbol].kind == SymbolKind::kLane) lanes.push_back(static_cast<Symbol>(symbol));
  return lanes;
}

bool maps_and_folds(const std::vector<Instruction>& body) {
  return std::all_of(body.begin(), body.end(), [](const Instruction& one) {
    switch (one.kind) {
      case Kind::kConstant:
      case Kind::kDefine:
      case Kind::kIndex:
      case Kind::kOp:
      case Kind::kFold:
      case Kind::kScan:
      case Kind::kStack:
      case Kind::kUnstack:
      case Kind::kStore: return true;
      case Kind::kLoad: return one.mode == CopyMode::kPlain;
      case Kind::kBarrier: return !one.lanes.empty();
      case Kind::kFor: return maps_and_folds(one.body);
      default: return false;
    }
  });
}

}  // namespace

int64_t width_of(const Program& program, Symbol lane) { return program.symbols[lane].range.high + 1; }

int64_t bytes_of(const Program& program, const TileType& type) {
  int64_t bytes = size_of(type.dtype);
  for (const Symbol lane : type.lanes) bytes *= width_of(program, lane);
  return bytes;
}

std::vector<kernel::SymbolRange> ranges_of(const Program& program) {
  std::vector<kernel::SymbolRange> ranges;
  ranges.reserve(program.symbols.size());
  for (const SymbolInfo& symbol : program.symbols) ranges.push_back(symbol.range);
  return ranges;
}

std::vector<Index> strides_of(const Buffer& buffer) {
  if (!buffer.strides.empty()) return buffer.strides;
  std::vector<Index> strides(buffer.shape.size(), Index(1));
  for (size_t i = buffer.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * buffer.shape[i];
  return strides;
}

int64_t elements_spanned(const Program& program, const Buffer& buffer) {
  const std::vector<kernel::SymbolRange> ranges = ranges_of(program);
  const std::vector<Index> strides = strides_of(buffer);
  int64_t elements = 1;
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    const int64_t extent = kernel::range_of(buffer.shape[i], ranges).high;
    if (extent == 0) return 0;
    elements += (extent - 1) * kernel::range_of(strides[i], ranges).high;
  }
  return elements;
}

kernel::SymbolRange grid_range(const Index& count, kernel::SymbolRanges ranges) {
  return {0, std::max<int64_t>(kernel::range_of(count, ranges).high - 1, 0), 1};
}

kernel::SymbolRange loop_range(const Index& begin, const Index& end, int64_t step, kernel::SymbolRanges ranges) {
  const kernel::Interval first = kernel::range_of(begin, ranges);
  const int64_t divisor = std::max<int64_t>(std::gcd(kernel::known_divisor(begin, ranges), step), 1);
  const int64_t past = kernel::range_of(end, ranges).high;
  // The last value is the beginning plus whole steps, and a multiple of the divisor.
  int64_t last = past - 1;
  if (first.low == first.high) last = first.low + (last - first.low) / step * step;
  else last -= ((last % divisor) + divisor) % divisor;
  return {first.low, std::max(first.low, last), divisor};
}

Index iterations_of(const Program& program, const Instruction& loop) {
  return kernel::ceil_divide(loop.end - loop.begin, loop.step, ranges_of(program));
}

Index offset_of(const Program& program, const Access& access) {
  const std::vector<Index> strides = strides_of(program.buffers[access.buffer]);
  Index offset;
  for (size_t i = 0; i < access.coordinates.size(); ++i) offset = offset + access.coordinates[i].index * strides[i];
  return offset;
}

std::optional<Index> stride_along(const Program& program, const Access& access, Symbol symbol) {
  const auto parts = kernel::linear_in(offset_of(program, access), symbol);
  return parts ? std::optional(parts->coefficient) : std::nullopt;
}

std::vector<Symbol> lanes_of(const Program& program, const Access& access) {
  std::vector<bool> used(program.symbols.size());
  const auto mark = [&](Value value) {
    if (value == kNoValue) return;
    for (Symbol lane : program.values[value].type.lanes) used[lane] = true;
  };
  for (const Coordinate& coordinate : access.coordinates) {
    collect_symbols(coordinate.index, used);
    mark(coordinate.value);
  }
  mark(access.mask);
  return lanes_among(program, std::move(used));
}

std::vector<Symbol> lanes_of(const Program& program, const Index& index) {
  std::vector<bool> used(program.symbols.size());
  collect_symbols(index, used);
  return lanes_among(program, std::move(used));
}

bool waits_for_grid(const Program& program) {
  bool found = false;
  for_each(program.body, [&](const Instruction& one) {
    found = found || (one.kind == Kind::kBarrier && one.scope == Scope::kGrid && one.lanes.empty());
  });
  return found;
}

std::vector<Symbol> shared_rows(const Program& program) {
  std::vector<Symbol> rows;
  for_each(program.body, [&](const Instruction& one) {
    if (one.kind == Kind::kBarrier && one.scope == Scope::kGrid && rows.empty()) rows = one.lanes;
  });
  return rows;
}

int64_t blocks_of_row(const Program& program) {
  int64_t count = 1;
  for (Symbol symbol : shared_rows(program))
    count *= kernel::range_of(program.symbols[symbol].count, ranges_of(program)).high;
  return count;
}

Index arrivals_at(const Program& program, const Instruction& barrier) {
  Index blocks(barrier.lanes.empty() ? 1 : blocks_of_row(program));
  if (barrier.lanes.empty())
    for (Symbol symbol : program.grid) blocks = blocks * program.symbols[symbol].count;
  return (barrier.index + Index(1)) * blocks;
}

bool counts_blocks(const Program& program, int buffer) {
  bool found = program.tickets == buffer;
  for_each(program.body, [&](const Instruction& one) {
    found = found || (one.kind == Kind::kBarrier && one.access.buffer == buffer);
  });
  return found && buffer >= 0;
}

bool maps_and_folds(const Program& program) {
  const auto is_row = [](const Buffer& buffer) { return buffer.shape.size() == 1 && buffer.strides.empty(); };
  return std::all_of(program.buffers.begin(), program.buffers.end(), is_row) && maps_and_folds(program.body);
}

namespace {

// Notes which values hang on what was loaded. Does everything in `body` store only where such a value says so?
bool stores_where_data_say(const std::vector<Instruction>& body, std::vector<bool>& loaded) {
  bool all = true;
  for (const Instruction& one : body) {
    bool is_loaded = one.kind == Kind::kLoad;
    for_each_operand(one, [&](Value operand) { is_loaded = is_loaded || loaded[operand]; });
    for (const Value result : one.results) loaded[result] = is_loaded;
    for (const Value argument : one.arguments) loaded[argument] = is_loaded;
    all = all && one.kind != Kind::kStore;
    const bool inside = stores_where_data_say(one.body, loaded) & stores_where_data_say(one.otherwise_body, loaded);
    all = all && (inside || (one.kind == Kind::kIf && is_loaded));
    for (const auto* yields : {&one.yields, &one.otherwise_yields})
      for (size_t place = 0; place < yields->size() && place < one.results.size(); ++place)
        loaded[one.results[place]] = loaded[one.results[place]] || loaded[(*yields)[place]];
  }
  return all;
}

}  // namespace

bool stores_for_rare_inputs(const Program& program) {
  std::vector<bool> loaded(program.values.size());
  return stores_where_data_say(program.body, loaded);
}

}  // namespace kw::tile
