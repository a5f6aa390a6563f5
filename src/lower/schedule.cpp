#include "lower/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "lower/schedule_effects.hpp"
#include "support/error.hpp"
#include "tile/program.hpp"

namespace kw::lower {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<Mapping, std::string_view> kMappingNames[] = {
    {Mapping::kGrid, "grid"}, {Mapping::kTile, "tile"}, {Mapping::kLoop, "loop"}};

constexpr std::pair<Scheme, std::string_view> kSchemeNames[] = {{Scheme::kIeee, "ieee"}, {Scheme::kFp16x3, "fp16x3"}};

constexpr std::pair<Loading, std::string_view> kLoadingNames[] = {{Loading::kBulk, "bulk"},
                                                                  {Loading::kPointers, "pointers"}};

constexpr std::pair<std::string_view, bool KernelSchedule::*> kFlags[] = {
    {"bulk", &KernelSchedule::bulk},
    {"bulk_stores", &KernelSchedule::bulk_stores},
    {"skip_masked", &KernelSchedule::skip_masked},
    {"loads_first", &KernelSchedule::loads_first},
    {"approximate", &KernelSchedule::approximate},
    {"cache_hints", &KernelSchedule::cache_hints},
    {"serpentine", &KernelSchedule::serpentine},
    {"wide_accesses", &KernelSchedule::wide_accesses},
    {"in_order", &KernelSchedule::in_order},
    {"narrow_products", &KernelSchedule::narrow_products},
};

constexpr std::pair<std::string_view, bool AxisSchedule::*> kAxisFlags[] = {
    {"online", &AxisSchedule::online},     {"bounded", &AxisSchedule::bounded},
    {"stops", &AxisSchedule::stops},       {"network", &AxisSchedule::network},
    {"in_order", &AxisSchedule::in_order}, {"unrolled", &AxisSchedule::unrolled},
    {"threads", &AxisSchedule::threads},   {"simd", &AxisSchedule::simd},
    {"last", &AxisSchedule::last},         {"cooperative", &AxisSchedule::cooperative},
};

template <typename Flags>
auto find_flag(const Flags& flags, const std::string& name) {
  return std::find_if(std::begin(flags), std::end(flags), [&](const auto& one) { return one.first == name; });
}

// A tile has no more elements in Triton, and no row is longer.
constexpr int64_t kWidest = 1 << 20;
constexpr int64_t kWidestOfLoops = int64_t{1} << 31;
constexpr int64_t kMostPrefetch = 256, kMostStages = 16, kMostWarps = 32, kMostRegisters = 255, kMostConsumers = 2,
                  kMostOwners = 1024;

[[noreturn]] void refuse(const std::string& message, std::string hint = "") {
  ErrorText text;
  text.message = "kernel schedule: " + message;
  text.hint = std::move(hint);
  text.code = "bad-schedule";
  throw Error(ErrorKind::kUser, std::move(text));
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

class ScheduleReader {
 public:
  ScheduleReader(const Json& json, const kernel::Kernel& kernel, Widths widths)
      : json_(json), kernel_(kernel), widths_(widths) {
    for (kernel::Symbol axis : kernel::axes_of(kernel)) names_.push_back(kernel.symbols[axis].name);
  }

  KernelSchedule read() {
    if (!json_.is_object()) refuse("expected an object with an entry for each axis");
    schedule_.axes.resize(names_.size());
    std::vector<bool> mapped(names_.size());
    for (const auto& [key, value] : json_.items()) {
      const auto axis = std::find(names_.begin(), names_.end(), key);
      if (axis != names_.end()) {
        const size_t place = static_cast<size_t>(axis - names_.begin());
        schedule_.axes[place] = read_axis(key, value);
        mapped[place] = true;
      } else if (key == "warps") {
        schedule_.warps = static_cast<int>(power_of_two(value, "warps", kMostWarps));
      } else if (key == "registers") {
        schedule_.max_registers = static_cast<int>(whole(value, "registers", 16, kMostRegisters));
      } else if (key == "walkers") {
        schedule_.walkers = whole(value, "walkers", 1, int64_t{1} << 30);
      } else if (key == "owners") {
        schedule_.owners = static_cast<int>(whole(value, "owners", 1, kMostOwners));
      } else if (key == "scheme") {
        schedule_.scheme = read_scheme(value);
      } else if (const auto flag = find_flag(kFlags, key); flag != std::end(kFlags)) {
        schedule_.*flag->second = boolean(value, key);
      } else if (key == "operands") {
        read_operands(value);
      } else if (key == "nest") {
        read_nest(value);
      } else if (key == "order") {
        read_order(value);
      } else if (key == "consumers") {
        read_consumers(value);
      } else if (key == "steps_inside") {
        read_steps_inside(value);
      } else {
        refuse(fmt::format("there is no axis or parameter '{}'", key),
               fmt::format("The axes are {}; the parameters warps, registers, scheme, operands, bulk, bulk_stores, "
                           "skip_masked, walkers, loads_first, approximate, cache_hints, serpentine, wide_accesses, "
                           "in_order, owners, "
                           "narrow_products, consumers, steps_inside, nest and order.",
                           list_of(names_)));
      }
    }
    for (size_t place = 0; place < names_.size(); ++place)
      if (!mapped[place])
        refuse(fmt::format("axis '{}' has no mapping", names_[place]), "Give it a grid, a tile or a loop.");
    const Loading usual = schedule_.bulk ? Loading::kBulk : Loading::kPointers;
    std::erase_if(schedule_.operands, [&](const auto& operand) { return operand.second == usual; });
    check_extents();
    check_nest();
    check_threads();
    check_cooperative();
    if (schedule_.walkers && !schedule_.skip_masked) refuse("walkers is set, but skip_masked is not");
    check_owners();
    if (const std::string why = idle_word(schedule_, kernel_); !why.empty()) refuse(why, "Leave that word out.");
    return std::move(schedule_);
  }

 private:
  int64_t whole(const Json& value, const std::string& what, int64_t least, int64_t most) {
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<int64_t>() > most)
      refuse(fmt::format("{} is {}, but must be a whole number from {} to {}", what, value.dump(), least, most));
    return value.get<int64_t>();
  }

  int64_t power_of_two(const Json& value, const std::string& what, int64_t most) {
    const int64_t number = whole(value, what, 1, most);
    if (!std::has_single_bit(static_cast<uint64_t>(number)))
      refuse(fmt::format("{} is {}, but must be a power of two", what, number));
    return number;
  }

  static bool boolean(const Json& value, const std::string& what) {
    if (!value.is_boolean()) refuse(fmt::format("{} is {}, but must be true or false", what, value.dump()));
    return value.get<bool>();
  }

  AxisSchedule read_axis(const std::string& axis, const Json& json) {
    if (!json.is_object()) refuse(fmt::format("axis '{}' has {}, but expects an object", axis, json.dump()));
    AxisSchedule result;
    int mappings = 0;
    for (const auto& [key, value] : json.items()) {
      const auto mapping = std::find_if(std::begin(kMappingNames), std::end(kMappingNames),
                                        [&](const auto& one) { return one.second == key; });
      const std::string what = fmt::format("'{}' of axis '{}'", key, axis);
      if (mapping != std::end(kMappingNames)) {
        result.mapping = mapping->first;
        result.width = widths_ == Widths::kAny ? whole(value, what, 1, kWidestOfLoops)
                                               : power_of_two(value, what, kWidest);
        ++mappings;
      } else if (key == "stages") {
        result.stages = static_cast<int>(whole(value, what, 1, kMostStages));
      } else if (key == "prefetch") {
        result.prefetch = power_of_two(value, what, kMostPrefetch);
      } else if (const auto flag = find_flag(kAxisFlags, key); flag != std::end(kAxisFlags)) {
        result.*flag->second = boolean(value, what);
      } else if (key == "split") {
        result.split = power_of_two(value, what, kWidest);
      } else if (key == "within") {
        if (!value.is_string()) refuse(fmt::format("{} is {}, but must be an axis", what, value.dump()));
        result.within = value.get<std::string>();
      } else {
        refuse(fmt::format("axis '{}' has no parameter '{}'", axis, key),
               "It has one of grid, tile and loop, and may have simd; a loop also takes stages, online, bounded, "
               "stops, network, in_order, prefetch, unrolled and threads, the others last and split, a tile network, "
               "unrolled, within and threads, a grid cooperative.");
      }
    }
    if (mappings != 1)
      refuse(fmt::format("axis '{}' has {} mappings", axis, mappings), "Give one of grid, tile, loop.");
    if (result.mapping != Mapping::kLoop && (result.stages != 0 || result.online || result.bounded))
      refuse(fmt::format("axis '{}' is not a loop, so it has no stages, and is not online or bounded", axis));
    if (result.stops && (result.mapping != Mapping::kLoop || result.bounded || result.unrolled || result.prefetch != 1))
      refuse(fmt::format("axis '{}' is no loop that data can stop", axis),
             "Take a loop that is neither bounded nor unrolled, and prefetches nothing.");
    if (result.mapping != Mapping::kLoop && result.prefetch != 1)
      refuse(fmt::format("axis '{}' is not a loop, so it prefetches no iterations", axis));
    if (result.mapping == Mapping::kGrid && result.network)
      refuse(fmt::format("axis '{}' is shared out by blocks, so there is no network along it", axis));
    if (result.in_order && (result.mapping != Mapping::kLoop || result.network || result.unrolled))
      refuse(fmt::format("axis '{}' is not walked in order", axis),
             "Take a loop that has no network, and is not unrolled.");
    if (result.mapping == Mapping::kGrid && result.threads)
      refuse(fmt::format("axis '{}' is shared out by blocks, so threads cannot share it", axis));
    if (result.unrolled && (result.threads || result.simd))
      refuse(fmt::format("axis '{}' is unrolled, so its points are neither shared by threads nor taken side by side",
                         axis));
    if (result.mapping == Mapping::kGrid && result.unrolled)
      refuse(fmt::format("axis '{}' is shared out by blocks, so it is not unrolled", axis));
    if (result.mapping == Mapping::kTile && result.unrolled && (result.last || !result.within.empty()))
      refuse(fmt::format("axis '{}' is unrolled, so it is no dimension of tiles: neither the last nor within another",
                         axis));
    if (result.unrolled && (result.stages != 0 || result.bounded))
      refuse(fmt::format("axis '{}' is unrolled, so it has no stages and is not bounded", axis));
    if (result.cooperative && (result.mapping != Mapping::kGrid || result.last))
      refuse(fmt::format("axis '{}' is cooperative, but not shared out by blocks, or the last", axis));
    if (result.split != 1 && (!result.last || result.split >= result.width))
      refuse(fmt::format("axis '{}' cannot be split by {}", axis, result.split),
             "Split the lanes of an axis that is the last, by less than their number.");
    if (result.last && (result.mapping == Mapping::kLoop || result.width == 1))
      refuse(fmt::format("axis '{}' cannot be the last", axis), "Take a grid or a tile of more than one point.");
    return result;
  }

  static Scheme read_scheme(const Json& json) {
    for (const auto& [scheme, name] : kSchemeNames)
      if (json == name) return scheme;
    refuse(fmt::format("scheme is {}, but must be \"ieee\" or \"fp16x3\"", json.dump()));
  }

  void read_operands(const Json& json) {
    if (!json.is_object()) refuse(fmt::format("operands is {}, but must be an object", json.dump()));
    std::vector<std::string> inputs;
    for (const kernel::Buffer& buffer : kernel_.buffers)
      if (buffer.role != kernel::BufferRole::kOutput) inputs.push_back(buffer.name);
    for (const auto& [name, value] : json.items())
      if (std::find(inputs.begin(), inputs.end(), name) == inputs.end())
        refuse(fmt::format("operands names '{}', which is no input", name),
               fmt::format("The inputs are {}.", list_of(inputs)));
    for (const std::string& name : inputs) {
      const auto value = json.find(name);
      if (value == json.end()) continue;
      const auto loading = std::find_if(std::begin(kLoadingNames), std::end(kLoadingNames),
                                        [&](const auto& one) { return *value == one.second; });
      if (loading == std::end(kLoadingNames))
        refuse(
            fmt::format("operand '{}' is loaded by {}, but must be by \"bulk\" or \"pointers\"", name, value->dump()));
      schedule_.operands.emplace_back(name, loading->first);
    }
  }

  void read_nest(const Json& json) {
    if (!json.is_array()) refuse(fmt::format("nest is {}, but must be a list of axes", json.dump()));
    for (const Json& loop : json) {
      std::vector<std::string>& axes = schedule_.nest.emplace_back();
      for (const Json& name : loop.is_array() && !loop.empty() ? loop : Json::array({loop})) {
        if (!name.is_string() || std::find(names_.begin(), names_.end(), name.get<std::string>()) == names_.end())
          refuse(fmt::format("nest names {}, which is no axis", name.dump()));
        axes.push_back(name.get<std::string>());
      }
    }
  }

  void read_order(const Json& json) {
    if (!json.is_object()) refuse(fmt::format("order is {}, but must be an object", json.dump()));
    for (const auto& [key, value] : json.items()) {
      if (key == "grouped" || key == "along") {
        if (!value.is_string()) refuse(fmt::format("'{}' of order is {}, but must be an axis", key, value.dump()));
        (key == "grouped" ? schedule_.order.grouped : schedule_.order.along) = value.get<std::string>();
      } else if (key == "count") {
        schedule_.order.count = whole(value, "'count' of order", 1, kWidest);
      } else {
        refuse(fmt::format("order has no parameter '{}'", key), "It has grouped, along and count.");
      }
    }
    const OrderSchedule& order = schedule_.order;
    if (order.grouped.empty() || order.along.empty() || order.grouped == order.along)
      refuse(fmt::format("order needs two axes, but grouped is '{}' and along is '{}'", order.grouped, order.along));
  }

  void read_consumers(const Json& json) {
    if (!json.is_object()) refuse(fmt::format("consumers is {}, but must be an object", json.dump()));
    for (const auto& [key, value] : json.items()) {
      if (key == "along" && value.is_string()) schedule_.consumers.along = value.get<std::string>();
      else if (key == "along") refuse(fmt::format("'along' of consumers is {}, but must be an axis", value.dump()));
      else if (key == "count") schedule_.consumers.count = whole(value, "'count' of consumers", 2, kMostConsumers);
      else if (key == "programs") schedule_.consumers.programs = whole(value, "'programs' of consumers", 1, kWidest);
      else refuse(fmt::format("consumers has no parameter '{}'", key), "It has along, count and programs.");
    }
    if (schedule_.consumers.count == 1) refuse("consumers needs a count");
    if (schedule_.consumers.along.empty() && schedule_.consumers.programs == 0)
      refuse("consumers without 'along' take blocks in turn, and need 'programs': how many are started");
  }

  void read_steps_inside(const Json& json) {
    if (!json.is_object()) refuse(fmt::format("steps_inside is {}, but must be an object", json.dump()));
    StepsInside& steps = schedule_.steps_inside;
    for (const auto& [key, value] : json.items()) {
      if (key == "size" && value.is_string()) steps.size = value.get<std::string>();
      else if (key == "count") steps.count = whole(value, "'count' of steps_inside", 1, kWidest);
      else if (key == "same") read_same(value);
      else if (key == "size") refuse(fmt::format("'size' of steps_inside is {}, but must be a name", value.dump()));
      else refuse(fmt::format("steps_inside has no parameter '{}'", key), "It has size, count and same.");
    }
    const auto size = std::find_if(kernel_.symbols.begin(), kernel_.symbols.end(), [&](const kernel::SymbolInfo& one) {
      return one.kind == kernel::SymbolKind::kSize && one.name == steps.size;
    });
    if (size == kernel_.symbols.end())
      refuse(fmt::format("steps_inside names '{}', which is no run-time size", steps.size));
    if (steps.count > size->range.high + 1)
      refuse(
          fmt::format("steps_inside has {} steps, but '{}' is {} at most", steps.count, size->name, size->range.high));
  }

  void read_same(const Json& json) {
    const auto names_buffer = [&](const Json& name, kernel::BufferRole role) {
      return name.is_string() && std::any_of(kernel_.buffers.begin(), kernel_.buffers.end(), [&](const auto& buffer) {
               return buffer.name == name.get<std::string>() && buffer.role == role;
             });
    };
    for (const Json& pair : json.is_array() ? json : Json::array({json})) {
      if (!pair.is_array() || pair.size() != 2 || !names_buffer(pair[0], kernel::BufferRole::kInput) ||
          !names_buffer(pair[1], kernel::BufferRole::kOutput))
        refuse(fmt::format("'same' of steps_inside has {}, but wants pairs of an input and an output", pair.dump()));
      schedule_.steps_inside.same.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
    }
  }

  const AxisSchedule* find(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? nullptr : &schedule_.axes[static_cast<size_t>(found - names_.begin())];
  }

  // Of one loop's axes. A run-time size, too, must be known to be so small.
  void check_unrolled(const std::vector<std::string>& loop) const {
    const std::vector<kernel::Symbol> axes = kernel::axes_of(kernel_);
    int64_t iterations = 1;
    for (size_t place = 0; place < axes.size(); ++place)
      if (std::find(loop.begin(), loop.end(), names_[place]) != loop.end())
        iterations *= kernel_.symbols[axes[place]].range.high / schedule_.axes[place].width + 1;
    if (iterations > tile::kMostUnrolled)
      refuse(fmt::format("the loop of axis '{}' has up to {} iterations, too many to be unrolled", loop[0], iterations),
             fmt::format("Unroll {} at most.", tile::kMostUnrolled));
  }

  void check_unrolled_tile(const kernel::SymbolInfo& axis) const {
    if (!kernel::as_constant(axis.extent))
      refuse(fmt::format("axis '{}' is an unrolled tile, but its size is known only at run time", axis.name));
    if (axis.range.high >= tile::kMostUnrolled)
      refuse(fmt::format("axis '{}' has {} points, too many to be unrolled", axis.name, axis.range.high + 1),
             fmt::format("Unroll {} at most.", tile::kMostUnrolled));
  }

  void check_extents() {
    const std::vector<kernel::Symbol> axes = kernel::axes_of(kernel_);
    for (size_t place = 0; place < axes.size(); ++place) {
      const kernel::SymbolInfo& axis = kernel_.symbols[axes[place]];
      const AxisSchedule& one = schedule_.axes[place];
      if (one.mapping == Mapping::kTile && one.width <= axis.range.high)
        refuse(fmt::format("axis '{}' has a tile of {}, but {} points", axis.name, one.width, axis.range.high + 1),
               fmt::format("A tile holds the whole axis: take {}, or a loop.",
                           std::bit_ceil(static_cast<uint64_t>(axis.range.high + 1))));
      if (one.unrolled && one.mapping == Mapping::kLoop) check_unrolled({axis.name});
      if (one.unrolled && one.mapping == Mapping::kTile) check_unrolled_tile(axis);
      if (axis.ordered && (one.mapping != Mapping::kLoop || one.width != 1))
        refuse(fmt::format("axis '{}' is ordered", axis.name), "States are carried by a loop of 1.");
    }
    for (size_t place = 0; place < axes.size(); ++place) check_within(place);
    for (const std::string& name : {schedule_.order.grouped, schedule_.order.along}) {
      if (name.empty()) continue;
      const AxisSchedule* axis = find(name);
      if (!axis || axis->mapping != Mapping::kGrid)
        refuse(fmt::format("order names '{}', which is not in the grid", name));
    }
    const std::string& along = schedule_.consumers.along;
    if (!along.empty() && (!find(along) || find(along)->mapping != Mapping::kGrid))
      refuse(fmt::format("consumers names '{}', which is not in the grid", along));
  }

  void check_within(size_t place) const {
    const AxisSchedule& inner = schedule_.axes[place];
    if (inner.within.empty()) return;
    const AxisSchedule* outer = find(inner.within);
    if (!outer || outer >= &inner)
      refuse(fmt::format("axis '{}' is within '{}', which is no axis before it", names_[place], inner.within));
    const auto shares = [&](const AxisSchedule& one) { return &one != &inner && one.within == inner.within; };
    if (inner.mapping != Mapping::kTile || outer->mapping == Mapping::kLoop || inner.width == 1 || outer->width == 1 ||
        inner.last || outer->last || outer->unrolled || !outer->within.empty() ||
        std::any_of(schedule_.axes.begin(), schedule_.axes.end(), shares))
      refuse(fmt::format("axis '{}' cannot be within '{}'", names_[place], inner.within),
             "Put one tile of several points within one grid or tile of several, neither of which is the last.");
  }

  // A CPU's threads share no loop out inside of one whose iterations are taken side by side.
  void check_threads() const {
    std::vector<std::string> order = names_;
    if (!schedule_.nest.empty()) order.clear();
    for (const std::vector<std::string>& loop : schedule_.nest) order.insert(order.end(), loop.begin(), loop.end());
    std::vector<std::string> beside;
    for (const std::string& name : order) {
      const AxisSchedule* axis = find(name);
      if (!axis || axis->mapping != Mapping::kLoop) continue;
      for (const std::string& outer : beside)
        if (axis->threads && are_nested(outer, name))
          refuse(fmt::format("threads share axis '{}' inside of axis '{}', which is taken side by side", name, outer),
                 "Give threads an outer loop.");
      if (axis->simd && axis->width == 1) beside.push_back(name);
    }
  }

  // Does any store walk both? Else they are loops beside each other.
  bool are_nested(const std::string& one, const std::string& other) const {
    const std::vector<std::vector<bool>> depends = kernel::dependences(kernel_);
    const auto symbol = [&](const std::string& name) {
      return kernel::axes_of(
          kernel_)[static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())];
    };
    const auto both = [&](const std::vector<bool>& axes) { return axes[symbol(one)] && axes[symbol(other)]; };
    return std::any_of(depends.begin(), depends.end(), both) ||
           std::any_of(kernel_.stores.begin(), kernel_.stores.end(),
                       [&](const auto& store) { return both(kernel::dependences(kernel_, store, depends)); });
  }

  // Of places that data decide, in the order of the points.
  void check_owners() const {
    if (schedule_.in_order)
      for (size_t place = 0; place < names_.size(); ++place)
        if (schedule_.axes[place].mapping == Mapping::kGrid)
          refuse(fmt::format("stores are in order, but axis '{}' is shared out by blocks", names_[place]),
                 "Give it a loop.");
    if (schedule_.owners == 0) return;
    if (!schedule_.in_order) refuse("owners is set, but in_order is not");
    for (size_t place = 0; place < names_.size(); ++place)
      if (schedule_.axes[place].threads)
        refuse(fmt::format("threads own places, and share axis '{}', too", names_[place]));
  }

  // Rows that blocks share: all they do is fold and map elements that they hold.
  void check_cooperative() const {
    const std::vector<kernel::Symbol> axes = kernel::axes_of(kernel_);
    for (size_t place = 0; place < axes.size(); ++place) {
      if (!schedule_.axes[place].cooperative) continue;
      if (!kernel::as_constant(kernel_.symbols[axes[place]].extent))
        refuse(fmt::format("axis '{}' is cooperative, but its size is known only at run time", names_[place]));
      for (size_t other = 0; other < axes.size(); ++other)
        if (schedule_.axes[other].mapping == Mapping::kLoop || schedule_.axes[other].unrolled)
          refuse(fmt::format("axis '{}' is cooperative, but '{}' is a loop or unrolled", names_[place], names_[other]));
      if (!schedule_.order.grouped.empty() || schedule_.consumers.count != 1 || schedule_.skip_masked)
        refuse(fmt::format("axis '{}' is cooperative, so blocks have no other order, consumers or reason to stop",
                           names_[place]));
    }
  }

  void check_nest() {
    if (schedule_.nest.empty()) return;
    for (const std::vector<std::string>& loop : schedule_.nest) {
      const auto is_unrolled = [&](const std::string& name) { return find(name) && find(name)->unrolled; };
      if (std::all_of(loop.begin(), loop.end(), is_unrolled)) check_unrolled(loop);
    }
    for (size_t place = 0; place < names_.size(); ++place) {
      long times = 0;
      for (const std::vector<std::string>& loop : schedule_.nest) {
        times += std::count(loop.begin(), loop.end(), names_[place]);
        const bool is_merged = loop.size() > 1 && std::find(loop.begin(), loop.end(), names_[place]) != loop.end();
        if (is_merged && kernel_.symbols[kernel::axes_of(kernel_)[place]].ordered)
          refuse(fmt::format("nest merges axis '{}' with others, but it is ordered", names_[place]),
                 "States are carried by a loop of their axis alone.");
        if (is_merged && loop.back() != names_[place] && schedule_.axes[place].stages != 0)
          refuse(fmt::format("axis '{}' has stages inside a merged loop", names_[place]),
                 "The last axis of the loop says how many iterations' loads are in flight.");
      }
      if (times != (schedule_.axes[place].mapping == Mapping::kLoop ? 1 : 0))
        refuse(fmt::format("nest has axis '{}' {} times", names_[place], times), "It lists each looped axis once.");
    }
  }

  const Json& json_;
  const kernel::Kernel& kernel_;
  const Widths widths_;
  std::vector<std::string> names_;
  KernelSchedule schedule_;
};

}  // namespace

namespace {

// Of two values of one key, JSON's readers keep the last and say nothing.
Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string repeated;
  const auto look = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      repeated = value.get<std::string>();
    return true;
  };
  Json json = Json::parse(text, look, false);
  if (json.is_discarded()) refuse("this is not JSON");
  if (!repeated.empty()) refuse(fmt::format("'{}' is given twice", repeated), "Keep one of the two.");
  return json;
}

}  // namespace

KernelSchedule parse_schedule(std::string_view text, const kernel::Kernel& kernel, Widths widths) {
  const Json json = parse_json(text);
  return parse_schedule(json, kernel, widths);
}

KernelSchedule parse_schedule(const Json& json, const kernel::Kernel& kernel, Widths widths) {
  return ScheduleReader(json, kernel, widths).read();
}

Json to_json(const KernelSchedule& schedule, const kernel::Kernel& kernel) {
  Json json = Json::object();
  const std::vector<kernel::Symbol> axes = kernel::axes_of(kernel);
  for (size_t place = 0; place < axes.size(); ++place) {
    const AxisSchedule& axis = schedule.axes[place];
    Json one = Json::object();
    for (const auto& [mapping, name] : kMappingNames)
      if (mapping == axis.mapping) one[std::string(name)] = axis.width;
    if (axis.stages != 0) one["stages"] = axis.stages;
    if (axis.prefetch != 1) one["prefetch"] = axis.prefetch;
    for (const auto& [name, flag] : kAxisFlags)
      if (axis.*flag) one[std::string(name)] = true;
    if (axis.split != 1) one["split"] = axis.split;
    if (!axis.within.empty()) one["within"] = axis.within;
    json[kernel.symbols[axes[place]].name] = std::move(one);
  }
  for (const std::vector<std::string>& loop : schedule.nest)
    json["nest"].push_back(loop.size() == 1 ? Json(loop[0]) : Json(loop));
  if (!schedule.order.grouped.empty())
    json["order"] = {
        {"grouped", schedule.order.grouped}, {"along", schedule.order.along}, {"count", schedule.order.count}};
  if (!schedule.consumers.along.empty()) json["consumers"]["along"] = schedule.consumers.along;
  if (schedule.consumers.count != 1) json["consumers"]["count"] = schedule.consumers.count;
  if (schedule.consumers.programs > 0) json["consumers"]["programs"] = schedule.consumers.programs;
  for (const auto& [scheme, name] : kSchemeNames)
    if (scheme == schedule.scheme && scheme != Scheme::kIeee) json["scheme"] = name;
  for (const auto& [operand, loading] : schedule.operands)
    for (const auto& [value, name] : kLoadingNames)
      if (value == loading) json["operands"][operand] = name;
  for (const auto& [name, flag] : kFlags)
    if (schedule.*flag) json[std::string(name)] = true;
  if (schedule.walkers) json["walkers"] = schedule.walkers;
  if (schedule.owners) json["owners"] = schedule.owners;
  if (const StepsInside& steps = schedule.steps_inside; !steps.size.empty()) {
    json["steps_inside"] = {{"size", steps.size}, {"count", steps.count}};
    for (const auto& [read, written] : steps.same) json["steps_inside"]["same"].push_back({read, written});
  }
  json["warps"] = schedule.warps;
  if (schedule.max_registers) json["registers"] = schedule.max_registers;
  return json;
}

}  // namespace kw::lower
