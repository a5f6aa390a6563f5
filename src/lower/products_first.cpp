#include "lower/products_first.hpp"

#include <algorithm>
#include <vector>

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Value;

enum class Place { kProduct, kMeanwhile, kBehind };

bool any_of(const std::vector<Value>& values, const std::vector<bool>& marked) {
  return std::any_of(values.begin(), values.end(), [&](Value value) { return marked[value]; });
}

void sort_loop(const tile::Program& program, Instruction& loop) {
  std::vector<bool> needed(program.values.size()), of_products(program.values.size());
  std::vector<Place> places(loop.body.size());
  for (size_t at = loop.body.size(); at-- > 0;) {
    const Instruction& one = loop.body[at];
    if (one.kind != Kind::kDot && !any_of(one.results, needed)) continue;
    for (const Value operand : one.operands) needed[operand] = true;
  }
  for (size_t at = 0; at < loop.body.size(); ++at) {
    const Instruction& one = loop.body[at];
    const bool waits = any_of(one.operands, of_products);
    const bool product = one.kind == Kind::kDot || any_of(one.results, needed);
    for (const Value result : one.results) of_products[result] = one.kind == Kind::kDot || waits;
    places[at] = product ? Place::kProduct : waits ? Place::kBehind : Place::kMeanwhile;
  }
  std::vector<Instruction> body;
  for (const Place place : {Place::kProduct, Place::kMeanwhile, Place::kBehind})
    for (size_t at = 0; at < loop.body.size(); ++at)
      if (places[at] == place) body.push_back(std::move(loop.body[at]));
  loop.body = std::move(body);
}

}  // namespace

void put_products_first(tile::Program& program) {
  for (Instruction& one : program.body)
    if (one.kind == Kind::kFor) sort_loop(program, one);
}

}  // namespace kw::lower
