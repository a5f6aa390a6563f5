#include "emit/cpu/tile_accesses.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/scalar_values.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using tile::Access;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using namespace precedence;

namespace {

// Shorter parts are written where they are used.
constexpr size_t kShortestSum = 12;

// The terms whose symbols are all known, before the loop of a variable (-1: none), and the others with the constant:
// accesses that differ in it share the known.
std::pair<Index, Index> split_by(const TileContext& at, const Index& index, Symbol loop) {
  Index known, rest;
  for (const kernel::IndexTerm& term : index.terms) {
    Index one;
    one.terms = {term};
    const std::vector<Symbol> lanes = tile::lanes_of(at.text.program(), one);
    const bool is_known = (loop < 0 || !kernel::uses(one, loop)) &&
                          std::all_of(lanes.begin(), lanes.end(), [&](Symbol lane) { return at.is_open(lane); });
    Index& part = is_known ? known : rest;
    part = part + one;
  }
  rest = rest + Index(index.constant);
  return {known, rest};
}

void collect(const lower::LoopStep& step, std::vector<const Access*>& accesses) {
  if (step.instruction) {
    const Instruction& one = *step.instruction;
    if (one.kind == Kind::kLoad || one.kind == Kind::kStore || one.kind == Kind::kCopy) accesses.push_back(&one.access);
    if (one.kind == Kind::kCopy) accesses.push_back(&one.destination);
  }
  for (const lower::LoopStep& inner : step.body) collect(inner, accesses);
}

}  // namespace

void TileAccesses::prepare(const lower::LoopStep& loop) {
  std::vector<const Access*> accesses;
  collect(loop, accesses);
  for (const Access* access : accesses) prepare(*access, loop.instruction ? loop.instruction->symbol : -1);
}

void TileAccesses::leave(Scope scope) {
  for (const auto& [sum, name] : scope_.named)
    if (!scope.named.contains(sum)) at_.text.release(name);
  scope_ = std::move(scope);
}

void TileAccesses::prepare(const Access& access, Symbol loop) {
  const auto found = scope_.parts.find(&access);
  Index index = tile::offset_of(at_.text.program(), access);
  std::string start;
  if (found != scope_.parts.end()) std::tie(index, start) = found->second;
  auto [known, rest] = split_by(at_, index, loop);
  if (known == Index(0) || (start.empty() && kernel::as_symbol(known))) return;
  const std::string more = at_.text.index(known).text;
  const std::string sum = start.empty() ? more : start + " + " + more;
  if (sum.size() < kShortestSum) return;
  std::string& name = scope_.named[sum];
  if (name.empty()) {
    const std::string& buffer = at_.text.program().buffers[access.buffer].name;
    const bool is_first = loop >= 0 && scope_.named.size() == 1;
    name = at_.text.fresh(is_first           ? "start"
                          : at_.open.empty() ? buffer + "_start"
                                             : buffer + "_at_" + at_.text.symbol(at_.open.back()));
    at_.out.line("const int64_t " + name + " = " + sum + ";");
  }
  scope_.parts[&access] = {rest, name};
}

std::string TileAccesses::element(const Access& access) {
  const auto found = scope_.parts.find(&access);
  Index index = tile::offset_of(at_.text.program(), access);
  std::vector<std::string> parts;
  if (found != scope_.parts.end()) {
    index = found->second.first;
    parts.push_back(found->second.second);
  }
  const std::vector<Index> strides = tile::strides_of(at_.text.program().buffers[access.buffer]);
  for (size_t i = 0; i < access.coordinates.size(); ++i) {
    const tile::Value value = access.coordinates[i].value;
    if (value == kNoValue) continue;
    // Beside a position, or by itself, it needs no 64 bits.
    const bool scaled = !(strides[i] == Index(1));
    const DType dtype = at_.text.type(value).dtype;
    const Text at = scaled ? cast_text(at_.value(value), dtype, DType::i64, at_.text.helpers()) : at_.value(value);
    parts.push_back(scaled ? within(at, kMultiply) + " * " + within(at_.text.index(strides[i]), kUnary)
                           : within(at, kAdd));
  }
  if (!(index == Index(0)) || parts.empty()) parts.push_back(at_.text.index(index).text);
  return at_.text.buffer(access.buffer) + "[" + join(parts, " + ") + "]";
}

std::string TileAccesses::first(const Access& access, const std::vector<Symbol>& lanes) {
  const auto found = scope_.parts.find(&access);
  const auto at_start = [&](const Index& index) {
    return kernel::substitute(
        index, [&](Symbol symbol) { return tile::has_lane(lanes, symbol) ? Index(0) : kernel::symbol_index(symbol); },
        at_.text.ranges());
  };
  Index index = at_start(found == scope_.parts.end() ? tile::offset_of(at_.text.program(), access)
                                                     : found->second.first);
  const std::string start = found == scope_.parts.end() ? "" : found->second.second;
  std::string place = index == Index(0) && !start.empty() ? start : at_.text.index(index).text;
  if (!start.empty() && !(index == Index(0))) place = start + " + " + place;
  return "&" + at_.text.buffer(access.buffer) + "[" + place + "]";
}

// Under which something is there to be loaded or stored; empty: always.
std::string TileAccesses::condition(const Instruction& one, bool unless_refused) const {
  std::vector<std::string> conditions;
  const bool holds = at_.holding.count(one.access.mask) > 0;
  if (const tile::Value mask = at_.asked(one.access.mask); mask != kNoValue && !holds)
    conditions.push_back(within(at_.value(mask), kAnd));
  if (unless_refused) conditions.push_back("!refused");
  const tile::Buffer& buffer = at_.text.program().buffers[one.access.buffer];
  // A box may leave its buffer.
  for (size_t i = 0; one.mode == tile::CopyMode::kBulk && i < buffer.shape.size(); ++i) {
    const Index& at = one.access.coordinates[i].index;
    const kernel::Interval reach = kernel::range_of(at, at_.text.ranges());
    const std::string text = within(at_.text.index(at), kAdd);
    const kernel::Interval extent = kernel::range_of(buffer.shape[i], at_.text.ranges());
    if (reach.low < 0) conditions.push_back(text + " >= 0");
    if (reach.high >= extent.low) conditions.push_back(text + " < " + within(at_.text.index(buffer.shape[i]), kAdd));
  }
  return join(conditions, " && ");
}

// As a number of the type, in what holds it.
Text TileAccesses::otherwise(const Instruction& one, DType dtype, DType held) const {
  const double number = one.access.otherwise;
  if (kernel::is_real(dtype)) return constant_text(held, kernel::round_to(dtype, number), 0, at_.text.helpers());
  return constant_text(held, 0.0, static_cast<int64_t>(number), at_.text.helpers());
}

Text TileAccesses::load(const Instruction& load) {
  const tile::Value value = load.results[0];
  const DType dtype = at_.text.type(value).dtype, held = at_.text.held(value);
  const Text element{this->element(load.access), kPrimary};
  const std::string condition = this->condition(load);
  // Truths are stored as bytes. Loops that choose between truths do not vectorise: the choice is between bytes.
  if (dtype == DType::b1) {
    const std::string byte = fmt::format("({} ? {} : {})", condition, element.text, load.access.otherwise != 0 ? 1 : 0);
    return {(condition.empty() ? element.text : byte) + " != 0", kEquality};
  }
  const Text loaded = cast_text(element, dtype, held, at_.text.helpers());
  if (condition.empty()) return loaded;
  return {condition + " ? " + within(loaded, kOr) + " : " + otherwise(load, dtype, held).text, kChoice};
}

void TileAccesses::store(const Instruction& store, bool unless_refused) {
  const tile::Value value = store.operands[0];
  const std::string place = element(store.access), condition = this->condition(store, unless_refused);
  if (store.combines && !store.in_order) {
    if (!condition.empty()) at_.out.open("if (" + condition + ")");
    combine(store, place);
    if (!condition.empty()) at_.out.close();
    return;
  }
  const DType dtype = at_.text.type(value).dtype;
  DType held = at_.text.held(value);
  Text result = at_.value(value);
  if (store.combines) {
    const Text old = cast_text({place, kPrimary}, dtype, held, at_.text.helpers());
    result = at_.text.operation(*kernel::step_of(store.reduce), held, {old, result}, {held, held});
  }
  const Text stored = dtype == DType::b1 ? result : cast_text(result, held, dtype, at_.text.helpers());
  at_.out.line((condition.empty() ? "" : "if (" + condition + ") ") + place + " = " + stored.text + ";");
}

void TileAccesses::combine(const Instruction& store, const std::string& place) {
  const tile::Value value = store.operands[0];
  const DType dtype = at_.text.type(value).dtype, held = at_.text.held(value);
  const std::string type = storage_type(dtype);
  const auto read = [&](const char* name) { return cast_text({name, kPrimary}, dtype, held, at_.text.helpers()); };
  const Text result = at_.text.operation(*kernel::step_of(store.reduce), dtype, {read("a"), read("b")}, {dtype, dtype});
  const Text stored = cast_text(result, held, dtype, at_.text.helpers());
  const Text given = cast_text(at_.value(value), held, dtype, at_.text.helpers());
  at_.text.helpers().insert("combine_atomically");
  at_.out.line(fmt::format("combine_atomically<{0}>(&{1}, {2}, []({0} a, {0} b) {{ return {3}; }});", type, place,
                           given.text, stored.text));
}

void TileAccesses::copy(const Instruction& copy) {
  const DType dtype = at_.text.program().buffers[copy.access.buffer].dtype;
  const std::string from = element(copy.access), condition = this->condition(copy);
  const DType held = is_narrow_float(dtype) ? DType::f32 : dtype;
  const Text other = cast_text(otherwise(copy, dtype, held), held, dtype, at_.text.helpers());
  at_.out.line(element(copy.destination) + " = " +
               (condition.empty() ? from : condition + " ? " + from + " : " + other.text) + ";");
}

}  // namespace kw::cpu
