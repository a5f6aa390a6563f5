#include "llm/prompts.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "llm/embedded.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/text.hpp"

namespace kw::llm {

namespace {

constexpr const char* kOwn[] = {"chat", "kernelllm", "base", "edits"};
constexpr std::string_view kPlaceholders[] = {"language", "problem", "form",   "example", "examples",
                                              "hardware", "space",   "trials", "fastest", "time"};
constexpr std::string_view kMark = "=== ";

struct Part {
  std::string role, text;
};

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text.substr(std::min(text.size(), text.find_first_not_of('\n')));
}

std::vector<Part> parts_of(const std::string& text) {
  std::vector<Part> parts;
  for (const std::string& line : split_lines(text)) {
    if (line.starts_with(kMark)) parts.push_back({trimmed(line.substr(kMark.size())), ""});
    else if (!parts.empty()) parts.back().text += line + "\n";
  }
  for (Part& part : parts) part.text = trimmed(part.text);
  return parts;
}

// One pass, so that a problem which itself contains {{…}} stays as it is.
std::string replaced(std::string_view text, const Values& values) {
  std::string out;
  while (true) {
    const size_t open = text.find("{{"), close = text.find("}}", open == std::string_view::npos ? open : open + 2);
    if (open == std::string_view::npos || close == std::string_view::npos) return out + std::string(text);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    const auto value = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == name; });
    out += text.substr(0, value == values.end() ? open + 2 : open);
    if (value != values.end()) out += value->second;
    text.remove_prefix(value == values.end() ? open + 2 : close + 2);
  }
}

void check(const Template& form, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kUser, ErrorText{.message = "The prompt template " + what + ".",
                                            .where = path,
                                            .source = "",
                                            .hint = "docs/llm.md shows one: parts begin with `=== system`, `=== user` "
                                                    "or `=== raw`, and {{problem}} stands for the module.",
                                            .detail = "",
                                            .code = "bad-template"});
  };
  const std::vector<Part> parts = parts_of(form.text);
  if (parts.empty()) refuse("has no part");
  bool has_problem = false;
  for (const Part& part : parts) {
    if (part.role != "system" && part.role != "user" && part.role != "assistant" && part.role != "raw")
      refuse("has an unknown part \"" + part.role + "\"");
    if (part.role == "raw" && parts.size() > 1) refuse("has other parts beside `raw`");
    for (size_t open = part.text.find("{{"); open != std::string::npos; open = part.text.find("{{", open + 2)) {
      const size_t close = part.text.find("}}", open);
      const std::string name = close == std::string::npos ? "" : part.text.substr(open + 2, close - open - 2);
      if (std::find(std::begin(kPlaceholders), std::end(kPlaceholders), name) == std::end(kPlaceholders))
        refuse("has an unknown placeholder {{" + name + "}}");
      has_problem = has_problem || name == "problem" || name == "space";
    }
  }
  if (!has_problem) refuse("has no {{problem}}, nor {{space}} for schedules");
}

std::string example_text(const Example& example) {
  return "### Model\n```python\n" + trimmed(example.problem) + "\n```\n### ModelNew\n```python\n" +
         trimmed(example.candidate) + "\n```";
}

Prompt filled(const Template& form, const PromptFacts& facts, size_t archived) {
  const std::string own_example = trimmed(std::string(facts.language.example()));
  std::string examples;
  if (facts.shots > 0) examples = own_example;
  for (size_t i = 0; i < archived; ++i) examples += "\n\n" + example_text(facts.examples[i]);
  const Values values = {{"language", std::string(facts.language.name())},
                         {"problem", trimmed(facts.problem)},
                         {"form", trimmed(std::string(facts.language.form()))},
                         {"example", examples},
                         {"examples", examples.empty() ? ""
                                                       : std::string(archived ? "Examples, of other modules:"
                                                                              : "An example, of another module:") +
                                                             "\n\n" + examples + "\n\nNow the module to rewrite.\n"},
                         {"hardware", facts.hardware.empty() ? "" : ", for " + facts.hardware}};
  return rendered(form, values);
}

std::set<std::string> names_in(std::string_view text) {
  std::set<std::string> names;
  std::string name;
  for (const char c : std::string(text) + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') name += c;
    else if (!name.empty()) {
      if (name.size() > 2 && !std::isdigit(static_cast<unsigned char>(name[0]))) names.insert(name);
      name.clear();
    }
  }
  return names;
}

}  // namespace

std::string Template::hash() const { return sha256_hex(text); }

Template load_template(const std::string& name_or_path) {
  Template form;
  if (std::find(std::begin(kOwn), std::end(kOwn), name_or_path) != std::end(kOwn)) {
    form.name = name_or_path;
    form.text = embedded_text(name_or_path + ".txt");
  } else {
    std::error_code error;
    if (!std::filesystem::is_regular_file(name_or_path, error))
      throw Error(ErrorKind::kUser, ErrorText{.message = "There is no prompt template " + name_or_path + ".",
                                              .where = "",
                                              .source = "",
                                              .hint = "--prompt takes chat, kernelllm, base, edits or a file.",
                                              .detail = "",
                                              .code = "no-template"});
    form.name = std::filesystem::path(name_or_path).filename().string();
    form.text = read_file(name_or_path);
  }
  check(form, name_or_path);
  return form;
}

Prompt rendered(const Template& form, const Values& values) {
  Prompt prompt;
  for (const Part& part : parts_of(form.text)) {
    std::string text = replaced(part.text, values);
    if (part.role == "raw") prompt.raw = std::move(text);
    else prompt.messages.push_back({part.role, std::move(text)});
  }
  return prompt;
}

std::string shown(const Prompt& prompt) {
  if (prompt.messages.empty()) return "=== raw\n" + prompt.raw + "\n";
  std::string text;
  for (const Message& message : prompt.messages) text += "=== " + message.role + "\n" + message.content + "\n";
  return text;
}

FilledPrompt fill(const Template& form, const PromptFacts& facts, int budget,
                  const std::function<int(const Prompt&)>& count) {
  size_t archived = facts.shots > 1 ? std::min(facts.examples.size(), static_cast<size_t>(facts.shots - 1)) : 0;
  for (;; --archived) {
    FilledPrompt result{
        .prompt = filled(form, facts, archived), .tokens = 0, .examples = static_cast<int>(archived), .fits = true};
    result.tokens = count(result.prompt);
    result.fits = budget <= 0 || result.tokens <= budget;
    if (result.fits || archived == 0) return result;
  }
}

namespace {

std::string next_turn(const char* name, const std::string& what, const std::string& evidence) {
  const std::vector<Part> parts = parts_of(std::string(embedded_text(name)));
  return replaced(parts.front().text, {{"what", what}, {"evidence", evidence.empty() ? "" : evidence + "\n\n"}});
}

}  // namespace

std::string repair_message(const std::string& what, const std::string& evidence) {
  return next_turn("repair.txt", what, evidence);
}
std::string improvement_message(const std::string& what, const std::string& evidence) {
  return next_turn("improve.txt", what, evidence);
}

double likeness(std::string_view one, std::string_view other) {
  const std::set<std::string> left = names_in(one), right = names_in(other);
  size_t both = 0;
  for (const std::string& name : left) both += right.count(name);
  const size_t either = left.size() + right.size() - both;
  return either ? static_cast<double>(both) / static_cast<double>(either) : 0.0;
}

}  // namespace kw::llm
