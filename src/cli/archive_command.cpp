#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "cli/commands.hpp"
#include "driver/report_version.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string name_part;
  int64_t limit = 50;
  std::string id;
  bool source = false;
  std::string export_path = "-";
  bool completions = false;
};

Json parse_or_null(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json() : json;
}

std::string figure(const Json& report, const char* group, const char* name) {
  if (!report.contains(group) || !report[group].is_object() || !report[group].contains(name)) return "-";
  const Json& value = report[group][name];
  const Json& number = value.is_object() && value.contains("value") ? value["value"] : value;
  return number.is_number() ? fmt::format("{:.3g}", number.get<double>()) : "-";
}

int list(Archive& archive, const Options& options, Console& console) {
  const auto results = archive.results(options.name_part, options.limit);
  Json rows = Json::array();
  std::string table = fmt::format("{:>5}  {:<32} {:<7} {:<10} {:>9} {:>8} {:>8}  {}\n", "id", "problem", "target", "policy", "ms", "eager", "compile", "when");
  for (const ResultRecord& result : results) {
    const Json report = parse_or_null(result.report);
    table += fmt::format("{:>5}  {:<32} {:<7} {:<10} {:>9} {:>7}x {:>7}x  {}\n", result.id, result.problem_name, result.key.target, result.key.policy,
                         figure(report, "time_ms", "ours"), figure(report, "speedup", "eager"), figure(report, "speedup", "compile"), result.created);
    rows.push_back({{"id", result.id}, {"problem", result.problem_name}, {"target", result.key.target}, {"policy", result.key.policy},
                    {"problem_hash", result.key.problem}, {"candidate_hash", result.candidate}, {"created", result.created}, {"report", report}});
  }
  if (results.empty()) table = "The archive " + archive.path() + " holds no results yet.\n";
  console.print(table);
  console.write_json({{"version", kReportVersion}, {"archive", archive.path()}, {"results", rows}});
  return kGood;
}

Json full_record(Archive& archive, const ResultRecord& result) {
  return {{"id", result.id},
          {"created", result.created},
          {"target", result.key.target},
          {"policy", result.key.policy},
          {"emitter", result.key.emitter},
          {"problem", {{"name", result.problem_name}, {"hash", result.key.problem}, {"source", archive.problem_source(result.key.problem)}}},
          {"candidate", {{"hash", result.candidate}, {"source", archive.candidate_source(result.candidate)}}},
          {"environment", parse_or_null(archive.environment_description(result.key.environment))},
          {"verdict", parse_or_null(archive.verdict_figures(result.verdict))},
          {"measurement", parse_or_null(archive.measurement_samples(result.measurement))},
          {"report", parse_or_null(result.report)}};
}

int show(Archive& archive, const Options& options, Console& console) {
  const auto result = archive.result(options.id);
  if (!result)
    throw Error(ErrorKind::kUser, "the archive holds no result \"" + options.id + "\".", "`kw archive list` shows what there is.");
  if (options.source) {
    console.print(archive.candidate_source(result->candidate));
  } else {
    console.print(fmt::format("result     {}  of {}\nproblem    {}  {}\ncandidate  {}\ntarget     {}   policy {}   emitter {}\nreport\n{}", result->id,
                              result->created, result->problem_name, result->key.problem, result->candidate, result->key.target,
                              result->key.policy, result->key.emitter, parse_or_null(result->report).dump(2)));
  }
  if (console.wants_json()) console.write_json(full_record(archive, *result));
  return kGood;
}

// One line an answer: the conversation as it would be trained on, and what of it was worth how much.
Json training_record(Archive& archive, const JudgedCompletion& one) {
  const Json request = parse_or_null(one.completion.request), record = one.judged ? parse_or_null(one.judgement.record) : Json();
  Json messages = request.is_object() && request.contains("messages") ? request["messages"] : Json::array();
  if (request.is_object() && request.contains("prompt")) messages.push_back({{"role", "raw"}, {"content", request["prompt"]}});
  messages.push_back({{"role", "assistant"}, {"content", one.completion.text}});
  Json line = {{"problem", one.completion.problem}, {"run", one.completion.run}, {"sample", one.completion.sample}, {"turn", one.completion.turn}, {"model", one.completion.model}, {"created", one.completion.created},
               {"messages", messages}, {"request", request}, {"usage", parse_or_null(one.completion.usage)}, {"judged", one.judged}};
  line["request"].erase("messages");
  line["request"].erase("prompt");
  if (!one.judged || !record.is_object()) return line;
  // From "is there code" to "is it right": each step needs the one before.
  const bool ran = record.value("ran", false), same = record.value("same_as_before", false);
  line["reward"] = {{"has_candidate", !one.judgement.candidate.empty()}, {"ran", ran || same}, {"passed", one.judgement.passed}, {"repairs", record.value("repairs", Json::array()).size()}};
  line["verdict"] = {{"code", record.value("code", "")}, {"reason", record.value("reason", "")}, {"errors", record.value("errors", Json())}, {"repairs", record.value("repairs", Json())}, {"seconds", record.value("seconds", Json())}};
  line["candidate"] = one.judgement.candidate.empty() ? Json() : Json(archive.candidate_source(one.judgement.candidate));
  return line;
}

int export_completions(Archive& archive, const Options& options, Console& console) {
  std::string lines;
  size_t count = 0;
  archive.each_completion([&](const JudgedCompletion& one) {
    lines += training_record(archive, one).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    ++count;
  });
  if (options.export_path != "-") {
    write_file_atomically(options.export_path, lines);
    console.note(fmt::format("{} completions written to {}", count, options.export_path));
  } else if (!lines.empty()) {
    std::fwrite(lines.data(), 1, lines.size(), stdout);
  }
  return kGood;
}

int export_all(Archive& archive, const Options& options, Console& console) {
  std::string lines;
  const auto results = archive.results("", INT64_MAX);
  for (auto result = results.rbegin(); result != results.rend(); ++result)
    lines += full_record(archive, *result).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (options.export_path != "-") {
    write_file_atomically(options.export_path, lines);
    console.note(fmt::format("{} results written to {}", results.size(), options.export_path));
  } else if (!lines.empty()) {
    std::fwrite(lines.data(), 1, lines.size(), stdout);
  }
  return kGood;
}

}  // namespace

void define_archive(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);
  CLI::App* list_app = app.add_subcommand("list", "Results, newest first");
  list_app->add_option("NAME", options->name_part, "Only problems whose name contains this");
  list_app->add_option("--limit", options->limit, "At most this many")->capture_default_str()->check(CLI::PositiveNumber);
  CLI::App* show_app = app.add_subcommand("show", "One result");
  show_app->add_option("ID", options->id, "Its number in `kw archive list`, or the start of a candidate's or problem's hash")->required();
  show_app->add_flag("--source", options->source, "Print the candidate's source only");
  CLI::App* export_app = app.add_subcommand("export", "Everything, one JSON line a result");
  export_app->add_option("FILE", options->export_path, "Where to; standard output for -")->capture_default_str();
  export_app->add_flag("--completions", options->completions, "What language models wrote instead, one JSON line an answer");
  CLI::App* aside_app = app.add_subcommand("move-aside", "Rename the archive, so that a new one is started; for a damaged one");
  // --json and --quiet may follow the inner command as well.
  for (CLI::App* inner : {list_app, show_app, export_app, aside_app}) inner->fallthrough();

  invocation.run = [options, list_app, show_app, export_app](Console& console) {
    if (list_app->parsed() || show_app->parsed() || export_app->parsed()) {
      Archive archive;
      if (list_app->parsed()) return list(archive, *options, console);
      if (show_app->parsed()) return show(archive, *options, console);
      if (options->completions) return export_completions(archive, *options, console);
      return export_all(archive, *options, console);
    }
    console.print("moved to " + move_archive_aside(Archive::default_path()));
    return kGood;
  };
}

}  // namespace kw::cli
