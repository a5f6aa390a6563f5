// A made-up world for searches: what is fast is a formula, so that order, determinism and interruption can be seen.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ir/text.hpp"
#include "passes/fusion.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "search/catalogue.hpp"
#include "search/search.hpp"
#include "support/interrupt.hpp"
#include "targets/targets.hpp"

namespace kw::search {

inline constexpr const char* kSoftmax = R"(graph G {
  input %x : f32[8192, 4096] user args.0
  %s = aten.softmax.int(self=%x, dim=1) : f32[8192, 4096]
  return %s
})";

inline constexpr const char* kTwoGroups = R"(graph G {
  input %x : f32[4096, 1024] user args.0
  input %w : f32[1024, 1024] parameter "w"
  %a = aten.relu.default(self=%x) : f32[4096, 1024]
  %m = aten.mm.default(self=%a, mat2=%w) : f32[4096, 1024]
  %b = aten.gelu.default(self=%m) : f32[4096, 1024]
  %c = aten.mul.Tensor(self=%b, other=%a) : f32[4096, 1024]
  return %c
})";

inline Graph fused(const char* text) {
  Graph graph = parse_graph(text);
  fusion(graph, {});
  return graph;
}

using Formula = std::function<double(const Schedule&)>;

class World : public Evaluator {
 public:
  explicit World(Formula seconds, int limit = 60) : seconds_of_(std::move(seconds)), limit_(limit) {}

  std::string identity(const Schedule& schedule) override { return schedule_to_json(schedule); }
  bool has_time() override {
    if (interrupt_after >= 0 && static_cast<int>(tried.size()) >= interrupt_after) throw Interrupted{""};
    return static_cast<int>(tried.size()) < limit_;
  }
  void prepare(const std::vector<Candidate>& batch) override { prepared += static_cast<int>(batch.size()); }
  std::vector<Outcome> measure(const std::vector<Candidate>& batch, const Candidate*) override {
    std::vector<Outcome> outcomes;
    batches.push_back(batch.size());
    for (const Candidate& one : batch) {
      tried.push_back(one.identity);
      expected.push_back(one.expected);
      const double ratio = seconds_of_(one.schedule);
      if (ratio < 0) outcomes.push_back({Outcome::State::kFailed, 0, 0, 0, false, "does not build"});
      else
        outcomes.push_back({ratio > 1.2 ? Outcome::State::kPruned : Outcome::State::kMeasured, ratio, ratio * 0.995,
                            ratio * 1.005, false, ""});
    }
    return outcomes;
  }
  Verdict confirm(const Candidate& candidate, double, bool last) override {
    if (!last && !confirm_early) return Verdict::kLater;
    confirmed.push_back(candidate.identity);
    return rejects && rejects(candidate.schedule) ? Verdict::kFailed : Verdict::kPassed;
  }
  void report(const Standing& standing) override { reported = standing; }
  double seconds() override { return static_cast<double>(tried.size()); }

  std::vector<std::string> tried, confirmed;
  std::vector<double> expected;
  std::vector<size_t> batches;  // how many of them were tried at a time
  std::function<bool(const Schedule&)> rejects;
  Standing reported;
  int prepared = 0, interrupt_after = -1;
  bool confirm_early = false;

 private:
  Formula seconds_of_;
  int limit_;
};

struct Setting {
  explicit Setting(const char* text, const char* target = "triton")
      : graph(fused(text)),
        device(default_device(target)),
        first(default_schedule(graph, device)),
        catalogue(graph, device) {}
  Graph graph;
  DeviceDescription device;
  Schedule first;
  Catalogue catalogue;
};

inline int64_t parameter(const Schedule& schedule, size_t group, const char* name) {
  const auto found = schedule.groups[group].parameters.find(name);
  return found == schedule.groups[group].parameters.end() ? -1 : found->second;
}

// Fastest with 32 warps and two rows a program, whatever the cost model thinks.
inline double likes_many_warps(const Schedule& schedule) {
  const double warps = std::abs(std::log2(static_cast<double>(parameter(schedule, 0, "num_warps"))) - 5);
  const double rows = std::abs(std::log2(static_cast<double>(parameter(schedule, 0, "x_block"))) - 1);
  return 0.6 + 0.08 * warps + 0.05 * rows;
}

// Blocks of a transformer without attention: library calls with pointwise chains, norms and softmaxes between them.
inline std::string thousand_nodes() {
  std::string text =
      "graph Deep {\n  input %x : f32[2048, 1024] user args.0\n  input %w : f32[1024, 1024] parameter \"w\"\n  input "
      "%g : f32[1024] parameter \"g\"\n";
  std::string last = "x";
  int count = 0;
  const auto node = [&](const std::string& expression) {
    const std::string name = "v" + std::to_string(count++);
    text += "  %" + name + " = " + expression + " : f32[2048, 1024]\n";
    return name;
  };
  while (count < 1000) {
    const std::string m = node("aten.mm.default(self=%" + last + ", mat2=%w)");
    const std::string a = node("aten.gelu.default(self=%" + m + ")");
    const std::string s = node("aten.softmax.int(self=%" + a + ", dim=1)");
    const std::string p = node("aten.mul.Tensor(self=%" + s + ", other=%g)");
    const std::string t = node("aten.tanh.default(self=%" + p + ")");
    const std::string u = node("aten.sigmoid.default(self=%" + last + ")");
    const std::string v = node("aten.add.Tensor(self=%" + t + ", other=%" + u + ")");
    last = node("aten.relu.default(self=%" + v + ")");
  }
  return text + "  return %" + last + "\n}\n";
}

}  // namespace kw::search
