// What a pass did, rewrite by rewrite, for people: the nodes that went, those that came, and what that saves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "passes/rewriter.hpp"

namespace kw {

// Of one side of a rewrite. Each node counts by itself: operands read once, results written once.
struct RewriteSide {
  std::vector<std::string> nodes;  // their text (ir/text.hpp), in the graph's order
  double flops = 0, bytes = 0;
};

struct RewriteText {
  std::string pass;
  std::vector<std::string> names;  // of what the nodes before yielded
  NumericTag tag = NumericTag::kExact;
  RewriteSide before, after;
};

// `before`: the node that a rule was asked about, and those of its operands, and of theirs, that nothing reads any
// more; `after`: what was written for it and is read, or "%a is %b" where another value is read in its place. One text
// for all that a pass did where it keeps no places.
std::vector<RewriteText> rewrites_of(std::string_view pass, const RewriteCounts& rewrites, const Graph& before,
                                     const Graph& after);

}  // namespace kw
