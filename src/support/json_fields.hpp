// Members of a JSON object that somebody else wrote: what is missing or of another type is as if it were not there.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kw {

// Null where `json` is no object or has no such member.
const nlohmann::ordered_json& member(const nlohmann::ordered_json& json, const char* name);

// The same; empty where it is no array.
const nlohmann::ordered_json& rows_of(const nlohmann::ordered_json& json, const char* name);

std::string text_of(const nlohmann::ordered_json& json, const char* name);  // empty where there is none
bool flag_of(const nlohmann::ordered_json& json, const char* name);         // false where there is none
std::optional<std::string> text_where_told(const nlohmann::ordered_json& json, const char* name);
std::optional<bool> flag_where_told(const nlohmann::ordered_json& json, const char* name);
std::optional<double> figure_of(const nlohmann::ordered_json& json, const char* name);
std::optional<int64_t> count_of(const nlohmann::ordered_json& json, const char* name);
std::vector<std::string> texts_of(const nlohmann::ordered_json& json, const char* name);

// An object of counts, in its order.
std::vector<std::pair<std::string, int64_t>> counts_of(const nlohmann::ordered_json& json, const char* name);

// Objects of figures and of texts, in their order.
std::vector<std::pair<std::string, double>> figures_by_name(const nlohmann::ordered_json& json, const char* name);
std::vector<std::pair<std::string, std::string>> texts_by_name(const nlohmann::ordered_json& json, const char* name);

// An object whose keys are whole numbers.
std::optional<std::map<int, double>> figures_by_number(const nlohmann::ordered_json& json, const char* name);

}  // namespace kw
