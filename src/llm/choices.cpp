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

struct OpenChoice {
  std::string name;
  std::vector<int64_t> values;  // other than its own
};

std::vector<OpenChoice> open_choices(const ChoiceGroup& group) {
  std::vector<OpenChoice> open;
  for (const Choice& choice : group.choices) {
    OpenChoice one{choice.name, choice.values};
    std::erase(one.values, choice.own);
    if (!one.values.empty()) open.push_back(std::move(one));
  }
  return open;
}

// One to `most` of a rule, between commas.
std::string several(const std::string& rule, size_t most) {
  return rule + (most > 1 ? " (\", \" " + rule + "){0," + std::to_string(most - 1) + "}" : "");
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
      text += (choice ? ", " : "") + in_quotes(space[group].choices[choice].name) + ": " +
              std::to_string(picked[group][choice]);
    text += "}";
  }
  return text + "}";
}

std::string changes_text(const ChoiceSpace& space, const Picked& picked) {
  std::string text;
  for (size_t group = 0; group < space.size(); ++group) {
    std::string changes;
    for (size_t choice = 0; choice < space[group].choices.size(); ++choice)
      if (picked[group][choice] != space[group].choices[choice].own)
        changes += (changes.empty() ? "" : ", ") + in_quotes(space[group].choices[choice].name) + ": " +
                   std::to_string(picked[group][choice]);
    if (!changes.empty()) text += (text.empty() ? "" : ", ") + in_quotes(space[group].name) + ": {" + changes + "}";
  }
  return "{" + text + "}";
}

bool has_choice(const ChoiceSpace& space) {
  return std::any_of(space.begin(), space.end(), [](const ChoiceGroup& group) { return !open_choices(group).empty(); });
}

std::string grammar_of(const ChoiceSpace& space) {
  std::string groups, rules;
  size_t count = 0;
  for (size_t group = 0; group < space.size(); ++group) {
    const std::vector<OpenChoice> choices = open_choices(space[group]);
    if (choices.empty()) continue;
    ++count;
    const std::string rule = "group" + std::to_string(group), pick = "pick" + std::to_string(group);
    groups += (groups.empty() ? "" : " | ") + rule;
    rules += rule + " ::= " + terminal(in_quotes(space[group].name) + ": {") + " " + several(pick, choices.size()) +
             " \"}\"\n" + pick + " ::= ";
    for (size_t choice = 0; choice < choices.size(); ++choice) {
      rules += (choice ? " | " : "") + terminal(in_quotes(choices[choice].name) + ": ") + " (";
      for (size_t value = 0; value < choices[choice].values.size(); ++value)
        rules += (value ? " | " : "") + terminal(std::to_string(choices[choice].values[value]));
      rules += ")";
    }
    rules += "\n";
  }
  return "root ::= \"{\" " + several("group", count) + " \"}\"\ngroup ::= " + groups + "\n" + rules;
}

Json schema_of(const ChoiceSpace& space) {
  const auto object = [](Json properties) {
    Json required = Json::array();
    for (const auto& [name, schema] : properties.items()) required.push_back(name);
    return Json{{"type", "object"},
                {"properties", std::move(properties)},
                {"required", std::move(required)},
                {"additionalProperties", false}};
  };
  Json groups = Json::object();
  for (const ChoiceGroup& group : space) {
    Json choices = Json::object();
    for (const OpenChoice& choice : open_choices(group)) {
      Json values = choice.values;
      values.push_back(nullptr);
      choices[choice.name] = {{"type", {"integer", "null"}}, {"enum", std::move(values)}};
    }
    if (!choices.empty()) groups[group.name] = object(std::move(choices));
  }
  return object(std::move(groups));
}

size_t longest_text(const ChoiceSpace& space) {
  size_t bytes = 2, longest_group = 0, count = 0;
  for (const ChoiceGroup& group : space) {
    const std::vector<OpenChoice> choices = open_choices(group);
    size_t longest = 0;
    for (const OpenChoice& choice : choices)
      for (const int64_t value : choice.values)
        longest = std::max(longest, (in_quotes(choice.name) + ": , " + std::to_string(value)).size());
    if (!choices.empty())
      longest_group = std::max(longest_group, (in_quotes(group.name) + ": {}, ").size() + longest * choices.size()),
      ++count;
  }
  return bytes + longest_group * count;
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
      if (choice == group->choices.end())
        return faulty("not-allowed", "\"" + group_name + "\" has no parameter \"" + name + "\".");
      if (value.is_null()) continue;
      if (!value.is_number_integer() ||
          std::find(choice->values.begin(), choice->values.end(), value.get<int64_t>()) == choice->values.end())
        return faulty("not-allowed", "\"" + group_name + "\": \"" + name + "\" may not be " + value.dump() + ", only " +
                                         values_text(*choice) + ".");
      picked[static_cast<size_t>(group - space.begin())][static_cast<size_t>(choice - group->choices.begin())] =
          value.get<int64_t>();
    }
  }
  return {std::move(picked), "", ""};
}

std::string uniform_answer(const Json& schema, uint64_t seed) {
  std::mt19937_64 random(seed);
  // Not uniform_int_distribution: its results differ from library to library.
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::vector<std::pair<std::string, std::string>> places;
  for (const auto& [group, choices] : schema["properties"].items())
    for (const auto& [name, choice] : choices["properties"].items()) places.emplace_back(group, name);
  Json answer = Json::object();
  for (size_t changes = 1 + below(3); changes > 0 && !places.empty(); --changes) {
    const size_t at = below(places.size());
    const auto [group, name] = places[at];
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(at));
    Json values = schema["properties"][group]["properties"][name]["enum"];
    values.erase(values.size() - 1);  // null
    answer[group][name] = values[below(values.size())];
  }
  return answer.dump();
}

}  // namespace kw::llm
