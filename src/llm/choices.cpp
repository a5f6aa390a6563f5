#include "llm/choices.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace kw::llm {

using Json = nlohmann::ordered_json;

namespace {

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

// A terminal of GBNF, for text that holds no backslash and no line end.
std::string terminal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '\\';
    out += c;
  }
  return out + "\"";
}

PickedAnswer faulty(const char* code, std::string fault) { return {std::nullopt, code, std::move(fault)}; }

// From the first '{' to the '}' that closes it, outside strings.
std::string_view first_object(std::string_view text) {
  const size_t begin = text.find('{');
  if (begin == std::string_view::npos) return {};
  int depth = 0;
  bool in_string = false;
  for (size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      else in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    depth += c == '{';
    depth -= c == '}';
    if (depth == 0) return text.substr(begin, at - begin + 1);
  }
  return {};
}

std::string values_text(const Choice& choice) {
  std::string text;
  for (const int64_t value : choice.values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

template <typename List>
auto named(List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
}

}  // namespace

std::string picked_text(const ChoiceSpace& space, const Picked& picked) {
  std::string text = "{";
  for (size_t group = 0; group < space.size(); ++group) {
    text += (group ? ", " : "") + in_quotes(space[group].name) + ": {";
    for (size_t choice = 0; choice < space[group].choices.size(); ++choice)
      text += (choice ? ", " : "") + in_quotes(space[group].choices[choice].name) + ": " + std::to_string(picked[group][choice]);
    text += "}";
  }
  return text + "}";
}

std::string grammar_of(const ChoiceSpace& space) {
  std::string root = "root ::= " + terminal("{"), rules;
  for (size_t group = 0; group < space.size(); ++group) {
    const std::string rule = "group" + std::to_string(group);
    root += " " + terminal((group ? ", " : "") + in_quotes(space[group].name) + ": ") + " " + rule;
    rules += rule + " ::= ";
    std::string before = "{";
    for (const Choice& choice : space[group].choices) {
      rules += terminal(before + in_quotes(choice.name) + ": ") + " (";
      for (size_t value = 0; value < choice.values.size(); ++value) rules += (value ? " | " : "") + terminal(std::to_string(choice.values[value]));
      rules += ") ";
      before = ", ";
    }
    rules += terminal(space[group].choices.empty() ? "{}" : "}") + "\n";
  }
  return root + " " + terminal("}") + "\n" + rules;
}

Json schema_of(const ChoiceSpace& space) {
  const auto object = [](Json properties) {
    Json required = Json::array();
    for (const auto& [name, schema] : properties.items()) required.push_back(name);
    return Json{{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}, {"additionalProperties", false}};
  };
  Json groups = Json::object();
  for (const ChoiceGroup& group : space) {
    Json choices = Json::object();
    for (const Choice& choice : group.choices) choices[choice.name] = {{"type", "integer"}, {"enum", choice.values}};
    groups[group.name] = object(std::move(choices));
  }
  return object(std::move(groups));
}

size_t longest_text(const ChoiceSpace& space) {
  Picked longest;
  for (const ChoiceGroup& group : space) {
    longest.emplace_back();
    for (const Choice& choice : group.choices)
      longest.back().push_back(*std::max_element(choice.values.begin(), choice.values.end(), [](int64_t one, int64_t other) { return std::to_string(one).size() < std::to_string(other).size(); }));
  }
  return picked_text(space, longest).size();
}

PickedAnswer read_picked(const ChoiceSpace& space, std::string_view answer) {
  const std::string_view text = first_object(answer);
  const Json json = text.empty() ? Json() : Json::parse(text, nullptr, false);
  if (!json.is_object()) return faulty("no-json", "The answer holds no JSON object.");
  Picked picked;
  for (const ChoiceGroup& group : space) {
    picked.emplace_back();
    for (const Choice& choice : group.choices) picked.back().push_back(choice.own);
  }
  for (const auto& [group_name, values] : json.items()) {
    const auto group = named(space, group_name);
    if (group == space.end()) return faulty("not-allowed", "There is no group \"" + group_name + "\".");
    if (!values.is_object()) return faulty("not-allowed", "\"" + group_name + "\" is no object.");
    for (const auto& [name, value] : values.items()) {
      const auto choice = named(group->choices, name);
      if (choice == group->choices.end()) return faulty("not-allowed", "\"" + group_name + "\" has no parameter \"" + name + "\".");
      if (!value.is_number_integer() || std::find(choice->values.begin(), choice->values.end(), value.get<int64_t>()) == choice->values.end())
        return faulty("not-allowed", "\"" + group_name + "\": \"" + name + "\" may not be " + value.dump() + ", only " + values_text(*choice) + ".");
      picked[static_cast<size_t>(group - space.begin())][static_cast<size_t>(choice - group->choices.begin())] = value.get<int64_t>();
    }
  }
  return {std::move(picked), "", ""};
}

std::string uniform_answer(const Json& schema, uint64_t seed) {
  std::mt19937_64 random(seed);
  Json answer = Json::object();
  for (const auto& [group, choices] : schema["properties"].items()) {
    answer[group] = Json::object();
    for (const auto& [name, choice] : choices["properties"].items()) {
      const Json& values = choice["enum"];
      // Not uniform_int_distribution: its results differ from library to library.
      answer[group][name] = values[static_cast<size_t>(random() % values.size())];
    }
  }
  return answer.dump();
}

}  // namespace kw::llm
