// Where schedules may come from beside the best-first search.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace kw {

class Archive;
struct Schedule;
namespace search {
class Catalogue;
class Proposer;
}  // namespace search

// Where schedules are to come from, when not from the best-first search (search/propose.hpp).
struct EditContext {
  search::Catalogue& catalogue;
  const Schedule& first;
  Archive& archive;
  std::string problem_hash, environment_hash;
  double last_try = 0;  // as SearchRequest has it
};

using MakeProposer = std::function<std::unique_ptr<search::Proposer>(const EditContext& context)>;

}  // namespace kw
