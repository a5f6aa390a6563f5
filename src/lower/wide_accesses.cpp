#include "lower/wide_accesses.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "lower/appender.hpp"
#include "lower/dead_code.hpp"
#include "lower/emission.hpp"
#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

using kernel::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::ScalarOp;
using tile::Symbol;
using tile::Value;

constexpr int64_t kLoadLength = 4;
constexpr size_t kMostDimensions = 2;  // of a tile that the Triton printer stacks and takes apart
constexpr int64_t kWidestBytes = 16;   // of one instruction's access

// A part of a mask: index >= bound, index < bound, or, where it does not compare, a value.
struct ElementCondition {
  Value value = kNoValue;
  bool compares = false;
  ScalarOp op = ScalarOp::kLess;
  Index index;
  int64_t bound = 0;

  ElementCondition moved_by(int64_t elements) const {
    ElementCondition moved = *this;
    moved.index.constant += elements;
    return moved;
  }
  bool same(const ElementCondition& other) const {
    if (!compares || !other.compares) return value == other.value;
    return op == other.op && bound == other.bound && index == other.index;
  }
};

// Of all elements of a vector: as it is for the first, and with `moves`, by one more for each of the others.
struct Joint {
  ElementCondition first;
  bool moves = false;

  ElementCondition at(int64_t element) const { return moves ? first.moved_by(element) : first; }
};

struct Vector {
  Symbol lane = -1;           // along which vectors follow each other
  Index first;                // where element 0 stands
  std::vector<int> elements;  // [element] the place of its load or store in the body; −1: none
  std::vector<Joint> mask;
};

class Widening {
 public:
  explicit Widening(tile::Program& program)
      : program_(program),
        appender_(program),
        ranges_(tile::ranges_of(program)),
        old_(std::move(program.body)),
        makers_(program.values.size()),
        defined_(program.values.size()) {
    program.body.clear();
  }

  void run() {
    for (const Instruction& one : old_)
      if (one.results.size() == 1) makers_[one.results[0]] = &one;
    stores_last_ = std::all_of(old_.begin(), old_.end(), [&](const Instruction& one) {
      const bool computes = one.body.empty() && one.otherwise_body.empty() && one.kind != Kind::kBarrier;
      const bool writes = one.kind == Kind::kStore;
      return computes && !(one.kind == Kind::kLoad && is_written(one.access.buffer)) && !(writes && one.combines);
    });
    find_loads();
    find_stores();
    for (size_t place = 0; place < old_.size(); ++place) {
      if (const auto load = load_of_.find(static_cast<int>(place)); load != load_of_.end()) {
        if (done_.insert(&loads_[load->second]).second) add_load(loads_[load->second]);
      } else if (const auto store = store_of_.find(static_cast<int>(place)); store != store_of_.end()) {
        // With the last of them, when all values are there.
        if (static_cast<int>(place) == last_of(stores_[store->second])) add_store(stores_[store->second]);
      } else if (stores_last_ && old_[place].kind == Kind::kStore) {
        last_.push_back(std::move(old_[place]));
      } else {
        add(std::move(old_[place]));
      }
    }
    for (Instruction& store : last_) add(std::move(store));
  }

 private:
  bool is_written(int buffer) const { return program_.buffers[buffer].role != tile::BufferRole::kInput; }

  // --- What can be joined ---

  const tile::Access& access_at(int place) const { return old_[static_cast<size_t>(place)].access; }

  // The lane that varies fastest; −1 where accesses of these lanes are not joined.
  static Symbol fastest_of(const std::vector<Symbol>& lanes) {
    return lanes.empty() || lanes.size() > kMostDimensions ? -1 : lanes.back();
  }

  bool is_row(const tile::Access& access) const {
    const tile::Buffer& buffer = program_.buffers[access.buffer];
    return buffer.space == tile::Space::kGlobal && buffer.shape.size() == 1 && buffer.strides.empty() &&
           access.coordinates[0].value == kNoValue;
  }

  // By how many elements the index steps along the lane; 0 where it does not in equal steps.
  static int64_t step_along(const Index& index, Symbol lane) {
    const auto linear = kernel::linear_in(index, lane);
    return linear ? kernel::as_constant(linear->coefficient).value_or(0) : 0;
  }

  bool is_aligned(const tile::Access& access) const {
    const tile::Buffer& buffer = program_.buffers[access.buffer];
    Index moving = access.coordinates[0].index;
    moving.constant = 0;
    return buffer.alignment >= std::min(kWidestBytes, kLoadLength * size_of(buffer.dtype)) &&
           kernel::known_divisor(moving, ranges_) % kLoadLength == 0;
  }

  void find_loads() {
    std::vector<Vector> candidates;
    for (size_t place = 0; place < old_.size(); ++place) {
      const Instruction& one = old_[place];
      if (one.kind != Kind::kLoad || one.mode != tile::CopyMode::kPlain || !is_row(one.access)) continue;
      const Symbol lane = fastest_of(program_.values[one.results[0]].type.lanes);
      const Index& index = one.access.coordinates[0].index;
      if (lane < 0 || step_along(index, lane) <= 0 || !is_aligned(one.access)) continue;
      const int64_t element = ((index.constant % kLoadLength) + kLoadLength) % kLoadLength;
      const Index first = index - Index(element);
      const auto fits = [&](const Vector& vector) {
        const int other = *std::find_if(vector.elements.begin(), vector.elements.end(), [](int at) { return at >= 0; });
        const Instruction& known = old_[static_cast<size_t>(other)];
        return vector.elements[static_cast<size_t>(element)] < 0 && known.access.buffer == one.access.buffer &&
               known.access.otherwise == one.access.otherwise && vector.first == first && known.hint == one.hint &&
               program_.values[known.results[0]].type == program_.values[one.results[0]].type;
      };
      auto found = std::find_if(candidates.begin(), candidates.end(), fits);
      if (found == candidates.end())
        found = candidates.insert(found, {lane, first, std::vector<int>(kLoadLength, -1), {}});
      found->elements[static_cast<size_t>(element)] = static_cast<int>(place);
    }
    for (Vector& vector : candidates) {
      if (std::count(vector.elements.begin(), vector.elements.end(), -1) > kLoadLength - 2) continue;
      const std::optional<std::vector<Joint>> mask = joint_mask(vector);
      if (!mask) continue;
      vector.mask = *mask;
      keep_inside(vector);
      for (int place : vector.elements)
        if (place >= 0) load_of_[place] = loads_.size();
      loads_.push_back(std::move(vector));
    }
  }

  void find_stores() {
    for (size_t place = 0; place < old_.size(); ++place) {
      const Instruction& one = old_[place];
      if (!may_join(one) || store_of_.contains(static_cast<int>(place))) continue;
      const Index& index = one.access.coordinates[0].index;
      const tile::TileType& type = program_.values[one.operands[0]].type;
      const Symbol lane = fastest_of(type.lanes);
      const int64_t length = lane < 0 ? 0 : step_along(index, lane);
      if (length != 2 && length != 4) continue;
      Vector vector{lane, index, std::vector<int>(static_cast<size_t>(length), -1), {}};
      for (size_t other = 0; other < old_.size(); ++other) {
        if (!may_join(old_[other]) || store_of_.contains(static_cast<int>(other)) ||
            old_[other].access.buffer != one.access.buffer || program_.values[old_[other].operands[0]].type != type)
          continue;
        const auto behind = kernel::as_constant(old_[other].access.coordinates[0].index - index);
        if (behind && *behind >= 0 && *behind < length)
          vector.elements[static_cast<size_t>(*behind)] = static_cast<int>(other);
      }
      if (std::count(vector.elements.begin(), vector.elements.end(), -1) > 0) continue;
      const std::optional<std::vector<Joint>> mask = joint_mask(vector);
      if (!mask) continue;
      vector.mask = *mask;
      for (int store : vector.elements) store_of_[store] = stores_.size();
      stores_.push_back(std::move(vector));
    }
  }

  bool may_join(const Instruction& one) const {
    return one.kind == Kind::kStore && !one.combines && is_row(one.access) &&
           tile::lanes_of(program_, one.access) == program_.values[one.operands[0]].type.lanes;
  }

  // --- Masks ---

  void collect_conditions(Value mask, std::vector<ElementCondition>& conditions) const {
    if (mask == kNoValue) return;
    const Instruction* made = makers_[mask];
    const auto operand = [&](size_t place) { return makers_[made->operands[place]]; };
    if (made && made->kind == Kind::kOp && made->op == ScalarOp::kLogicalAnd) {
      for (Value part : made->operands) collect_conditions(part, conditions);
      return;
    }
    ElementCondition condition;
    condition.value = mask;
    if (made && made->kind == Kind::kOp && (made->op == ScalarOp::kLess || made->op == ScalarOp::kGreaterEqual) &&
        operand(0) && operand(1) && operand(0)->kind == Kind::kIndex && operand(1)->kind == Kind::kConstant) {
      condition.compares = true;
      condition.op = made->op;
      condition.index = operand(0)->index;
      condition.bound = operand(1)->integer;
    }
    conditions.push_back(std::move(condition));
  }

  // Does it hold for all values of the symbols?
  bool is_implied(const ElementCondition& condition) const {
    if (!condition.compares) return false;
    const kernel::Interval range = kernel::range_of(condition.index, ranges_);
    return condition.op == ScalarOp::kLess ? range.high < condition.bound : range.low >= condition.bound;
  }

  // Does it hold wherever the others do? A row's end is not asked of elements that a whole vector before it has.
  bool follows(const ElementCondition& condition, const std::vector<ElementCondition>& others) const {
    if (is_implied(condition)) return true;
    if (!condition.compares || condition.op != ScalarOp::kLess) return false;
    return std::any_of(others.begin(), others.end(), [&](const ElementCondition& other) {
      if (!other.compares || other.op != ScalarOp::kLess) return false;
      for (const int64_t times : {int64_t{1}, int64_t{2}, kLoadLength}) {
        const auto beyond = kernel::as_constant(condition.index - other.index * Index(times));
        if (beyond && times * (other.bound - 1) + *beyond < condition.bound) return true;
      }
      return false;
    });
  }

  // Conditions that say for each of the elements there what its own mask does; nullopt where there are none.
  std::optional<std::vector<Joint>> joint_mask(const Vector& vector) const {
    std::map<int64_t, std::vector<ElementCondition>> own;
    for (size_t element = 0; element < vector.elements.size(); ++element)
      if (vector.elements[element] >= 0)
        collect_conditions(access_at(vector.elements[element]).mask, own[static_cast<int64_t>(element)]);
    const auto has = [&](int64_t element, const ElementCondition& wanted) {
      const std::vector<ElementCondition>& all = own.at(element);
      return std::any_of(all.begin(), all.end(), [&](const ElementCondition& one) { return one.same(wanted); });
    };
    std::vector<Joint> joints;
    for (const auto& [element, conditions] : own)
      for (const ElementCondition& one : conditions) {
        if (std::any_of(joints.begin(), joints.end(), [&](const Joint& joint) { return joint.at(element).same(one); }))
          continue;
        std::vector<Joint> ways;
        if (one.compares) ways.push_back({one.moved_by(-element), true});
        if (one.compares && kernel::uses(one.index, vector.lane)) ways.push_back({one, false});
        else ways.insert(ways.begin(), {one, false});
        const auto holds = std::find_if(ways.begin(), ways.end(), [&](const Joint& way) {
          return std::all_of(own.begin(), own.end(), [&](const auto& other) {
            return has(other.first, way.at(other.first)) || follows(way.at(other.first), other.second);
          });
        });
        if (holds == ways.end()) return std::nullopt;
        joints.push_back(*holds);
      }
    return joints;
  }

  // Elements that nobody wants may lie outside of the buffer, where nothing that moves keeps them within a row.
  void keep_inside(Vector& vector) const {
    const auto any = std::find_if(vector.elements.begin(), vector.elements.end(), [](int at) { return at >= 0; });
    const Index& size = program_.buffers[access_at(*any).buffer].shape[0];
    const auto keeps = [&](ScalarOp op) {
      return std::any_of(vector.mask.begin(), vector.mask.end(),
                         [&](const Joint& joint) { return joint.moves && joint.first.op == op; });
    };
    Joint end{{kNoValue, true, ScalarOp::kLess, vector.first, *kernel::as_constant(size)}, true};
    Joint start{{kNoValue, true, ScalarOp::kGreaterEqual, vector.first, 0}, true};
    const bool last_is_wanted = vector.elements.back() >= 0, first_is_wanted = vector.elements.front() >= 0;
    if (!last_is_wanted && !keeps(end.first.op) && !is_implied(end.at(kLoadLength - 1))) vector.mask.push_back(end);
    if (!first_is_wanted && !keeps(start.first.op) && !is_implied(start.at(0))) vector.mask.push_back(start);
  }

  // --- Instructions ---

  void add(Instruction one) {
    for (Value result : one.results) define(result);
    program_.body.push_back(std::move(one));
  }

  void define(Value value) {
    defined_.resize(program_.values.size());
    defined_[value] = true;
  }

  Value emit(Instruction one, const std::string& name, tile::TileType type) {
    const Value value = appender_.emit(std::move(one), name, std::move(type));
    define(value);
    return value;
  }

  Symbol lane_of(int64_t length) {
    const auto [known, is_new] = lanes_.emplace(length, -1);
    if (is_new) {
      known->second = appender_.symbol(
          {length == 2 ? "pair" : "four", tile::SymbolKind::kLane, {0, length - 1, 1}, {}});
      ranges_ = tile::ranges_of(program_);
    }
    return known->second;
  }

  Index moved_along(const Joint& joint, Symbol lane) const {
    return joint.moves ? joint.first.index + kernel::symbol_index(lane) : joint.first.index;
  }

  Value condition_value(const Joint& joint, Symbol lane) {
    const Value old = joint.first.value;
    if (!joint.moves && old != kNoValue && (!joint.first.compares || defined_[old])) return old;
    const Index index = moved_along(joint, lane);
    const auto same = [&](const auto& known) {
      return known.first.op == joint.first.op && known.first.bound == joint.first.bound && known.first.index == index;
    };
    if (const auto known = std::find_if(conditions_.begin(), conditions_.end(), same); known != conditions_.end())
      return known->second;
    const kernel::Interval range = kernel::range_of(index, ranges_);
    const bool wide = std::min(range.low, joint.first.bound) < INT32_MIN ||
                      std::max(range.high, joint.first.bound) > INT32_MAX;
    const DType dtype = wide ? DType::i64 : DType::i32;
    Instruction place, bound;
    place.kind = Kind::kIndex;
    place.index = index;
    bound.kind = Kind::kConstant;
    bound.integer = joint.first.bound;
    const std::vector<Symbol> lanes = tile::lanes_of(program_, index);
    const Value left = emit(std::move(place), "position", {dtype, lanes}),
                right = emit(std::move(bound), "constant", {dtype, {}});
    ElementCondition made = joint.first;
    made.index = index;
    conditions_.emplace_back(made, op(joint.first.op, left, right));
    return conditions_.back().second;
  }

  Value op(ScalarOp op, Value left, Value right) {
    const auto [known, is_new] = masks_.emplace(std::tuple(op, left, right), kNoValue);
    if (!is_new) return known->second;
    Instruction one;
    one.kind = Kind::kOp;
    one.op = op;
    one.operands = {left, right};
    const std::vector<Symbol> lanes = united(program_.values[left].type.lanes, program_.values[right].type.lanes);
    return known->second = emit(std::move(one), "inside", {DType::b1, lanes});
  }

  tile::Access joined(const Vector& vector, Symbol lane) {
    const auto any = std::find_if(vector.elements.begin(), vector.elements.end(), [](int at) { return at >= 0; });
    tile::Access access = access_at(*any);
    access.coordinates[0].index = vector.first + kernel::symbol_index(lane);
    access.mask = kNoValue;
    for (const Joint& joint : vector.mask) {
      const Value condition = condition_value(joint, lane);
      access.mask = access.mask == kNoValue ? condition : op(ScalarOp::kLogicalAnd, access.mask, condition);
    }
    return access;
  }

  void add_load(const Vector& vector) {
    const Symbol lane = lane_of(kLoadLength);
    const auto any = std::find_if(vector.elements.begin(), vector.elements.end(), [](int at) { return at >= 0; });
    const Instruction& one = old_[static_cast<size_t>(*any)];
    const tile::TileType part = program_.values[one.results[0]].type;
    const std::string name = program_.values[one.results[0]].name;
    tile::TileType type = part;
    type.lanes.push_back(lane);
    Instruction load = one, unstack;
    load.results.clear();
    load.access = joined(vector, lane);
    unstack.kind = Kind::kUnstack;
    unstack.from = lane;
    unstack.operands = {emit(std::move(load), program_.buffers[one.access.buffer].name + "_four", type)};
    for (int place : vector.elements)
      unstack.results.push_back(place < 0 ? appender_.value(name, part) : old_[static_cast<size_t>(place)].results[0]);
    add(std::move(unstack));
  }

  void add_store(const Vector& vector) {
    const Symbol lane = lane_of(static_cast<int64_t>(vector.elements.size()));
    Instruction stack, store = old_[static_cast<size_t>(vector.elements[0])];
    const Value first = store.operands[0];
    tile::TileType type = program_.values[first].type;
    type.lanes.push_back(lane);
    stack.kind = Kind::kStack;
    stack.to = lane;
    for (int place : vector.elements) stack.operands.push_back(old_[static_cast<size_t>(place)].operands[0]);
    store.operands = {emit(std::move(stack), program_.buffers[store.access.buffer].name + "_stack", type)};
    store.access = joined(vector, lane);
    if (stores_last_) last_.push_back(std::move(store));
    else add(std::move(store));
  }

  static int last_of(const Vector& vector) { return *std::max_element(vector.elements.begin(), vector.elements.end()); }

  tile::Program& program_;
  Appender appender_;
  std::vector<kernel::SymbolRange> ranges_;
  std::vector<Instruction> old_;
  std::vector<const Instruction*> makers_;  // [value of the old program]
  std::vector<bool> defined_;               // [value] so far
  std::vector<Vector> loads_, stores_;
  std::map<int, size_t> load_of_, store_of_;  // [place in the old body]
  std::set<const Vector*> done_;
  bool stores_last_ = false;
  std::vector<Instruction> last_;
  std::map<int64_t, Symbol> lanes_;  // [length]
  std::vector<std::pair<ElementCondition, Value>> conditions_;
  std::map<std::tuple<ScalarOp, Value, Value>, Value> masks_;
};

}  // namespace

void widen_accesses(tile::Program& program) {
  Widening(program).run();
  remove_dead_code(program);
  tile::verify(program);
}

}  // namespace kw::lower
