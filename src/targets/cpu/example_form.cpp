#include "targets/cpu/example_form.hpp"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string_view>
#include <vector>

#include "emit/python_text.hpp"
#include "support/text.hpp"

namespace kw::cpu {

namespace {

// A statement of the file's outermost level that begins with `start`: up to the next such statement. Empty where there
// is none.
std::string statement(const std::string& text, std::string_view start) {
  const std::vector<std::string> lines = split_lines(text);
  const auto first = std::find_if(lines.begin(), lines.end(),
                                  [&](const std::string& line) { return line.starts_with(start); });
  if (first == lines.end()) return "";
  auto last = std::find_if(first + 1, lines.end(),
                           [](const std::string& line) { return !line.empty() && line[0] != ' '; });
  while (last != first && (last - 1)->empty()) --last;
  return join(std::vector<std::string>(first, last), "\n");
}

std::string between(const std::string& text, std::string_view from, std::string_view to) {
  const size_t begin = text.find(from);
  const size_t end = begin == std::string::npos ? begin : text.find(to, begin + from.size());
  return end == std::string::npos ? "" : text.substr(begin + from.size(), end - begin - from.size());
}

// A class without its forward.
std::string without_forward(const std::string& block) {
  std::vector<std::string> kept;
  bool inside = false;
  for (const std::string& line : split_lines(block)) {
    if (line.starts_with("    def forward(")) inside = true;
    else if (inside && line.size() > 4 && line.starts_with("    ") && line[4] != ' ' && line[4] != ')') inside = false;
    if (!inside) kept.push_back(line);
  }
  while (!kept.empty() && kept.back().empty()) kept.pop_back();
  return join(kept, "\n");
}

std::vector<int64_t> integers(const std::string& text) {
  std::vector<int64_t> numbers;
  const std::regex digits("[0-9]+");
  for (std::sregex_iterator one(text.begin(), text.end(), digits), end; one != end; ++one)
    numbers.push_back(std::stoll(one->str()));
  return numbers;
}

// As EXPECTED says: name, shape, strides.
bool takes_contiguous_tensors(const std::string& ours) {
  const std::string expected = statement(ours, "EXPECTED = (");
  const std::regex row(R"re(\("[^"]*", \(([0-9, ]*)\), \(([0-9, ]*)\))re");
  for (std::sregex_iterator one(expected.begin(), expected.end(), row), end; one != end; ++one) {
    const std::vector<int64_t> shape = integers((*one)[1]), strides = integers((*one)[2]);
    int64_t next = 1;
    for (size_t i = shape.size(); i-- > 0; next *= shape[i])
      if (shape[i] != 1 && i < strides.size() && strides[i] != next) return false;
  }
  return true;
}

}  // namespace

std::string in_models_form(const std::string& candidate) {
  constexpr std::string_view kBorder = "# --- Kernels and the module that runs them";
  const size_t border = candidate.find(kBorder);
  if (border == std::string::npos) return "";
  const std::string problem = candidate.substr(0, border), ours = candidate.substr(border);

  const std::string kernels = between(ours, "CPP_SOURCE = r\"\"\"", "\"\"\""),
                    module = statement(ours, "class ModelNew("), model = statement(problem, "class Model(");
  std::string calls = statement(ours, "def kernel_forward(");
  const std::string signature = between(module, "    def forward(", "\n"),
                    tensors = between(module, "tensors = (", ")\n");
  if (kernels.empty() || model.empty() || calls.empty() || signature.empty() || tensors.empty()) return "";
  // Nothing but names and attributes goes in, and what comes out is the answer.
  if (!std::regex_match(tensors, std::regex(R"([\w., ]+)")) ||
      module.find("        result = kernel_forward(*tensors)\n        return result") == std::string::npos)
    return "";

  calls = std::regex_replace(calls, std::regex(R"((\w+)\.data_ptr\(\)(?! \+))"), "pointer($1)");
  calls = std::regex_replace(calls, std::regex(R"(torch\.get_num_threads\(\))"), "integer(torch.get_num_threads())");
  calls = std::regex_replace(calls, std::regex(R"(load_kernels\(\)\.)"), "kernels.");
  if (calls.find("data_ptr") != std::string::npos || !takes_contiguous_tensors(ours)) return "";
  for (const std::string& name : python::top_level_names(ours))  // helpers that a model is not given
    if (name != "torch" && name != "kernel_forward" && python::has_word(calls, name)) return "";

  std::string imports;
  for (const std::string& line : split_lines(problem))
    if (line.starts_with("import ") || line.starts_with("from ")) imports += line + "\n";
  const std::string rest = without_forward(model);
  for (const std::string& name : python::top_level_names(problem))
    if (name != "Model" && !python::has_word(imports, name) && python::has_word(rest, name)) return "";
  std::string arguments = tensors;
  if (arguments.ends_with(',')) arguments.pop_back();
  return imports + "\nCPP_SOURCE = r\"\"\"" + kernels + "\"\"\"\n\nkernels = compile_cpp(CPP_SOURCE)\n\n\n" + calls +
         "\n\n\n" + python::rename_word(rest, "Model", "ModelNew") + "\n\n    def forward(" + signature +
         "\n        return kernel_forward(" + arguments + ")\n";
}

}  // namespace kw::cpu
