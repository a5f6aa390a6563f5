#include "tile/text_names.hpp"

#include "kernel/index_parse.hpp"
#include "support/error.hpp"

namespace kw::tile {

ProgramNames::Name ProgramNames::new_name() {
  Name name{reader_.position(), reader_.name()};
  if (!names_.insert(name.text).second)
    reader_.fail_at(name.position, fmt::format("'{}' is the name of something else already", name.text));
  return name;
}

Symbol ProgramNames::add_symbol(SymbolInfo info) {
  const Symbol symbol = static_cast<Symbol>(program_.symbols.size());
  symbols_[info.name] = symbol;
  ranges_.push_back(info.range);
  program_.symbols.push_back(std::move(info));
  return symbol;
}

void ProgramNames::show(Value value) {
  values_[program_.values[value].name] = value;
  shown_.push_back(value);
}

void ProgramNames::hide_from(size_t count) {
  for (; shown_.size() > count; shown_.pop_back()) values_.erase(program_.values[shown_.back()].name);
}

Value ProgramNames::used_value() {
  const size_t at = reader_.position();
  reader_.expect("%");
  const std::string name = reader_.name();
  const auto found = values_.find(name);
  if (found == values_.end()) reader_.fail_at(at, fmt::format("no value is called '%{}' here", name));
  return found->second;
}

std::vector<Value> ProgramNames::used_values() {
  std::vector<Value> list = {used_value()};
  while (reader_.accept(",")) list.push_back(used_value());
  return list;
}

Symbol ProgramNames::used_symbol(SymbolKind kind, std::string_view what) {
  const size_t at = reader_.position();
  const std::string name = reader_.name();
  const auto found = symbols_.find(name);
  if (found == symbols_.end() || program_.symbols[found->second].kind != kind)
    reader_.fail_at(at, fmt::format("no {} is called '{}'", what, name));
  return found->second;
}

std::vector<Symbol> ProgramNames::used_lanes() {
  std::vector<Symbol> list = {used_symbol(SymbolKind::kLane, "lane")};
  while (reader_.accept(",")) list.push_back(used_symbol(SymbolKind::kLane, "lane"));
  return list;
}

DType ProgramNames::dtype() {
  const size_t at = reader_.position();
  const std::string name = reader_.name();
  const std::optional<DType> found = parse_dtype(name);
  if (!found) reader_.fail_at(at, fmt::format("there is no type '{}'", name));
  return *found;
}

Index ProgramNames::index() {
  return kernel::parse_index(
      reader_,
      [&](std::string_view name) -> std::optional<Symbol> {
        const auto found = symbols_.find(std::string(name));
        return found == symbols_.end() ? std::nullopt : std::optional(found->second);
      },
      ranges_);
}

std::vector<Index> ProgramNames::indices() {
  std::vector<Index> list;
  reader_.expect("[");
  if (reader_.accept("]")) return list;
  do list.push_back(index());
  while (reader_.accept(","));
  reader_.expect("]");
  return list;
}

int ProgramNames::whole_number(int64_t least, int64_t most) {
  const size_t at = reader_.position();
  const int64_t number = reader_.integer();
  if (number < least || number > most)
    reader_.fail_at(at, fmt::format("{} is not within {} and {}", number, least, most));
  return static_cast<int>(number);
}

}  // namespace kw::tile
