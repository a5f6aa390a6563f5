#include "emit/call_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "emit/python_text.hpp"
#include "support/text.hpp"

namespace kw {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::string& text, const char* empty) { return Json::parse(text.empty() ? empty : text); }

std::string path_text(const Json& path) {
  std::string out;
  for (const Json& step : path)
    out += (out.empty() ? "" : ".") + (step.is_string() ? step.get<std::string>() : step.dump());
  return out;
}

class CallWriter {
 public:
  CallWriter(const Graph& graph)
      : entries_(json_of(graph.call_json, "[]")), signature_(json_of(graph.source_json, "{}")) {
    signature_ = signature_.is_object() && signature_.contains("signature") ? signature_["signature"] : Json::array();
    if (entries_.empty())  // graphs written by hand
      for (const GraphInput& input : graph.inputs)
        if (input.kind == InputKind::kUser) {
          Json path = Json::array({"args", static_cast<int64_t>(entries_.size())});
          entries_.push_back({{"path", path},
                              {"name", input.access.empty() ? graph.values[input.value].name : input.access},
                              {"value", input.value}});
          targets_[path_text(path)] = input.target;
        }
  }

  CallText run() {
    if (!from_signature()) from_call();
    text_.names = own_;
    text_.names.insert({varargs_, varkw_});
    for (const Json& entry : entries_) describe(entry);
    for (const auto& [container, children] : children_)
      text_.obstacles.push_back(fmt::format("len({}) != {}", container, children.size()));
    text_.obstacles.insert(text_.obstacles.end(), constants_.begin(), constants_.end());
    return std::move(text_);
  }

 private:
  // The original's own parameter list, when every default in it can be written down.
  bool from_signature() {
    if (signature_.empty()) return false;
    std::vector<std::string> parameters, passed;
    std::set<std::string> given;
    for (const Json& entry : entries_) given.insert(entry.at("name").get<std::string>());
    bool keyword_only = false;
    int64_t position = 0;
    for (const Json& item : signature_) {
      const std::string name = item.at("name"), kind = item.at("kind");
      if (item.contains("default") && !python::has_literal(item["default"])) return false;
      const std::string text = item.contains("default") ? fmt::format("{}={}", name, python::literal(item["default"]))
                                                        : name;
      if (kind == "varargs") {
        keyword_only = true;
        parameters.push_back("*" + name);
        passed.push_back("*" + name);
        varargs_ = name;
        varargs_from_ = position;
      } else if (kind == "varkw") {
        parameters.push_back("**" + name);
        passed.push_back("**" + name);
        varkw_ = name;
      } else {
        if (kind == "keyword" && !keyword_only) {
          keyword_only = true;
          parameters.push_back("*");
        }
        parameters.push_back(text);
        passed.push_back(kind == "keyword" ? name + "=" + name : name);
        own_.insert(name);
        if (kind != "keyword") by_position_[position++] = name;
        if (!given.contains(name) && item.contains("default"))
          text_.obstacles.push_back(differs(name, item["default"]));
      }
    }
    text_.parameters = join(parameters, ", ");
    text_.passed_on = join(passed, ", ");
    close_overflow();
    return true;
  }

  // Names for what was passed; anything more is not what the kernels were built for.
  void from_call() {
    std::vector<std::string> parameters;
    for (const Json& entry : entries_) {
      const Json& path = entry.at("path");
      if (path.at(0) != "args") continue;
      const int64_t position = path.at(1);
      if (by_position_.contains(position)) continue;
      const std::string name = entry.at("name");
      by_position_[position] = python::is_identifier(name) ? name : fmt::format("argument_{}", position);
      own_.insert(by_position_[position]);
      parameters.push_back(by_position_[position]);
    }
    varargs_ = "args";
    varargs_from_ = static_cast<int64_t>(parameters.size());
    varkw_ = "kwargs";
    parameters.insert(parameters.end(), {"*args", "**kwargs"});
    text_.parameters = text_.passed_on = join(parameters, ", ");
    close_overflow();
  }

  void close_overflow() {
    std::set<std::string> extra;
    int64_t overflow = 0;
    for (const Json& entry : entries_) {
      const Json& path = entry.at("path");
      if (path.at(0) == "args") overflow = std::max(overflow, path.at(1).get<int64_t>() + 1 - varargs_from_);
      else if (!own_.contains(path.at(1).get<std::string>())) extra.insert(path.at(1).get<std::string>());
    }
    if (!varargs_.empty())
      text_.obstacles.push_back(overflow > 0 ? fmt::format("len({}) != {}", varargs_, overflow) : varargs_);
    if (!varkw_.empty()) {
      std::vector<std::string> names;
      for (const std::string& name : extra) names.push_back(python::quoted(name));
      text_.obstacles.push_back(names.empty() ? varkw_ : fmt::format("{}.keys() != {{{}}}", varkw_, join(names, ", ")));
    }
  }

  std::string root(const Json& path) const {
    if (path.at(0) == "args") {
      const int64_t position = path.at(1);
      if (const auto found = by_position_.find(position); found != by_position_.end()) return found->second;
      return fmt::format("{}[{}]", varargs_, position - varargs_from_);
    }
    const std::string name = path.at(1);
    return own_.contains(name) ? name : fmt::format("{}[{}]", varkw_, python::quoted(name));
  }

  void describe(const Json& entry) {
    const Json& path = entry.at("path");
    std::string expression = root(path);
    for (size_t step = 2; step < path.size(); ++step) {
      children_[expression].insert(path[step].dump());
      expression += "[" + path[step].dump() + "]";
    }
    if (entry.contains("constant")) {
      constants_.push_back(
          python::has_literal(entry["constant"])
              ? differs(expression, entry["constant"])
              : fmt::format("repr({}) != {}", expression, entry["constant"].value("repr", Json("")).dump()));
      return;
    }
    const std::string key = path_text(path);
    text_.tensors[targets_.contains(key) ? targets_[key] : key] = expression;
  }

  static std::string differs(const std::string& expression, const Json& constant) {
    const std::string value = python::literal(constant);
    return expression + (constant.is_null() || constant.is_boolean() ? " is not " : " != ") + value;
  }

  Json entries_, signature_;
  CallText text_;
  std::map<std::string, std::string> targets_;
  std::map<int64_t, std::string> by_position_;
  std::set<std::string> own_;
  std::map<std::string, std::set<std::string>> children_;  // of each list, tuple and dict in the call, shorter
                                                           // expressions first
  std::vector<std::string> constants_;
  std::string varargs_, varkw_;
  int64_t varargs_from_ = 0;
};

}  // namespace

CallText call_text(const Graph& graph) { return CallWriter(graph).run(); }

}  // namespace kw
