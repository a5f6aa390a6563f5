#include "search/memory.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/text.hpp"
#include "plan/scheduler.hpp"
#include "plan/schedule_json.hpp"
#include "search/standing.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"

namespace kw::search {

using Json = nlohmann::ordered_json;

namespace {

// Part of every key: facts of another form are not read.
constexpr const char* kForm = "1";

}  // namespace

Memory::Memory(Archive& archive, std::string environment, std::string emitter, std::string policy)
    : archive_(archive),
      environment_(std::move(environment)),
      emitter_(std::move(emitter)),
      policy_(std::move(policy)) {}

std::string Memory::schedule_key(const Graph& graph, const Schedule& schedule) {
  if (printed_ != &graph) {
    printed_ = &graph;
    // Where the file lies and how its lines are numbered says nothing about the work.
    Graph plain = graph;
    plain.source_json.clear();
    plain.groups.clear();
    for (Node& node : plain.nodes) node.location.clear();
    graph_hash_ = sha256_hex(print(plain));
  }
  return std::string("schedule ") + kForm + " " +
         sha256_hex(graph_hash_ + "\n" + emitter_ + "\n" + policy_ + "\n" + schedule_to_json(schedule));
}

std::string Memory::group_key(const Graph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs,
                              const std::string& target) const {
  return std::string("group ") + kForm + " " +
         sha256_hex(emitter_ + "\n" + target + "\n" + group_text(graph, nodes, outputs));
}

void Memory::store(const std::string& name, const std::string& value) {
  if (!fault_.empty()) return;
  try {
    archive_.add_fact(environment_, name, value);
  } catch (const Error& error) { fault_ = error.text().message + " " + error.text().hint; }
}

std::optional<Outcome> Memory::find(const Graph& graph, const Schedule& schedule) {
  const auto text = archive_.find_fact(environment_, schedule_key(graph, schedule));
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("state")) return std::nullopt;
  Outcome outcome;
  const std::string state = json.value("state", "");
  outcome.state = state == "measured" ? Outcome::State::kMeasured
                  : state == "pruned" ? Outcome::State::kPruned
                                      : Outcome::State::kFailed;
  outcome.ratio = json.value("ratio", 0.0);
  outcome.low = json.value("low", 0.0);
  outcome.high = json.value("high", 0.0);
  outcome.reason = json.value("reason", "");
  outcome.reused = true;
  return outcome;
}

void Memory::add(const Graph& graph, const Schedule& schedule, const Outcome& outcome) {
  const char* state = outcome.state == Outcome::State::kMeasured ? "measured"
                      : outcome.state == Outcome::State::kPruned ? "pruned"
                                                                 : "failed";
  const Json json = {{"state", state},
                     {"ratio", outcome.ratio},
                     {"low", outcome.low},
                     {"high", outcome.high},
                     {"reason", outcome.reason}};
  store(schedule_key(graph, schedule), json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// What another version has written need not be what this one's scheduler takes.
std::optional<plan::Parameters> Memory::usable(const nlohmann::ordered_json& json, const std::string& scheduler,
                                               const DeviceDescription& device, const std::string& group) {
  try {
    plan::Parameters parameters = parameters_from_json(json);
    plan::check_parameters(scheduler, parameters, device, "the kernel " + group);
    return parameters;
  } catch (const Error& error) {
    refused_.push_back("not taken from the archive: " + error.text().message);
    return std::nullopt;
  }
}

std::optional<Schedule> Memory::best_known(Catalogue& catalogue, const Schedule& schedule) {
  const std::vector<std::vector<NodeId>> groups = nodes_of(schedule);
  const auto outputs = stored_values(catalogue.facts(), groups);
  Schedule known = schedule;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (schedule.groups[group].parameters.empty()) continue;
    const auto text = archive_.find_fact(environment_,
                                         group_key(catalogue.graph(), groups[group], outputs[group], schedule.target));
    const Json json = text ? Json::parse(*text, nullptr, false) : Json();
    if (!json.is_object() || json.value("scheduler", "") != schedule.groups[group].scheduler ||
        !json.contains("parameters"))
      continue;
    if (auto parameters = usable(json["parameters"], schedule.groups[group].scheduler, catalogue.device(),
                                 label(catalogue.graph(), groups[group])))
      known.groups[group].take(std::move(*parameters));
  }
  if (known == schedule) return std::nullopt;
  return known;
}

void Memory::learn(Catalogue& catalogue, const Schedule& first, const Schedule& winner, double ratio) {
  const std::vector<std::vector<NodeId>> groups = nodes_of(winner);
  const auto outputs = stored_values(catalogue.facts(), groups);
  for (size_t group = 0; group < groups.size(); ++group) {
    const GroupSchedule& one = winner.groups[group];
    if (one.parameters.empty() || std::find(first.groups.begin(), first.groups.end(), one) != first.groups.end())
      continue;
    const Json json = {{"scheduler", one.scheduler}, {"parameters", one.parameters}, {"ratio", ratio}};
    store(group_key(catalogue.graph(), one.nodes, outputs[group], winner.target), json.dump());
  }
}

}  // namespace kw::search
