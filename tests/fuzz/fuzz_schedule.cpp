// The JSON of a schedule, which people and other versions hand in: read, written again, and lowered for a small graph.
// One that is read may still be refused as the user's.
#include "ir/text.hpp"
#include "plan/plan.hpp"
#include "plan/schedule_json.hpp"
#include "targets/targets.hpp"
#include "reads.hpp"

namespace {

const kw::Graph& small_graph() {
  static const kw::Graph graph = kw::parse_graph(R"(graph G {
    input %x : f32[64, 4096] user args.0
    %out = aten.relu.default(self=%x) : f32[64, 4096]
    %sum = aten.sum.dim_IntList(self=%out, dim=[1]) : f32[64]
    return %sum
  })");
  return graph;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return kw::fuzz(data, size, [](std::string_view text) {
    const kw::Schedule schedule = kw::schedule_from_json(text);
    const std::string json = kw::schedule_to_json(schedule);
    kw::require(kw::schedule_to_json(kw::schedule_from_json(json)) == json, "a written schedule reads back as another");
    for (const char* target : {"triton", "cpu"})
      if (schedule.target == target) kw::lower(small_graph(), schedule, kw::default_device(target));
  });
}
