#include <fmt/format.h>

#include <algorithm>

#include "tile/consumers.hpp"
#include "tile/rules.hpp"

namespace kw::tile {
namespace {

// What is under way while the loop runs as often as shared memory has places, and once more, and behind it.
class WaitRules {
 public:
  explicit WaitRules(const Program& program)
      : program_(program),
        loop_(consuming_loop(program)),
        released_(static_cast<size_t>(loop_.stages) + 1),
        product_(program.values.size(), kNone) {}

  void check() {
    for (const Instruction& one : program_.body) {
      at(one);
      if (&one == &loop_) run_loop();
    }
    if (!std::all_of(released_.begin(), released_.end(), [](bool released) { return released; }))
      throw BrokenRule{"consumers release the boxes of each iteration"};
    const bool in_turn = program_.consumers.along < 0;
    if (skips_ != in_turn)
      throw BrokenRule{"consumers that take blocks in turn, and no others, skip the boxes of the other's once"};
  }

 private:
  static constexpr int kNone = -1;
  enum class Where { kBefore, kInside, kBehind };

  void run_loop() {
    where_ = Where::kInside;
    carry(loop_.operands, loop_.arguments);
    for (; iteration_ < released_.size(); ++iteration_) {
      are_there_ = false;
      for (const Instruction& one : loop_.body) at(one);
      carry(loop_.yields, loop_.arguments);
    }
    carry(loop_.arguments, loop_.results);
    where_ = Where::kBehind;
  }

  void carry(const std::vector<Value>& from, const std::vector<Value>& to) {
    std::vector<int> products;
    for (const Value value : from) products.push_back(product_[value]);
    for (size_t place = 0; place < to.size(); ++place) product_[to[place]] = products[place];
  }

  void at(const Instruction& one) {
    if (one.kind == Kind::kWait) return wait(one);
    if (one.kind == Kind::kRelease) return release(one);
    if (one.kind == Kind::kSkip) return skip();
    const bool reads_boxes = one.mode == CopyMode::kBulk && one.kind == Kind::kLoad;
    if (reads_boxes && !are_there_) throw BrokenRule{"a box is read before consumers wait for it"};
    if ((reads_boxes || one.kind == Kind::kDot) && released_[iteration_])
      throw BrokenRule{"a box is read when the producer may copy something else there"};
    const bool adds = one.kind == Kind::kDot;
    size_t place = 0;
    for_each_operand(one, [&](Value operand) {
      if (product_[operand] != kNone && !(adds && place == 0))
        throw BrokenRule{fmt::format("'%{}' is read before consumers wait for it", program_.values[operand].name)};
      ++place;
    });
    for (const Value result : one.results) product_[result] = adds ? static_cast<int>(started_.size()) : kNone;
    if (adds) started_.push_back(iteration_);
  }

  void wait(const Instruction& one) {
    if (one.awaited == Awaited::kCopies) throw BrokenRule{"consumers wait for boxes, not for copies of their own"};
    if (one.awaited == Awaited::kBoxes) {
      if (where_ != Where::kInside || are_there_)
        throw BrokenRule{"consumers wait once for the boxes of an iteration, in it"};
      are_there_ = true;
      return;
    }
    int& product = product_[one.operands[0]];
    if (product == kNone)
      throw BrokenRule{
          fmt::format("'%{}' is waited for, and no product under way", program_.values[one.operands[0]].name)};
    done_ = std::max(done_, static_cast<int>(started_.size()) - one.pending);
    if (product < done_) product = kNone;
  }

  void release(const Instruction& one) {
    const auto back = static_cast<size_t>(one.pending);
    if (one.pending < 0 || one.pending >= loop_.stages || where_ == Where::kBefore ||
        (where_ == Where::kBehind && back == 0))
      throw BrokenRule{"consumers release boxes that are there"};
    if (where_ == Where::kBehind && kernel::range_of(loop_.end - loop_.begin, ranges_of(program_)).low <= 0)
      throw BrokenRule{"boxes are released behind a loop that may have no iteration"};
    if (back > iteration_) return;  // the first iterations have nothing to release
    const size_t released = iteration_ - back;
    for (size_t product = static_cast<size_t>(done_); product < started_.size(); ++product)
      if (started_[product] <= released) throw BrokenRule{"boxes are released that products under way read"};
    if (released_[released]) throw BrokenRule{"boxes are released twice"};
    released_[released] = true;
  }

  void skip() {
    if (where_ != Where::kBehind || skips_) throw BrokenRule{"consumers skip boxes once, behind their loop"};
    skips_ = true;
  }

  const Program& program_;
  const Instruction& loop_;
  std::vector<bool> released_;   // [iteration]
  std::vector<size_t> started_;  // [product]: the iteration in which it began
  int done_ = 0;                 // of the products, the first that may be under way
  std::vector<int> product_;     // [value]: of which it is the sum, if nobody has waited for that
  size_t iteration_ = 0;
  Where where_ = Where::kBefore;
  bool are_there_ = false, skips_ = false;
};

// In which registers values are, as far as that is said.
class LayoutRules {
 public:
  explicit LayoutRules(const Program& program)
      : program_(program), layouts_(program.values.size()), is_box_(program.values.size()) {}

  void check(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kFor) check_loop(one);
      else if (one.kind == Kind::kDot) check_product(one);
      else if (!one.results.empty() || one.kind == Kind::kStore) check_operation(one);
    }
  }

 private:
  const std::string& name(Value value) const { return program_.values[value].name; }

  void meet(Layout& known, Value value) const {
    if (layouts_[value] == Layout::kFree) return;
    if (known != Layout::kFree && known != layouts_[value])
      throw BrokenRule{
          fmt::format("'%{}' lies in other registers than what it meets, and is to be moved", name(value))};
    known = layouts_[value];
  }

  void check_loop(const Instruction& loop) {
    for (size_t place = 0; place < loop.operands.size(); ++place)
      layouts_[loop.arguments[place]] = layouts_[loop.operands[place]];
    check(loop.body);
    for (size_t place = 0; place < loop.yields.size(); ++place) {
      meet(layouts_[loop.arguments[place]], loop.yields[place]);
      layouts_[loop.results[place]] = layouts_[loop.arguments[place]];
    }
  }

  void check_product(const Instruction& dot) {
    for (size_t place = 1; place < dot.operands.size(); ++place) {
      const Value operand = dot.operands[place];
      if (layouts_[operand] != (is_box_[operand] ? Layout::kFree : Layout::kLeft))
        throw BrokenRule{fmt::format("'%{}' does not lie where products read it", name(operand))};
    }
    if (layouts_[dot.operands[0]] != Layout::kSums)
      throw BrokenRule{fmt::format("'%{}' does not lie where products add to it", name(dot.operands[0]))};
    layouts_[dot.results[0]] = Layout::kSums;
  }

  void check_operation(const Instruction& one) {
    const bool is_made = one.kind == Kind::kLoad || one.kind == Kind::kConstant || one.kind == Kind::kMove;
    Layout layout = is_made ? one.layout : Layout::kFree;
    for_each_operand(one, [&](Value operand) {
      if (is_box_[operand])
        throw BrokenRule{fmt::format("'%{}' is computed with, and lies in shared memory", name(operand))};
      if (one.kind != Kind::kMove) meet(layout, operand);
    });
    for (const Value result : one.results) layouts_[result] = layout;
    if (one.kind == Kind::kLoad) is_box_[one.results[0]] = one.mode == CopyMode::kBulk && layout == Layout::kFree;
  }

  const Program& program_;
  std::vector<Layout> layouts_;  // [value]
  std::vector<bool> is_box_;     // [value] in shared memory
};

}  // namespace

void check_waits(const Program& program) { WaitRules(program).check(); }

void check_layouts(const Program& program) { LayoutRules(program).check(program.body); }

}  // namespace kw::tile
