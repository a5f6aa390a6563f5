#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <string_view>

#include "lower/loop_rules.hpp"
#include "lower/touches.hpp"

namespace kw::lower {
namespace {

using tile::kNoValue;
using tile::Symbol;
using tile::Value;

class PlaceChecker {
 public:
  PlaceChecker(const tile::Program& program, const LoopPlan& plan) : program_(program), plan_(plan) {}

  void run() {
    require(plan_.places.size() == program_.values.size(), "there are {} places for {} values", plan_.places.size(),
            program_.values.size());
    std::map<Value, std::vector<Value>> sharing;
    for (size_t at = 0; at < plan_.places.size(); ++at) {
      const Value value = static_cast<Value>(at);
      if (place(value).storage == kNoValue) continue;  // nothing touches it
      check_storage(value);
      check_home(value);
      sharing[place(value).storage].push_back(value);
    }
    check_scratch();
    check_sharing(sharing);
  }

 private:
  const TilePlace& place(Value value) const { return plan_.places[value]; }
  const std::string& name(Value value) const { return program_.values[value].name; }
  const tile::TileType& type(Value value) const { return program_.values[value].type; }

  template <typename... Arguments>
  static void require(bool holds, std::string_view rule, const Arguments&... arguments) {
    if (!holds) throw BrokenLoopRule{fmt::vformat(rule, fmt::make_format_args(arguments...)), ""};
  }

  void check_storage(Value value) const {
    const TilePlace& own = place(value);
    require(own.storage >= 0 && own.storage < static_cast<Value>(plan_.places.size()), "'%{}' is in no value's place",
            name(value));
    const TilePlace& other = place(own.storage);
    const bool is_same = other.storage == own.storage && other.home == own.home && other.lanes == own.lanes &&
                         other.packed == own.packed && other.extended == own.extended && other.offset == own.offset;
    require(is_same, "'%{}' is in the place of '%{}', which is another one", name(value), name(own.storage));
    require(held_bytes(type(value).dtype) == held_bytes(type(own.storage).dtype),
            "'%{}' is in the place of '%{}', whose elements have another size", name(value), name(own.storage));
  }

  void check_home(Value value) const {
    const TilePlace& own = place(value);
    const bool is_array = own.home == Home::kStack || own.home == Home::kScratch;
    require(is_array == !own.lanes.empty(), "'%{}' is {}", name(value),
            is_array ? "an array without lanes" : "no array, and has lanes in memory");
    require((own.home != Home::kWritten && own.home != Home::kMemory) || plan_.is_repeated[value],
            "'%{}' is written where it is used, but no constant or position", name(value));
    for (size_t i = 0; i < own.lanes.size(); ++i) {
      const std::string& lane = program_.symbols[own.lanes[i]].name;
      require(tile::has_lane(type(value).lanes, own.lanes[i]), "the array of '%{}' has lane '{}', the tile does not",
              name(value), lane);
      require(i == 0 || plan_.ranks[own.lanes[i - 1]] < plan_.ranks[own.lanes[i]],
              "the array of '%{}' has lane '{}' in another order than loops", name(value), lane);
    }
    require(!own.packed || is_narrow_float(type(value).dtype), "'%{}' is packed, and no float of 16 bits or fewer",
            name(value));
  }

  // --- Scratch memory ---

  int64_t bytes_of(Value value) const {
    int64_t bytes = place(value).extended ? kExtendedBytes : held_bytes(type(value).dtype);
    for (Symbol lane : place(value).lanes) bytes *= tile::width_of(program_, lane);
    return bytes;
  }

  void check_scratch() const {
    struct Part {
      int64_t begin, end;
      std::string name;
    };
    std::vector<Part> parts;
    for (size_t at = 0; at < plan_.places.size(); ++at) {
      const Value value = static_cast<Value>(at);
      if (place(value).home != Home::kScratch || place(value).storage != value) continue;
      parts.push_back({place(value).offset, place(value).offset + bytes_of(value), "'%" + name(value) + "'"});
    }
    for (size_t at = 0; at < program_.buffers.size(); ++at) {
      const tile::Buffer& buffer = program_.buffers[at];
      if (buffer.space == tile::Space::kShared)
        parts.push_back({plan_.shared[at], plan_.shared[at] + lower::bytes_of(buffer), "'" + buffer.name + "'"});
    }
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < parts.size(); ++i) {
      require(parts[i].begin >= 0 && parts[i].end <= plan_.scratch_bytes, "{} leaves the scratch memory",
              parts[i].name);
      require(parts[i].begin % kScratchAlignment == 0, "{} is not aligned in the scratch memory", parts[i].name);
      require(i == 0 || parts[i - 1].end <= parts[i].begin, "{} and {} overlap in the scratch memory",
              parts[i == 0 ? 0 : i - 1].name, parts[i].name);
    }
  }

  // --- What shares an array or a variable ---

  // From when it is made until its last use; what a loop reads of values from before is needed until the loop's end.
  static Moments life_of(const std::vector<Touch>& touches, const std::vector<Touches::Loop>& loops) {
    Moments life{INT_MAX, INT_MIN};
    for (const Touch& touch : touches) {
      life.first = std::min(life.first, touch.moment);
      life.last = std::max(life.last, touch.moment);
    }
    for (const Touches::Loop& loop : loops)
      for (const Touch& touch : touches)
        if (life.first < loop.inside.first && touch.moment >= loop.inside.first && touch.moment <= loop.inside.last)
          life.last = std::max(life.last, loop.inside.last);
    return life;
  }

  void check_sharing(const std::map<Value, std::vector<Value>>& sharing) const {
    const bool any = std::any_of(sharing.begin(), sharing.end(), [](const auto& one) { return one.second.size() > 1; });
    if (!any) return;
    std::vector<LoopStep> body = plan_.body;
    const Touches touches = find_touches(program_, body);
    for (const auto& [storage, values] : sharing) {
      std::vector<std::pair<Moments, Value>> lives;
      for (Value value : values) lives.emplace_back(life_of(touches.of[value], touches.loops), value);
      std::sort(lives.begin(), lives.end(), [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
      for (size_t i = 1; i < lives.size(); ++i)
        require(lives[i - 1].first.last <= lives[i].first.first, "'%{}' is still needed when '%{}' takes its place",
                name(lives[i - 1].second), name(lives[i].second));
    }
  }

  const tile::Program& program_;
  const LoopPlan& plan_;
};

}  // namespace

void check_places(const tile::Program& program, const LoopPlan& plan) { PlaceChecker(program, plan).run(); }

}  // namespace kw::lower
