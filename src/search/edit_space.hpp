// What somebody who does not write kernels may decide: the parameters of the groups that cost time, each from its
// allowed values. Whatever is picked is a correct program or none at all (parameters that do not go together).
#pragma once

#include <string>
#include <vector>

#include "search/catalogue.hpp"

namespace kw::search {

struct EditedGroup {
  std::string name;            // "softmax", "softmax_2": unique
  std::vector<size_t> groups;  // of the schedule: layers that are repeated are decided together
  std::string work;            // its operations, what it reads and writes
  std::string scheduler;
  double seconds = 0;                        // all of them, by the cost model, as they are
  std::vector<plan::ParameterRange> ranges;  // values in ascending order, the default's own among them
  std::vector<int64_t> defaults;             // per range
};

// The most expensive first, as `moves.hpp` chooses them; those without parameters are left out.
std::vector<EditedGroup> edit_space(Catalogue& catalogue, const Schedule& first);

// `values[group][range]`, each one of the range's.
using Edit = std::vector<std::vector<int64_t>>;
Schedule edited(const std::vector<EditedGroup>& space, const Schedule& first, const Edit& edit);
std::string change_text(const std::vector<EditedGroup>& space, const Edit& edit);  // what differs from the defaults:
                                                                                   // "softmax: keep 65536"
double combinations(const std::vector<EditedGroup>& space);

}  // namespace kw::search
