#include <fmt/format.h>

#include "emit/cpu/tile_context.hpp"
#include "emit/cpu/tile_printer.hpp"
#include "support/error.hpp"

namespace kw::cpu {

using tile::Value;

void refuse_tile(const tile::Program& program, const std::string& what) {
  throw Error(ErrorKind::kInternal, fmt::format("tile program '{}' has no C++ form: {}", program.name, what));
}

namespace {

bool is_written(const TileContext& at, Value value) { return at.text.place(value).home == lower::Home::kWritten; }

bool share(const TileContext& at, Value left, Value right) {
  return !is_written(at, right) && at.text.place(left).storage == at.text.place(right).storage;
}

// Does an assignment change what another one reads?
bool is_overwritten(const TileContext& at, const Assignments& all, const Assignments::value_type& one) {
  for (const auto& other : all)
    if (other.first != one.first && !share(at, other.first, other.second) && share(at, other.first, one.second))
      return true;
  return false;
}

void set(TileContext& at, Value target, const std::string& source, bool is_array, bool declare) {
  const std::string& name = at.text.name(target);
  const std::string count = std::to_string(at.text.elements(target));
  if (!at.text.is_array(target))
    at.out.line((declare ? at.text.held_type(target) + " " : "") + name + " = " + source + ";");
  else if (is_array) at.out.line(fmt::format("std::copy_n({}, {}, {});", source, count, name));
  else at.out.line(fmt::format("std::fill_n({}, {}, {});", name, count, source));
}

}  // namespace

void assign(TileContext& at, const Assignments& assignments, const std::set<Value>& declared) {
  std::map<Value, std::string> kept;
  for (const auto& one : assignments) {
    const Value source = one.second;
    if (share(at, one.first, source) || kept.count(source) || !is_overwritten(at, assignments, one)) continue;
    const std::string name = at.text.fresh(at.text.own_name(source) + "_before");
    kept[source] = name;
    if (at.text.is_array(source)) {
      at.out.line(fmt::format("alignas(64) {} {}[{}];", at.text.held_type(source), name, at.text.elements(source)));
      at.out.line(fmt::format("std::copy_n({}, {}, {});", at.text.name(source), at.text.elements(source), name));
    } else {
      at.out.line(fmt::format("const {} {} = {};", at.text.held_type(source), name, at.text.name(source)));
    }
  }
  for (const auto& [target, source] : assignments) {
    if (share(at, target, source)) continue;
    const bool is_array = !is_written(at, source) && at.text.is_array(source);
    const auto found = kept.find(source);
    const std::string text = found != kept.end() ? found->second
                             : is_array          ? at.text.name(source)
                                                 : at.value(source).text;
    set(at, target, text, is_array, declared.count(target) != 0);
  }
}

}  // namespace kw::cpu
