// Concatenations whose parts are stored where they belong: the kernel that makes a part writes it into the whole, which
// nobody has to copy together.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "plan/domain.hpp"
#include "plan/join_products.hpp"
#include "plan/schedule.hpp"
#include "target/device.hpp"

namespace kw {

// A schedule's word for a group that is one concatenation, stored so: it launches copies of those parts alone that no
// kernel of the schedule makes.
inline constexpr std::string_view kStoredInPlace = "in_place";

// Where a part lies: so many elements behind the whole's first, by the whole's strides.
struct Place {
  ValueId whole = kNoValue;
  int64_t offset = 0;
  bool operator==(const Place&) const = default;
};

// The parts that kernels of the schedule store in their places, and concatenations stored in place that lie in larger
// ones: a part that several of them have, as those of a concatenation that grows do, has one place for all.
std::map<ValueId, Place> places_of(const plan::GraphFacts& facts, const Schedule& schedule);

// A part that is copied to `start` of `whole`, along the dimension of the concatenation.
struct PartCopy {
  ValueId part = kNoValue, whole = kNoValue;
  int64_t start = 0, length = 0;
};

// What each concatenation stored in place has to copy: the parts that no kernel stores in their places, and that no
// such concatenation before it has copied there.
std::map<NodeId, std::vector<PartCopy>> copies_of(const plan::GraphFacts& facts, const Schedule& schedule,
                                                  const std::map<ValueId, Place>& places);

// The graph with those parts as they lie then.
Graph with_places(const Graph& graph, const std::map<ValueId, Place>& places);

// Is the node one whose parts could lie in its result as they are?
bool is_concatenation(const Graph& graph, NodeId node);

// Has the group that word, and is it one?
bool is_stored_in_place(const Graph& graph, const GroupSchedule& group);

// Of a concatenation.
const std::vector<ValueId>& concatenated_parts(const Graph& graph, NodeId node);
int64_t concatenated_dim(const Graph& graph, NodeId node);

// `joined`, which is what join_products made of `apart`; or what it makes of that where it stores those concatenations
// in place that are kernels of their own in `joined`, as far as less is moved so: their parts are made by other than
// pointwise kernels.
Schedule with_concatenations_in_place(const Graph& graph, const Schedule& apart, Schedule joined,
                                      const DeviceDescription& device, const LibraryRates& rates = {});

}  // namespace kw
