// The passes over Graph, in order: one table in pipeline.cpp. After each the graph is verified.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"
#include "passes/rewrite_text.hpp"
#include "passes/rewriter.hpp"
#include "target/graph_forms.hpp"

namespace kw {

struct PassOptions {
  std::vector<std::string> disabled;  // by name; "all" for every pass
  std::vector<std::string> print_before;
  std::vector<std::string> print_after;
  // Receives the printed graph under a title such as "after cse". Required where something is to be printed.
  std::function<void(const std::string& title, const std::string& text)> dump;
  bool keep_rewrites = false;  // as PassReport::rewrites: a copy of the graph a pass
};

struct PassTiming {
  std::string name;
  double seconds = 0.0;
  int64_t nodes = 0;  // in the graph afterwards
  RewriteCounts rewrites;
};

struct PassReport {
  std::vector<PassTiming> passes;
  std::vector<RewriteText> rewrites;
  double seconds() const;
};

// `forms`: what the target that is compiled for asks of the graph. Throws kUser for a pass name that does not exist.
PassReport run_passes(Graph& graph, const GraphForms& forms, const PassOptions& options = {});
PassTiming run_pass(Graph& graph, const GraphForms& forms, std::string_view name);
// One pass through the gate: the graph is verified afterwards, and no rewrite may move the result further than `most`.
PassTiming run_checked(Graph& graph, std::string_view name, const std::function<RewriteCounts(Graph&)>& pass,
                       NumericTag most);
std::vector<std::string> pass_names();

}  // namespace kw
