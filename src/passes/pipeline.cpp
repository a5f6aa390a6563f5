#include "passes/pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "ir/text.hpp"
#include "ir/verifier.hpp"
#include "passes/broadcasts.hpp"
#include "passes/canonicalise.hpp"
#include "passes/convolution_sums.hpp"
#include "passes/cse.hpp"
#include "passes/dead_code.hpp"
#include "passes/destinations.hpp"
#include "passes/diagonal_products.hpp"
#include "passes/random_masks.hpp"
#include "passes/expand.hpp"
#include "passes/exponents.hpp"
#include "passes/extremes_first.hpp"
#include "passes/fold.hpp"
#include "passes/fusion.hpp"
#include "passes/identities.hpp"
#include "passes/layout.hpp"
#include "passes/linear_sums.hpp"
#include "passes/loops.hpp"
#include "passes/mutations.hpp"
#include "passes/patches.hpp"
#include "passes/product_chains.hpp"
#include "passes/rows_first.hpp"
#include "passes/self_differences.hpp"
#include "passes/shared_heads.hpp"
#include "passes/statistics.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using enum NumericTag;

struct Pass {
  std::string_view name;
  RewriteCounts (*run)(Graph&, const GraphForms&);
  NumericTag most = kExact;  // that it may move the result
  bool required = false;     // runs also where it is disabled: without it the graph's outputs would be overwritten
};

// The same for all targets.
template <RewriteCounts (*pass)(Graph&)>
RewriteCounts always(Graph& graph, const GraphForms&) {
  return pass(graph);
}

// In order.
constexpr Pass kPasses[] = {
    {"canonicalise", always<canonicalise>},
    {"loops", always<loops>, kReassociates},
    {"expand", expand, kReassociates},
    {"statistics", statistics, kReassociates},
    {"fold", always<fold>},
    {"layout", always<layout>},
    {"shared_heads", shared_heads},
    {"exponents", always<exponents>, kReassociates},
    {"identities", always<identities>, kReassociates},
    {"extremes_first", always<extremes_first>, kReassociates},
    {"diagonal_products", always<diagonal_products>},
    {"product_chains", always<product_chains>, kReassociates},
    {"linear_sums", always<linear_sums>, kReassociates},
    {"convolution_sums", always<convolution_sums>, kReassociates},
    {"position_means", position_means, kReassociates},
    {"patches", patches, kReassociates},
    {"broadcasts", always<broadcasts>, kReassociates},
    {"self_differences", always<self_differences>, kReassociates},
    {"rows_first", always<rows_first>, kReassociates},
    {"random_masks", random_masks},
    {"cse", always<cse>},
    {"dead_code", always<dead_code>},
    {"mutations", always<mutations>, kExact, true},
    {"destinations", destinations},
    {"fusion", fusion},
};

bool names(const std::vector<std::string>& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& item) { return item == name || item == "all"; });
}

void check_names(const std::vector<std::string>& list) {
  const auto known = pass_names();
  for (const auto& name : list)
    if (name != "all" && std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::kUser, "there is no pass named '" + name + "'",
                  "The passes are " + join(known, ", ") + ".");
}

PassTiming run(Graph& graph, const GraphForms& forms, const Pass& pass) {
  return run_checked(graph, pass.name, [&](Graph& whole) { return pass.run(whole, forms); }, pass.most);
}

}  // namespace

PassTiming run_checked(Graph& graph, std::string_view name, const std::function<RewriteCounts(Graph&)>& pass,
                       NumericTag most) {
  const auto start = std::chrono::steady_clock::now();
  PassTiming timing;
  timing.name = name;
  timing.rewrites = pass(graph);
  timing.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  timing.nodes = static_cast<int64_t>(graph.nodes.size());
  // Also where the pass counts no rewrite: that is what it says of itself.
  verify(graph, "pass " + timing.name);
  KW_ASSERT(timing.rewrites.worst() <= most, "the pass " + timing.name + ", which may be " +
                                                 std::string(name_of(most)) + " at most, has a rewrite that is " +
                                                 std::string(name_of(timing.rewrites.worst())));
  return timing;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> list;
  for (const auto& pass : kPasses) list.emplace_back(pass.name);
  return list;
}

PassTiming run_pass(Graph& graph, const GraphForms& forms, std::string_view name) {
  check_names({std::string(name)});
  return run(graph, forms, *std::find_if(std::begin(kPasses), std::end(kPasses), [&](const Pass& pass) {
               return pass.name == name;
             }));
}

PassReport run_passes(Graph& graph, const GraphForms& forms, const PassOptions& options) {
  for (const auto* list : {&options.disabled, &options.print_before, &options.print_after}) check_names(*list);
  KW_ASSERT(options.dump || (options.print_before.empty() && options.print_after.empty()),
            "printing a graph between passes needs somewhere to print to");
  PassReport report;
  for (const auto& pass : kPasses) {
    if (!pass.required && names(options.disabled, pass.name)) continue;
    if (names(options.print_before, pass.name)) options.dump("before " + std::string(pass.name), print(graph));
    const std::optional<Graph> before = options.keep_rewrites ? std::optional(graph) : std::nullopt;
    report.passes.push_back(run(graph, forms, pass));
    if (before)
      for (auto& text : rewrites_of(pass.name, report.passes.back().rewrites, *before, graph))
        report.rewrites.push_back(std::move(text));
    if (names(options.print_after, pass.name)) options.dump("after " + std::string(pass.name), print(graph));
  }
  return report;
}

double PassReport::seconds() const {
  double sum = 0.0;
  for (const auto& pass : passes) sum += pass.seconds;
  return sum;
}

}  // namespace kw
