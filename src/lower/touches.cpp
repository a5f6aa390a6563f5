#include "lower/touches.hpp"

#include <climits>

#include "lower/loop_tree.hpp"
#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class TouchWalk {
 public:
  TouchWalk(const tile::Program& program, Touches& found) : found_(found) {
    found_.of.resize(program.values.size());
    found_.body.resize(program.values.size());
    found_.is_set_later.resize(program.values.size());
    found_.of_bodies.resize(program.values.size());
    used_.resize(program.values.size());
    tile::for_each(program.body,
                   [&](const Instruction& one) { for_each_use(one, [&](Value value, Use) { used_[value] = true; }); });
  }

  void run(const std::vector<Instruction>& instructions, std::vector<LoopStep>& steps) {
    body_ = &instructions;
    walk({-1, -1, -1, &steps});
    end_body(instructions, {INT_MIN, INT_MAX});
  }

 private:
  // Of an instruction: reads of points, results, other reads.
  static constexpr int kMomentsOfStep = 3;

  void touch(Value value, int block, int step, int moment) { found_.of[value].push_back({block, step, moment}); }

  void make(Value value, int block, int step, int moment) {
    touch(value, block, step, moment);
    found_.body[value] = body_;
  }

  int walk(const StepBlock& block) {
    const int place = static_cast<int>(found_.blocks.size());
    found_.blocks.push_back(block);
    for (int i = 0; i < static_cast<int>(block.steps->size()); ++i) visit((*block.steps)[i], place, i);
    return place;
  }

  void visit(LoopStep& step, int block, int place) {
    if (!step.instruction) {
      // What is folded is set before the loop; its first step reads its points later.
      for (const BegunFold& begun : step.folds)
        for (Value value : begun.fold->results) make(value, block, place, now_ - 1);
      for (const BegunScan& begun : step.scans) visit_scan(*begun.scan, block, place);
      walk({block, place, step.lane, &step.body});
      return;
    }
    const Instruction& one = *step.instruction;
    if (one.kind == Kind::kFor) return visit_for(step, block, place);
    if (one.kind == Kind::kIf) return visit_if(step, block, place);
    const bool walks = is_simple_scan(one);
    for_each_use(one, [&](Value value, Use use) {
      if (!walks || use != Use::kStart) touch(value, block, place, now_ + (use == Use::kWhole ? 2 : 0));
    });
    for (Value value : one.results) {
      if (one.kind == Kind::kScan && kernel::is_sort(one.reduce) && !used_[value]) continue;
      make(value, block, place, now_ + 1);
      if (one.kind == Kind::kFold || one.kind == Kind::kDot || (one.kind == Kind::kScan && !walks))
        found_.is_set_later[value] = true;
    }
    now_ += kMomentsOfStep;
  }

  // Before its loop, what the walk has met becomes what it met before.
  void visit_scan(const Instruction& scan, int block, int place) {
    for (size_t i = tile::scanned_operands(scan); i < scan.operands.size(); ++i) {
      touch(scan.operands[i], block, place, now_ - 1);
      make(scan.results[i], block, place, now_ - 1);
      found_.is_set_later[scan.results[i]] = true;
    }
  }

  void visit_for(LoopStep& step, int block, int place) {
    const Instruction& loop = *step.instruction;
    const size_t number = found_.loops.size();
    found_.loops.push_back({&loop, now_, {}});
    for (Value value : loop.operands) touch(value, block, place, now_);
    if (loop.until != tile::kNoValue) touch(loop.until, block, place, now_);
    const Moments inside = visit_body(loop.body, step.body, loop.yields, {block, place, -1, &step.body},
                                      loop.arguments);
    found_.loops[number].inside = inside;
    for (Value value : loop.results) make(value, block, place, inside.last + 1);
    for (Value value : loop.arguments) found_.is_set_later[value] = true;
    now_ = inside.last + kMomentsOfStep;
  }

  void visit_if(LoopStep& step, int block, int place) {
    const Instruction& branch = *step.instruction;
    touch(branch.operands[0], block, place, now_);
    for (Value value : branch.results) {
      make(value, block, place, now_ + 1);
      found_.is_set_later[value] = true;
    }
    now_ += kMomentsOfStep;
    visit_body(branch.body, step.body, branch.yields, {block, place, -1, &step.body}, {});
    visit_body(branch.otherwise_body, step.otherwise_body, branch.otherwise_yields,
               {block, place, -1, &step.otherwise_body}, {});
  }

  Moments visit_body(const std::vector<Instruction>& instructions, const std::vector<LoopStep>& steps,
                     const std::vector<Value>& yields, const StepBlock& block, const std::vector<Value>& arguments) {
    const std::vector<Instruction>* outer = body_;
    body_ = &instructions;
    const int first = now_ + 1;
    for (Value value : arguments) make(value, block.parent, block.step, first);
    now_ += kMomentsOfStep;
    const int inner = walk(block);
    for (Value value : yields) touch(value, inner, static_cast<int>(steps.size()), now_);
    const Moments inside{first, now_};
    end_body(instructions, inside);
    body_ = outer;
    now_ += kMomentsOfStep;
    return inside;
  }

  void end_body(const std::vector<Instruction>& instructions, Moments moments) {
    for (size_t value = 0; value < found_.body.size(); ++value)
      if (found_.body[value] == &instructions) found_.of_bodies[value] = moments;
  }

  Touches& found_;
  std::vector<bool> used_;  // [value]
  const std::vector<Instruction>* body_ = nullptr;
  int now_ = 1;
};

}  // namespace

Touches find_touches(const tile::Program& program, std::vector<LoopStep>& body) {
  Touches found;
  TouchWalk(program, found).run(program.body, body);
  return found;
}

}  // namespace kw::lower
