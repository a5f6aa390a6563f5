#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "capi/kernelwright.h"
#include "capture/reader.hpp"
#include "judge/environment.hpp"
#include "llm/prompts.hpp"
#include "plan/schedule_json.hpp"
#include "propose/compile.hpp"
#include "run/report_parts.hpp"
#include "support/error.hpp"
#include "support/error_json.hpp"
#include "support/json_fields.hpp"
#include "targets/targets.hpp"

namespace {

using namespace kw;
using Json = nlohmann::ordered_json;

char* copy_out(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  char* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out) std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

// Runs `body` and turns whatever it throws into an error document: nothing may unwind through C.
template <typename Body>
char* answer(const char* request, Body&& body) noexcept {
  try {
    try {
      Json json = Json::parse(request ? request : "", nullptr, false);
      if (json.is_discarded()) throw Error(ErrorKind::kUser, "the request is not JSON.");
      return copy_out(body(json));
    } catch (const Error& error) { return copy_out({{"error", to_json(error)}}); } catch (const std::exception& error) {
      return copy_out({{"error", to_json(Error(ErrorKind::kInternal, error.what()))}});
    }
  } catch (...) {
    return nullptr;  // out of memory
  }
}

Caution caution_of(const std::string& name) {
  for (const Caution caution : kCautions)
    if (name_of(caution) == name) return caution;
  throw Error(ErrorKind::kUser, "there is no caution \"" + name + "\".",
              "Use fused, exact-products, library-products, no-graphs, library-random, unfused or library.");
}

// `card`: the GPU that the caller has, as the worker's protocol describes it; null where it has none.
DeviceDescription device_of(const Target& target, const Json& card) {
  DeviceDescription device = target.default_device();
  if (card.is_object()) target.look_at(device, {}, card);
  return device;
}

Json compile_request(const Json& request) {
  CompileOptions options;
  options.device = device_of(target_named(request.value("target", "cpu")), member(request, "card"));
  options.caution = caution_of(request.value("caution", "fused"));
  options.graphs = graph_use_of(request.value("graphs", "off"));
  options.passes.disabled = request.value("disabled_passes", std::vector<std::string>{});
  options.problem_name = request.value("problem_name", "");
  options.problem_source = request.value("problem_source", "");
  Compiled compiled = compile(read_graph(request.at("graph").dump()), options);
  if (request.contains("schedule"))
    compiled = with_schedule(compiled, schedule_from_json(request.at("schedule").dump()), options);
  Json seconds = Json::object();
  for (const auto& [stage, time] : compiled.seconds) seconds[stage] = time;
  return {{"source", compiled.source},
          {"kernels", compiled.kernels},
          {"library_calls", compiled.library_calls},
          {"library_ops", compiled.library_ops},
          {"cuda_graph", compiled.program.graphs},
          {"kept_weight_bytes", compiled.kept_weight_bytes},
          {"schedule", Json::parse(request.value("kernel_schedules", false) ? whole_schedule(compiled)
                                                                            : schedule_to_json(compiled.schedule))},
          {"seconds", seconds}};
}

Json prompt_request(const Json& request) {
  const llm::PromptFacts facts{.language = language_of(target_named(request.value("target", "triton"))),
                               .problem = request.at("problem"),
                               .hardware = request.value("hardware", ""),
                               .examples = {},
                               .shots = request.value("shots", 1)};
  const llm::Prompt prompt = llm::fill(llm::load_template(request.value("template", "chat")), facts, 0,
                                       [](const llm::Prompt&) { return 0; })
                                 .prompt;
  if (prompt.messages.empty()) return {{"raw", prompt.raw}};
  Json messages = Json::array();
  for (const llm::Message& message : prompt.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return {{"messages", messages}};
}

}  // namespace

char* kw_prompt(const char* request) { return answer(request, prompt_request); }

char* kw_compile(const char* request) { return answer(request, compile_request); }

char* kw_judge(const char* request) {
  return answer(request, [](const Json& json) {
    Report report;
    add_judgement(report, judgement_of(json.at("figures"), policy_of(json.value("policy", "reference"))));
    return to_json(report);
  });
}

char* kw_summarise(const char* reply) {
  return answer(reply, [](const Json& json) {
    Report report;
    add_measurement(report, timing_reply_from_json(json));
    return to_json(report);
  });
}

const char* kw_version(void) { return KW_VERSION; }

void kw_free(char* text) { std::free(text); }
