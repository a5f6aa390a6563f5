#include "lower/consumers.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/types.hpp"
#include "lower/appender.hpp"
#include "tile/consumers.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Layout;
using tile::Symbol;
using tile::Value;

// Consumers have their sums in registers; the producer copies what others multiply.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
constexpr int64_t kMostBytes = 16;  // that a thread stores at once

class Consumers {
 public:
  explicit Consumers(tile::Program& program)
      : program_(program),
        place_(static_cast<size_t>(&tile::consuming_loop(program) - program.body.data())),
        loop_(program.body[place_]),
        in_turn_(program.consumers.along < 0),
        left_(tile::left_in_registers(program)) {
    for (const Instruction& one : loop_.body)
      if (one.kind == Kind::kDot) dots_.push_back(one);
    lanes_ = type(dots_[0].results[0]).lanes;
  }

  void run() {
    program_.consumers.registers = kConsumerRegisters;
    program_.consumers.producer_registers = kProducerRegisters;
    if (in_turn_) decide_stores();
    std::vector<Instruction> behind;
    const bool run_on = can_run_on();
    put_waits(run_on);
    if (run_on) {
      for (size_t place = 0; place < loop_.results.size(); ++place)
        if (is_sum(loop_.yields[place])) behind.push_back(wait(loop_.results[place], 0));
      behind.push_back(release(1));
    }
    if (in_turn_) behind.emplace_back().kind = Kind::kSkip;
    // Sums that nothing but products has touched go to where they are stored from.
    const bool stores = in_turn_ && std::any_of(loop_.yields.begin(), loop_.yields.end(),
                                                [&](Value value) { return is_sum(value); });
    give_layouts(stores ? Layout::kStores : Layout::kSums);
    move_results(stores, behind);
    move_rows();
    start_from_zero();
    program_.body.insert(program_.body.begin() + static_cast<std::ptrdiff_t>(place_) + 1, behind.begin(), behind.end());
  }

 private:
  const tile::TileType& type(Value value) const { return program_.values[value].type; }

  bool is_sum(Value value) const {
    return std::any_of(dots_.begin(), dots_.end(), [&](const Instruction& dot) { return dot.results[0] == value; });
  }

  long uses_of(Value value) const {
    long uses = std::count(loop_.yields.begin(), loop_.yields.end(), value);
    for (const Instruction& one : loop_.body) uses += std::count(one.operands.begin(), one.operands.end(), value);
    return uses;
  }

  // Neighbours in memory side by side, as many to a thread as one store may write wherever the block lies.
  void decide_stores() {
    program_.consumers.stored_along = lanes_[1];
    for (const Instruction& one : program_.body) {
      if (one.kind != Kind::kStore || type(one.operands[0]).lanes != lanes_) continue;
      const tile::Buffer& buffer = program_.buffers[one.access.buffer];
      const std::vector<tile::Index> strides = tile::strides_of(buffer);
      tile::Index place = 0;
      for (size_t dim = 0; dim < strides.size(); ++dim)
        place = place + one.access.coordinates[dim].index * strides[dim];
      for (const Symbol fastest : {lanes_[1], lanes_[0]}) {
        const auto along = kernel::linear_in(place, fastest);
        if (!along || !(along->coefficient == tile::Index(1))) continue;
        const int64_t most = std::min(kMostBytes, buffer.alignment) / size_of(buffer.dtype);
        program_.consumers.stored_along = fastest;
        program_.consumers.stored_together = std::gcd(kernel::known_divisor(along->rest, tile::ranges_of(program_)),
                                                      most);
        return;
      }
    }
  }

  // --- Waits ---

  static Instruction wait(Value sum, size_t left_under_way) {
    Instruction one;
    one.kind = Kind::kWait;
    one.awaited = tile::Awaited::kProduct;
    one.operands = {sum};
    one.pending = static_cast<int>(left_under_way);
    return one;
  }

  static Instruction release(int back) {
    Instruction one;
    one.kind = Kind::kRelease;
    one.pending = back;
    return one;
  }

  // Are all products added to by the next iteration's alone? Then that starts its own before it waits for these, and
  // tensor cores never stand still. With one place there is nothing to read for its own before these are done.
  bool can_run_on() const {
    const auto is_carried_alone = [&](const Instruction& dot) {
      const auto yielded = std::find(loop_.yields.begin(), loop_.yields.end(), dot.results[0]);
      if (yielded == loop_.yields.end()) return false;
      const Value carried = loop_.arguments[static_cast<size_t>(yielded - loop_.yields.begin())];
      return dot.operands[0] == carried && uses_of(carried) == 1 && uses_of(dot.results[0]) == 1;
    };
    return loop_.stages > 1 && kernel::range_of(loop_.end - loop_.begin, tile::ranges_of(program_)).low > 0 &&
           std::all_of(dots_.begin(), dots_.end(), is_carried_alone);
  }

  // Is the sum added to by another product of the iteration alone, so that nobody waits for it?
  bool is_added_to(Value sum) const {
    return uses_of(sum) == 1 &&
           std::any_of(dots_.begin(), dots_.end(), [&](const Instruction& dot) { return dot.operands[0] == sum; });
  }

  // Before what wants a sum, or at the end, all products under way are waited for; behind the last, what they read is
  // free.
  void put_waits(bool run_on) {
    std::vector<Instruction> body;
    std::vector<Value> under_way;
    body.emplace_back().kind = Kind::kWait;
    body.back().awaited = tile::Awaited::kBoxes;
    const auto put = [&] {
      for (const Value sum : under_way) {
        body.push_back(wait(sum, run_on ? dots_.size() : 0));
        if (sum == dots_.back().results[0]) body.push_back(release(run_on ? 1 : 0));
      }
      under_way.clear();
    };
    for (Instruction& one : loop_.body) {
      const auto is_under_way = [&](Value value) {
        return std::find(under_way.begin(), under_way.end(), value) != under_way.end();
      };
      if (std::any_of(one.operands.begin(), one.operands.end(), is_under_way)) put();
      if (one.kind == Kind::kDot && !is_added_to(one.results[0])) under_way.push_back(one.results[0]);
      body.push_back(std::move(one));
    }
    put();
    loop_.body = std::move(body);
  }

  // --- Layouts ---

  // `behind`: of sums behind the loop.
  void give_layouts(Layout behind) {
    Layout sums = Layout::kSums;
    const auto give = [&](Instruction& one) {
      const bool is_box = one.kind == Kind::kLoad && one.mode == tile::CopyMode::kBulk;
      if (!is_box && one.kind != Kind::kConstant) return;
      const std::vector<Symbol>& lanes = type(one.results[0]).lanes;
      if (left_[one.results[0]] && !lanes.empty()) one.layout = Layout::kLeft;
      else if (!is_box && lanes == lanes_) one.layout = sums;
    };
    for (Instruction& one : program_.body) {
      give(one);
      for (Instruction& inner : one.body) give(inner);
      if (&one == &loop_) sums = behind;
    }
  }

  Value moved(Value value, Layout layout, std::vector<Instruction>& body) {
    Instruction& move = body.emplace_back();
    move.kind = Kind::kMove;
    move.operands = {value};
    move.layout = layout;
    move.results = {Appender(program_).value(program_.values[value].name + "_moved", type(value))};
    return move.results[0];
  }

  // What the loop carried of sums is stored, and what it carried of left operands meets sums.
  void move_results(bool stores, std::vector<Instruction>& behind) {
    for (size_t place = 0; place < loop_.results.size(); ++place) {
      const Value result = loop_.results[place];
      const bool is_left = left_[loop_.arguments[place]];
      if (!is_left && !(stores && type(result).lanes == lanes_)) continue;
      const Value now = moved(result, stores ? Layout::kStores : Layout::kSums, behind);
      for (size_t at = place_ + 1; at < program_.body.size(); ++at)
        tile::for_each_operand(program_.body[at], [&](Value& operand) {
          if (operand == result) operand = now;
        });
    }
  }

  // Numbers of rows that are computed for left operands go to the rows of sums where they meet these.
  void move_rows() {
    std::vector<Instruction> body;
    for (Instruction& one : loop_.body) {
      if (one.kind == Kind::kOp && !left_[one.results[0]])
        for (Value& operand : one.operands)
          if (left_[operand] && !type(operand).lanes.empty()) operand = moved(operand, Layout::kSums, body);
      body.push_back(std::move(one));
    }
    loop_.body = std::move(body);
  }

  // Of what is added to zero nothing need be read.
  void start_from_zero() {
    std::set<Value> zeros;
    tile::for_each(program_.body, [&](const Instruction& one) {
      if (tile::is_zero(one)) zeros.insert(one.results[0]);
    });
    for (Instruction& one : loop_.body)
      if (one.kind == Kind::kDot) one.from_zero = zeros.contains(one.operands[0]);
  }

  tile::Program& program_;
  const size_t place_;  // of the loop, in the body
  Instruction& loop_;
  const bool in_turn_;
  const std::vector<bool> left_;   // [value] what a consumer computes of boxes
  std::vector<Instruction> dots_;  // of the loop
  std::vector<Symbol> lanes_;      // of their sums
};

}  // namespace

void decide_consumers(tile::Program& program) {
  if (program.consumers.count > 1 && program.consumers.registers == 0) Consumers(program).run();
}

}  // namespace kw::lower
