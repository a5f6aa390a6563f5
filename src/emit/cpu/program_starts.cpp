#include "emit/cpu/program_starts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;
using namespace precedence;

std::vector<IndexTerm> ProgramStarts::start_of(const Index& index) const {
  std::vector<IndexTerm> start;
  for (const IndexTerm& term : index.terms)
    if (std::find(nest_.program_axes.begin(), nest_.program_axes.end(), term.axis) != nest_.program_axes.end())
      start.push_back(term);
  return start.size() >= 2 ? start : std::vector<IndexTerm>{};
}

const std::string* ProgramStarts::find(const std::vector<IndexTerm>& start) const {
  for (const auto& [terms, name] : variables_)
    if (terms == start) return &name;
  return nullptr;
}

void ProgramStarts::print(const std::vector<std::string>& buffers, const AxisNames& axes, Names& names,
                          CodeWriter& writer) {
  const auto print_for = [&](const Access& access) {
    const std::vector<IndexTerm> start = start_of(access.index);
    if (start.empty() || start.size() == access.index.terms.size() || find(start)) return;
    variables_.push_back({start, names.fresh(variables_.empty() ? "start" : buffers[access.buffer] + "_start")});
    writer.line(fmt::format("const int64_t {} = {};", variables_.back().second,
                            index_text(kernel_, {0, start}, axes, &access.index).text));
  };
  for (size_t id = 0; id < kernel_.exprs.size(); ++id)
    if (nest_.needed[id] && is_load(kernel_.exprs[id])) print_for(kernel_.exprs[id].access);
  for (const Store& store : kernel_.stores) print_for(store.access);
}

std::string ProgramStarts::element(const Access& access, const std::string& buffer, const AxisNames& axes,
                                   const Text* gathered) const {
  std::vector<std::string> parts;
  const std::vector<IndexTerm> start = start_of(access.index);
  const std::string* variable = find(start);
  Index rest = access.index;
  if (variable) {
    parts.push_back(*variable);
    std::erase_if(rest.terms,
                  [&](const IndexTerm& term) { return std::find(start.begin(), start.end(), term) != start.end(); });
  }
  if (gathered) parts.push_back(within(*gathered, kAdd));
  if (parts.empty() || !rest.terms.empty() || rest.constant != 0)
    parts.push_back(index_text(kernel_, rest, axes, &access.index).text);
  return fmt::format("{}[{}]", buffer, join(parts, " + "));
}

}  // namespace kw::cpu
