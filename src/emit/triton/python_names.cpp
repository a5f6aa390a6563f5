#include "emit/triton/python_names.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/python_text.hpp"
#include "emit/runtime/triton/helpers.hpp"
#include "emit/triton/tile_atomics.hpp"

namespace kw::triton {

namespace {

// What folds and operations are called where nobody named them, in other words.
std::string in_other_words(const std::string& name) {
  static const std::map<std::string, std::string> kWords = {
      {"abs", "magnitude"},  {"all", "everywhere"}, {"any", "anywhere"},
      {"bounded", "place"},  {"filter", "filters"}, {"max", "largest"},
      {"min", "smallest"},   {"pow", "power"},      {"floor_divide", "quotient"},
      {"remainder", "rest"}, {"sign", "signum"},    {"round", "rounded"},
      {"sum", "total"}};
  const auto found = kWords.find(name);
  return found == kWords.end() ? name + "_tile" : found->second;
}

}  // namespace

void give_python_names(tile::Program& program) {
  std::vector<std::string*> names;
  for (tile::SymbolInfo& symbol : program.symbols) names.push_back(&symbol.name);
  for (tile::Buffer& buffer : program.buffers) names.push_back(&buffer.name);
  for (tile::ValueInfo& value : program.values) names.push_back(&value.name);
  std::set<std::string> taken;
  for (const std::string* name : names) taken.insert(*name);
  const bool adds = calls_add(program);  // else nothing printed of it calls `add`
  for (std::string* name : names) {
    static const std::set<std::string> kOwn = {"gl", "gluon", "hopper", "libdevice", "tl", "torch", "triton"};
    if (!python::reserved_names().contains(*name) && !kOwn.contains(*name) &&
        (!is_helper(*name) || (*name == "add" && !adds)))
      continue;
    const std::string wanted = in_other_words(*name);
    std::string other = wanted;
    for (int number = 2; !taken.insert(other).second; ++number) other = fmt::format("{}_{}", wanted, number);
    *name = other;
  }
}

}  // namespace kw::triton
