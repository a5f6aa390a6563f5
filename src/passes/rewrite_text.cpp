#include "passes/rewrite_text.hpp"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "ir/op_registry.hpp"
#include "ir/text.hpp"
#include "passes/dead_code.hpp"

namespace kw {
namespace {

class Texts {
 public:
  Texts(std::string_view pass, const RewriteCounts& rewrites, const Graph& before, const Graph& after)
      : pass_(pass),
        rewrites_(rewrites),
        before_(before),
        after_(after),
        live_before_(live_nodes(before)),
        live_after_(live_nodes(after)) {
    for (size_t at = 0; at < after.nodes.size(); ++at)
      if (live_after_[at])
        for (const ValueId id : after.nodes[at].results)
          if (id != kNoValue) names_after_.insert(after.values[id].name);
    for (const Rewrite& one : rewrites.places) taken_.insert(one.visited);
  }

  std::vector<RewriteText> run() {
    std::vector<RewriteText> texts;
    for (const Rewrite& one : rewrites_.places) texts.push_back(text_of(one));
    if (texts.empty() && rewrites_.total() > 0) texts.push_back(difference());
    return texts;
  }

 private:
  RewriteText text_of(const Rewrite& one) {
    RewriteText text{std::string(pass_), {}, one.tag, {}, {}};
    std::set<NodeId> gone = {one.visited};
    add_unread(before_.nodes[one.visited], gone);
    for (const NodeId at : gone) add_before(text, at);
    for (NodeId at = one.first; at < one.last; ++at)
      if (live_after_[at]) add(text.after, after_, at);
    if (text.after.nodes.empty() && !one.with.empty())
      text.after.nodes.push_back("%" + text.names.back() + " is %" + one.with);
    return text;
  }

  // Nodes that only this one needed.
  void add_unread(const Node& node, std::set<NodeId>& gone) {
    for_each_operand(node, [&](ValueId id) {
      const NodeId producer = before_.values[id].producer;
      if (producer == kNoNode || !live_before_[producer] || taken_.contains(producer)) return;
      const Node& operand = before_.nodes[producer];
      const bool is_read = std::any_of(operand.results.begin(), operand.results.end(), [&](ValueId result) {
        return result != kNoValue && names_after_.contains(before_.values[result].name);
      });
      if (is_read) return;
      taken_.insert(producer);
      gone.insert(producer);
      add_unread(operand, gone);
    });
  }

  // Node by node, where nothing says which came for which.
  RewriteText difference() const {
    RewriteText text{std::string(pass_), {}, rewrites_.worst(), {}, {}};
    const std::set<std::string> then = lines(before_), now = lines(after_);
    for (size_t at = 0; at < before_.nodes.size(); ++at)
      if (!now.contains(print(before_, before_.nodes[at]))) add_before(text, static_cast<NodeId>(at));
    for (size_t at = 0; at < after_.nodes.size(); ++at)
      if (!then.contains(print(after_, after_.nodes[at]))) add(text.after, after_, static_cast<NodeId>(at));
    return text;
  }

  static std::set<std::string> lines(const Graph& graph) {
    std::set<std::string> lines;
    for (const Node& node : graph.nodes) lines.insert(print(graph, node));
    return lines;
  }

  void add_before(RewriteText& text, NodeId at) const {
    for (const ValueId id : before_.nodes[at].results)
      if (id != kNoValue) text.names.push_back(before_.values[id].name);
    add(text.before, before_, at, live_before_[at]);
  }

  // What nothing reads is no work: dead code goes by itself.
  static void add(RewriteSide& side, const Graph& graph, NodeId at, bool counts = true) {
    const Node& node = graph.nodes[at];
    side.nodes.push_back(print(graph, node));
    if (!counts) return;
    side.flops += flops(graph, node);
    side.bytes += bytes_moved(graph, node);
  }

  const std::string_view pass_;
  const RewriteCounts& rewrites_;
  const Graph &before_, &after_;
  const std::vector<bool> live_before_, live_after_;  // [node]
  std::unordered_set<std::string> names_after_;       // of values that are made and read
  std::unordered_set<NodeId> taken_;                  // nodes before that stand in a text
};

}  // namespace

std::vector<RewriteText> rewrites_of(std::string_view pass, const RewriteCounts& rewrites, const Graph& before,
                                     const Graph& after) {
  return Texts(pass, rewrites, before, after).run();
}

}  // namespace kw
