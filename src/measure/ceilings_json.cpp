#include <nlohmann/json.hpp>

#include "measure/ceilings.hpp"
#include "support/json_fields.hpp"
#include "support/json_write.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

namespace {

// One table for both directions: `field(name, value)` for each figure.
template <typename Figures, typename Field>
void each_field(Figures& calibration, const Field& field) {
  field("strided_bytes_per_second", calibration.strided_bytes_per_second);
  field("gather_bytes_per_second", calibration.gather_bytes_per_second);
  field("cache_bytes_per_second", calibration.cache_bytes_per_second);
  field("shared_bytes_per_second", calibration.shared_bytes_per_second);
  field("launch_seconds", calibration.launch_seconds);
  field("synchronise_seconds", calibration.synchronise_seconds);
  field("sustained_share", calibration.sustained_share);
}

}  // namespace

Json to_json(const Ceilings& ceilings) {
  Json json = Json::object(), flops = Json::object();
  for (const auto& [precision, rate] : ceilings.flops) flops[precision] = or_null(rate);
  put_text(json, "name", ceilings.name);
  put(json, "copy_bytes_per_second", ceilings.copy_bytes_per_second);
  put(json, "read_bytes_per_second", ceilings.read_bytes_per_second);
  if (!flops.empty()) json["flops"] = std::move(flops);
  put(json, "launch_seconds", ceilings.launch_seconds);
  put(json, "threads", ceilings.threads);
  return json;
}

Json to_json(const Calibration& calibration) {
  Json json = Json::object();
  each_field(calibration, [&](const char* name, const auto& value) { put(json, name, value); });
  return json;
}

Ceilings ceilings_from_json(const Json& json) {
  Ceilings ceilings{.name = text_of(json, "name"),
                    .copy_bytes_per_second = figure_of(json, "copy_bytes_per_second"),
                    .read_bytes_per_second = figure_of(json, "read_bytes_per_second"),
                    .flops = {},
                    .launch_seconds = figure_of(json, "launch_seconds"),
                    .threads = count_of(json, "threads")};
  if (const Json& flops = member(json, "flops"); flops.is_object())
    for (const auto& [precision, rate] : flops.items())
      ceilings.flops.emplace_back(precision, rate.is_number() ? std::optional(rate.get<double>()) : std::nullopt);
  return ceilings;
}

Calibration calibration_from_json(const Json& json) {
  Calibration calibration;
  each_field(calibration, [&](const char* name, auto& value) { value = figure_of(json, name); });
  return calibration;
}

std::optional<Ceilings> ceilings_from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(ceilings_from_json(json)) : std::nullopt;
}

std::optional<Calibration> calibration_from_text(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? std::optional(calibration_from_json(json)) : std::nullopt;
}

}  // namespace kw
