#include "lower/late_operations.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tile/verifier.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class Delay {
 public:
  explicit Delay(tile::Program& program)
      : program_(program), uses_(program.values.size()), read_inside_(program.values.size()) {
    for (const Instruction& one : program.body) {
      tile::for_each_operand(one, [&](Value value) { ++uses_[value]; });
      note_inside(one);
    }
  }

  void run() {
    std::vector<Instruction> body = std::move(program_.body), waits;
    program_.body.clear();
    std::vector<bool> is_free(program_.values.size());  // [value] made of no load
    for (Instruction& one : body) {
      const bool computes = one.kind == Kind::kOp || one.kind == Kind::kIndex || one.kind == Kind::kConstant;
      const bool free = computes && std::all_of(one.operands.begin(), one.operands.end(),
                                                [&](Value operand) { return is_free[operand]; });
      if (free) is_free[one.results[0]] = true;
      const bool made_up = one.kind == Kind::kIndex || one.kind == Kind::kConstant;
      const bool stays = !one.results.empty() && read_inside_[one.results[0]];
      const bool may_wait = (one.kind == Kind::kOp && !is_named(one)) || one.kind == Kind::kStack;
      if (!stays && (made_up || (may_wait && uses_[one.results[0]] == 1))) delayed_[one.results[0]] = std::move(one);
      else if (free) add(std::move(one));
      else waits.push_back(std::move(one));
    }
    for (Instruction& one : waits) add(std::move(one));
  }

 private:
  // What loops and branches read in their bodies is made before them.
  void note_inside(const Instruction& one) {
    for (const std::vector<Value>* yields : {&one.yields, &one.otherwise_yields})
      for (Value value : *yields) read_inside_[value] = true;
    for (const std::vector<Instruction>* body : {&one.body, &one.otherwise_body})
      for (const Instruction& inner : *body) {
        tile::for_each_operand(inner, [&](Value value) { read_inside_[value] = true; });
        note_inside(inner);
      }
  }

  // Is it called by another name than its operation's? Such a value is something by itself, and smaller than what it is
  // made of: the place of a window's largest element.
  bool is_named(const Instruction& one) const {
    const std::string& name = program_.values[one.results[0]].name;
    const std::string_view op = kernel::name_of(one.op);
    const bool is_mask = program_.values[one.results[0]].type.dtype == DType::b1;
    return one.op != kernel::ScalarOp::kCast && !is_mask && !name.starts_with(op);
  }

  void add(Instruction one) {
    tile::for_each_operand(one, [&](Value value) {
      const auto found = delayed_.find(value);
      if (found == delayed_.end()) return;
      Instruction operand = std::move(found->second);
      delayed_.erase(found);
      add(std::move(operand));
    });
    program_.body.push_back(std::move(one));
  }

  tile::Program& program_;
  std::vector<int> uses_;                 // [value] by how many instructions of the program's body itself
  std::vector<bool> read_inside_;         // [value] by those in their bodies
  std::map<Value, Instruction> delayed_;  // what comes before the first that reads it
};

}  // namespace

void delay_operations(tile::Program& program) {
  Delay(program).run();
  tile::verify(program);
}

}  // namespace kw::lower
