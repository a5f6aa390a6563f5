#include "judge/measurement.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/worker_answers.hpp"
#include "support/json_fields.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kWidestInterval = 0.1;  // half of it, of the median: beyond that a figure is said to be noisy

std::vector<double> samples_of(const Json& reply, const char* name) {
  std::vector<double> samples;
  if (reply.contains("samples_ms") && reply["samples_ms"].contains(name))
    for (const Json& sample : reply["samples_ms"][name])
      if (sample.is_number()) samples.push_back(sample.get<double>());
  return samples;
}

}  // namespace

const char* name_of(Contender contender) {
  constexpr std::array names = {"ours", "eager", "compile"};
  return names[static_cast<size_t>(contender)];
}

TimingReply timing_reply_from_json(const Json& json) {
  TimingReply reply;
  static_cast<TimingFacts&>(reply) = timing_facts_from_json(json, "new_weights_ms");
  for (const Contender one : kContenders) reply.samples_ms[static_cast<size_t>(one)] = samples_of(json, name_of(one));
  reply.noise = texts_of(member(json, "noise"), "reasons");
  if (json.contains("untold_ms")) reply.untold_ms = number_of(json["untold_ms"]);
  reply.runs_original = runs_original(json);
  if (json.contains("recheck") && !json["recheck"].value("ok", true))
    reply.recheck_fault = json["recheck"].value("detail", "");
  if (json.contains("timed")) reply.timed = figures_from_json(json["timed"]);
  return reply;
}

Measurement measurement_of(const TimingReply& reply) {
  Measurement made;
  made.noise = reply.noise;
  const std::vector<double>& ours = reply.samples_ms[static_cast<size_t>(Contender::kOurs)];
  for (const Contender one : kContenders) {
    const auto place = static_cast<size_t>(one);
    const std::vector<double>& samples = reply.samples_ms[place];
    if (samples.empty()) continue;
    const Estimate estimate = median_estimate(samples);
    made.times_ms[place] = estimate;
    if (!ours.empty() && one != Contender::kOurs) made.speedups[place] = speedup(samples, ours);
    if (const double half = (estimate.high - estimate.low) / 2; half > kWidestInterval * estimate.value)
      made.noise.push_back(std::string("the 95 % interval of ") +
                           (one == Contender::kCompile ? "torch.compile" : name_of(one)) + "'s median reaches " +
                           std::to_string(std::lround(100 * half / estimate.value)) + " % to either side");
  }
  made.samples = ours.empty() ? reply.samples_ms[static_cast<size_t>(Contender::kEager)].size() : ours.size();
  return made;
}

bool Timing::answers_for(std::string_view baseline) const {
  return std::ranges::any_of(kContenders,
                             [&](Contender one) { return baseline == name_of(one) && measured.time_ms(one); }) ||
         std::ranges::any_of(baseline_errors, [&](const auto& error) { return error.first == baseline; });
}

}  // namespace kw
