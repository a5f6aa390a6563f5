#include "emit/runtime/cpu/helper_sections.hpp"

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <vector>

#include "emit/runtime/cpu/embedded.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cpu {
namespace {

struct Section {
  std::string name;
  std::vector<std::string> needs;
  std::string text;
};

constexpr std::string_view kMarker = "//@ ";
constexpr const char* kIncludes[] = {"algorithm", "cmath", "cstdint", "cstdlib", "cstring", "limits"};
constexpr const char* kIncludesOfSorts[] = {"type_traits", "utility", "vector"};

// Appends a file's sections; what stands before the first of them is the file's own comment.
void cut(std::string_view source, std::vector<Section>& sections) {
  const size_t before = sections.size();
  for (const std::string& line : split_lines(source)) {
    if (line.rfind(kMarker, 0) == 0) {
      std::istringstream words(line.substr(kMarker.size()));
      Section section;
      words >> section.name;
      for (std::string word; words >> word;)
        if (word != ":") section.needs.push_back(word);
      sections.push_back(std::move(section));
    } else if (sections.size() > before) {
      sections.back().text += line + "\n";
    }
  }
}

// vector_math.h first: its `inline` is what the sections of scalar_math.h need.
const std::vector<Section>& all_sections() {
  static const std::vector<Section> sections = [] {
    std::vector<Section> all;
    for (const std::string_view text : {kVectorMathText, kScalarMathText, kSortRowsText, kTileMathText}) cut(text, all);
    return all;
  }();
  return sections;
}

}  // namespace

bool has_helper(const std::string& name) {
  for (const Section& section : all_sections())
    if (section.name == name) return true;
  return false;
}

std::string helper_text(const HelperSet& names) {
  for (const std::string& name : names) KW_ASSERT(has_helper(name), "no helper is named " + name);
  HelperSet wanted = names;
  const std::vector<Section>& sections = all_sections();
  for (auto section = sections.rbegin(); section != sections.rend(); ++section)
    if (wanted.count(section->name)) wanted.insert(section->needs.begin(), section->needs.end());
  std::string text;
  for (const Section& section : sections)
    if (wanted.count(section.name)) text += (text.empty() || section.name == "inline" ? "" : "\n") + section.text;
  return text;
}

std::string cpp_file(const std::string& functions, const HelperSet& helpers) {
  std::string file;
  for (const char* header : kIncludes) file += fmt::format("#include <{}>\n", header);
  if (helpers.contains("sort_row"))
    for (const char* header : kIncludesOfSorts) file += fmt::format("#include <{}>\n", header);
  if (!helpers.empty()) file += "\nnamespace {\n\n" + helper_text(helpers) + "\n}  // namespace\n";
  return file + "\n" + functions;
}

}  // namespace kw::cpu
