// What searches have learnt, in the archive: how each schedule of a graph did, and for each kernel group the best
// parameters known, whatever problem it stood in. A group is addressed by the text of its own small graph (operations,
// shapes, dtypes, strides), the device and the emitter.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "archive/archive.hpp"
#include "search/search.hpp"

namespace kw::search {

class Memory {
 public:
  // `environment` stands for the device, as in every fact of the archive. Where the archive fails, nothing is
  // remembered and `fault` says why.
  Memory(Archive& archive, std::string environment, std::string emitter, std::string policy);

  std::optional<Outcome> find(const Graph& graph, const Schedule& schedule);
  void add(const Graph& graph, const Schedule& schedule, const Outcome& outcome);

  // `schedule` with the best known parameters of each of its groups; nullopt where none is known or they are the same.
  std::optional<Schedule> best_known(Catalogue& catalogue, const Schedule& schedule);
  // `winner` was faster than `first`: its groups' parameters are what others should begin with.
  void learn(Catalogue& catalogue, const Schedule& first, const Schedule& winner, double ratio);

  const std::string& fault() const { return fault_; }
  // What best_known() found and left out, since its scheduler does not take it.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  std::optional<plan::Parameters> usable(const nlohmann::ordered_json& json, const std::string& scheduler,
                                         const DeviceDescription& device, const std::string& group);
  std::string schedule_key(const Graph& graph, const Schedule& schedule);
  std::string group_key(const Graph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs,
                        const std::string& target) const;
  void store(const std::string& name, const std::string& value);

  Archive& archive_;
  std::string environment_, emitter_, policy_, fault_;
  std::vector<std::string> refused_;
  const Graph* printed_ = nullptr;
  std::string graph_hash_;
};

}  // namespace kw::search
