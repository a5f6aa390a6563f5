#include "emit/module_parts.hpp"

#include <cctype>
#include <map>
#include <set>

namespace kw {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "self", ".layer1", "[0]", ".weight"; empty for what is no part of a module, or more than names and whole numbers.
std::vector<std::string> steps_of(const std::string& expression) {
  std::vector<std::string> steps;
  for (size_t at = 0; at < expression.size();) {
    size_t end = at + 1;
    if (expression[at] == '[') {
      while (end < expression.size() && std::isdigit(static_cast<unsigned char>(expression[end]))) ++end;
      if (end == at + 1 || end == expression.size() || expression[end++] != ']') return {};
    } else {
      const size_t first = expression[at] == '.' ? end : at;
      for (end = first; end < expression.size() && is_word(expression[end]);) ++end;
      if (end == first || (at > 0) != (expression[at] == '.')) return {};
    }
    steps.push_back(expression.substr(at, end - at));
    at = end;
  }
  if (steps.empty() || (steps[0] != "self" && steps[0] != "module")) return {};
  return steps;
}

// "layer1_0" of ".layer1" and "[0]".
std::string wished_name(const std::vector<std::string>& steps, size_t count) {
  std::string name;
  for (size_t step = 1; step < count; ++step) {
    if (!name.empty()) name += "_";
    for (char c : steps[step])
      if (is_word(c)) name += c;
  }
  return std::isdigit(static_cast<unsigned char>(name[0])) ? "part_" + name : name;
}

}  // namespace

ModuleParts named_parts(const std::vector<std::string>& expressions,
                        const std::function<std::string(const std::string&)>& free_name) {
  std::vector<std::vector<std::string>> all;
  std::map<std::string, std::set<std::string>> goes_on;  // of a beginning: the steps that follow it
  for (const std::string& expression : expressions) {
    all.push_back(steps_of(expression));
    std::string beginning;
    for (const std::string& step : all.back()) {
      goes_on[beginning].insert(step);
      beginning += step;
    }
  }
  ModuleParts parts;
  std::map<std::string, std::string> names;  // of a beginning
  for (size_t at = 0; at < expressions.size(); ++at) {
    std::string beginning, text;
    for (size_t step = 0; step < all[at].size(); ++step) {
      beginning += all[at][step];
      text += all[at][step];
      const auto next = goes_on.find(beginning);
      if (step == 0 || next == goes_on.end() || next->second.size() < 2) continue;
      const auto [place, is_new] = names.try_emplace(beginning);
      if (is_new) {
        place->second = free_name(wished_name(all[at], step + 1));
        parts.definitions += place->second + " = " + text + "\n";
      }
      text = place->second;
    }
    parts.expressions.push_back(all[at].empty() ? expressions[at] : text);
  }
  return parts;
}

std::optional<std::string> registered_path(const std::string& expression) {
  const std::vector<std::string> steps = steps_of(expression);
  if (steps.empty()) return std::nullopt;
  std::string path;
  for (size_t at = 1; at < steps.size(); ++at) {
    if (at > 1) path += ".";
    for (char c : steps[at])
      if (is_word(c)) path += c;
  }
  return path;
}

}  // namespace kw
