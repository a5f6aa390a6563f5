#include "emit/cpu/tile_accesses.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/scalar_values.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using tile::Access;
using tile::Index;
using tile::Instruction;
using tile::kNoValue;
using tile::Symbol;
using namespace precedence;

void TileAccesses::print_starts(const lower::LoopStep& loop) {
  for (const int start : loop.starts) {
    const lower::PlaceStart& one = plan_.starts[start];
    const std::string before = one.after < 0 ? "" : starts_[one.after] + " + ";
    starts_[start] = at_.text.fresh(one.name);
    at_.out.line("const int64_t " + starts_[start] + " = " + before + at_.text.index(one.index).text + ";");
    scope_.starts.push_back(start);
  }
  for (const lower::LeftOfPlace& left : loop.left) scope_.left[left.access] = &left;
}

void TileAccesses::leave(Scope scope) {
  for (size_t at = scope.starts.size(); at < scope_.starts.size(); ++at) at_.text.release(starts_[scope_.starts[at]]);
  scope_ = std::move(scope);
}

std::pair<std::string, Index> TileAccesses::place_of(const Access& access) const {
  const auto found = scope_.left.find(&access);
  if (found == scope_.left.end()) return {"", tile::offset_of(at_.text.program(), access)};
  return {starts_[found->second->start], found->second->rest};
}

std::string TileAccesses::element(const Access& access) {
  const auto [start, index] = place_of(access);
  std::vector<std::string> parts;
  if (!start.empty()) parts.push_back(start);
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
  const auto [start, rest] = place_of(access);
  const Index index = kernel::substitute(
      rest, [&](Symbol symbol) { return tile::has_lane(lanes, symbol) ? Index(0) : kernel::symbol_index(symbol); },
      at_.text.ranges());
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
