#include "passes/cse.hpp"

#include <bit>
#include <functional>
#include <unordered_map>

#include "ir/op_registry.hpp"

namespace kw {
namespace {

void mix(size_t& seed, size_t value) { seed ^= value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2); }

size_t hash_of(const Argument& argument) {
  size_t seed = argument.index();
  struct {
    size_t& seed;
    void operator()(const None&) const {}
    void operator()(const ValueRef& value) const { mix(seed, static_cast<size_t>(value.id)); }
    void operator()(const ValueList& values) const {
      for (const ValueId id : values.ids) mix(seed, static_cast<size_t>(id));
    }
    void operator()(bool flag) const { mix(seed, flag); }
    void operator()(int64_t number) const { mix(seed, static_cast<size_t>(number)); }
    void operator()(double number) const { mix(seed, std::bit_cast<uint64_t>(number)); }
    void operator()(const std::string& text) const { mix(seed, std::hash<std::string>{}(text)); }
    void operator()(const IntList& items) const {
      for (const int64_t item : items) mix(seed, static_cast<size_t>(item));
    }
    void operator()(const FloatList& items) const {
      for (const double item : items) mix(seed, std::bit_cast<uint64_t>(item));
    }
    void operator()(const BoolList& items) const {
      for (const bool item : items) mix(seed, item);
    }
    void operator()(DType dtype) const { mix(seed, static_cast<size_t>(dtype)); }
    void operator()(const Keyword& keyword) const { mix(seed, std::hash<std::string>{}(keyword.name)); }
  } visitor{seed};
  std::visit(visitor, argument);
  return seed;
}

size_t hash_of(const Node& node) {
  size_t seed = std::hash<std::string>{}(node.op);
  for (const auto& argument : node.arguments) {
    mix(seed, std::hash<std::string>{}(argument.name));
    mix(seed, hash_of(argument.value));
  }
  return seed;
}

// -0.0 == 0.0 as numbers, but not as what a kernel computes with.
bool same(const Argument& left, const Argument& right) {
  const auto *a = std::get_if<double>(&left), *b = std::get_if<double>(&right);
  return a && b ? std::bit_cast<uint64_t>(*a) == std::bit_cast<uint64_t>(*b) : left == right;
}

bool same(const Graph& graph, const Node& left, const Node& right) {
  if (left.op != right.op || left.arguments.size() != right.arguments.size() ||
      left.results.size() != right.results.size())
    return false;
  for (size_t i = 0; i < left.arguments.size(); ++i)
    if (left.arguments[i].name != right.arguments[i].name || !same(left.arguments[i].value, right.arguments[i].value))
      return false;
  for (size_t i = 0; i < left.results.size(); ++i) {
    if ((left.results[i] == kNoValue) != (right.results[i] == kNoValue)) return false;
    if (left.results[i] != kNoValue && graph.type(left.results[i]) != graph.type(right.results[i])) return false;
  }
  return true;
}

}  // namespace

RewriteCounts cse(Graph& graph) {
  std::vector<bool> escapes = escaping_values(graph);
  std::unordered_multimap<size_t, std::vector<ValueId>> seen;  // hash → the results of a node that stays
  seen.reserve(graph.nodes.size());
  Rewriter rewriter(graph);
  return rewriter.run([&](Node& node) {
    if (node.results.empty() || node.results[0] == kNoValue || !is_pure(node)) return false;
    const bool is_view = class_of(node.op) == OpClass::kView;  // two equal views share memory anyhow
    const size_t hash = hash_of(node);
    const auto [from, to] = seen.equal_range(hash);
    for (auto candidate = from; candidate != to; ++candidate) {
      const Node* earlier = rewriter.producer(candidate->second[0]);
      if (!same(graph, *earlier, node)) continue;
      bool both_returned = false;
      for (size_t i = 0; i < node.results.size(); ++i)
        both_returned |= node.results[i] != kNoValue && escapes[node.results[i]] && escapes[candidate->second[i]];
      if (both_returned && !is_view) continue;
      for (size_t i = 0; i < node.results.size(); ++i) {
        if (node.results[i] == kNoValue) continue;
        if (escapes[node.results[i]]) escapes[candidate->second[i]] = true;
        rewriter.replace(node.results[i], candidate->second[i]);
      }
      return true;
    }
    seen.emplace(hash, node.results);
    return false;
  });
}

}  // namespace kw
