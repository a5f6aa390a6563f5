// A model that picks values instead of writing code: what may be picked, as a grammar for llama.cpp and as a JSON
// schema for servers, so that whatever comes back can be read; and reading it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kw::llm {

struct Choice {
  std::string name;             // a word
  std::vector<int64_t> values;  // at least one
  int64_t own = 0;              // what stands where an answer does not say
};
struct ChoiceGroup {
  std::string name;  // a word
  std::vector<Choice> choices;
};
using ChoiceSpace = std::vector<ChoiceGroup>;
using Picked = std::vector<std::vector<int64_t>>;  // by group and choice

// {"softmax": {"num_warps": 4, "x_block": 1}, …}: every group, every choice, in this order, on one line.
std::string picked_text(const ChoiceSpace& space, const Picked& picked);
std::string changes_text(const ChoiceSpace& space, const Picked& picked);  // of it, what differs from `own`; "{}" where
                                                                           // nothing does
bool has_choice(const ChoiceSpace& space);                                 // is there a value other than `own`?
// What an answer may be: at least one value other than `own`, as changes_text() writes them, in any order.
std::string grammar_of(const ChoiceSpace& space);  // GBNF
// JSON Schema, in the subset that "strict" servers take, where every name has to be there: null leaves a value as it
// is.
nlohmann::ordered_json schema_of(const ChoiceSpace& space);
size_t longest_text(const ChoiceSpace& space);  // of an answer under the grammar, in bytes

struct PickedAnswer {
  std::optional<Picked> picked;
  std::string code, fault;  // else: "no-json" or "not-allowed", and a sentence
};
// The JSON object in an answer, whatever stands around it (servers without grammars); what it leaves out stays as it
// is. The last value of a name counts.
PickedAnswer read_picked(const ChoiceSpace& space, std::string_view answer);

// One of the answers that the schema allows: one to three changes, each of them as likely as the others, to values as
// likely as the others.
std::string uniform_answer(const nlohmann::ordered_json& schema, uint64_t seed);

}  // namespace kw::llm
