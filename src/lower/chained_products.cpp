#include "lower/chained_products.hpp"

#include <algorithm>
#include <map>

#include "lower/dead_code.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

class Chains {
 public:
  explicit Chains(tile::Program& program) : program_(program) {}

  void run(std::vector<Instruction>& body) {
    std::map<Value, size_t> makers;  // of this body
    for (size_t place = 0; place < body.size(); ++place) {
      Instruction& one = body[place];
      run(one.body);
      run(one.otherwise_body);
      if (one.kind == Kind::kOp && one.op == tile::ScalarOp::kAdd) chain(body, makers, one);
      for (Value result : one.results) makers[result] = place;
    }
  }

 private:
  // A product, and what it is before the sum: itself, or its lanes taken apart.
  struct Addend {
    Instruction* product = nullptr;
    const Instruction* turned = nullptr;
    explicit operator bool() const { return product != nullptr; }
    Value value() const { return (turned ? turned : product)->results[0]; }
  };

  // The operand, if that is made in this body for the sum alone.
  Addend addend(std::vector<Instruction>& body, const std::map<Value, size_t>& makers, Value operand) const {
    const auto made = [&](Value value) -> Instruction* {
      const auto found = makers.find(value);
      return found == makers.end() || uses_of(value) != 1 ? nullptr : &body[found->second];
    };
    Instruction* maker = made(operand);
    if (maker == nullptr) return {};
    if (maker->kind == Kind::kDot) return {maker};
    if (maker->kind != Kind::kSplit) return {};
    Instruction* product = made(maker->operands[0]);
    return product && product->kind == Kind::kDot ? Addend{product, maker} : Addend{};
  }

  static bool turn_alike(const Addend& a, const Addend& b) {
    if (!a.turned || !b.turned) return a.turned == b.turned;
    return a.turned->from == b.turned->from && a.turned->lanes == b.turned->lanes;
  }

  void chain(std::vector<Instruction>& body, const std::map<Value, size_t>& makers, Instruction& sum) {
    Addend first = addend(body, makers, sum.operands[0]), second = addend(body, makers, sum.operands[1]);
    if (!first || !second || sum.operands[0] == sum.operands[1]) return;
    if (first.product > second.product) std::swap(first, second);
    const auto same_type = [&](Value a, Value b) { return program_.values[a].type == program_.values[b].type; };
    if (!starts_at_zero(body, makers, *second.product) || !turn_alike(first, second) ||
        !same_type(first.value(), second.value()) || !same_type(sum.results[0], second.value()) ||
        !same_type(first.product->results[0], second.product->results[0]))
      return;
    second.product->operands[0] = first.product->results[0];
    replace(program_.body, sum.results[0], second.value());
    sum.kind = Kind::kConstant;  // that nobody reads
    sum.operands.clear();
  }

  bool starts_at_zero(const std::vector<Instruction>& body, const std::map<Value, size_t>& makers,
                      const Instruction& product) const {
    const auto found = makers.find(product.operands[0]);
    if (found == makers.end()) return false;
    const Instruction& start = body[found->second];
    return start.kind == Kind::kConstant && start.number == 0.0 && start.integer == 0;
  }

  int uses_of(Value value) const {
    int uses = 0;
    tile::for_each(program_.body, [&](const Instruction& one) {
      uses += static_cast<int>(std::count(one.operands.begin(), one.operands.end(), value) +
                               std::count(one.yields.begin(), one.yields.end(), value) +
                               std::count(one.otherwise_yields.begin(), one.otherwise_yields.end(), value));
      for (const tile::Access* access : {&one.access, &one.destination}) {
        uses += access->mask == value;
        for (const tile::Coordinate& at : access->coordinates) uses += at.value == value;
      }
    });
    return uses;
  }

  static void replace(std::vector<Instruction>& body, Value from, Value to) {
    tile::for_each_mutable(body, [&](Instruction& one) {
      for (std::vector<Value>* list : {&one.operands, &one.yields, &one.otherwise_yields})
        std::replace(list->begin(), list->end(), from, to);
      for (tile::Access* access : {&one.access, &one.destination}) {
        if (access->mask == from) access->mask = to;
        for (tile::Coordinate& at : access->coordinates)
          if (at.value == from) at.value = to;
      }
    });
  }

  tile::Program& program_;
};

}  // namespace

void chain_products(tile::Program& program) {
  Chains(program).run(program.body);
  remove_dead_code(program);
}

}  // namespace kw::lower
