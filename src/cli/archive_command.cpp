#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "archive/archive.hpp"
#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "run/output_files.hpp"
#include "judge/measurement.hpp"
#include "run/report_version.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

struct ArchiveArguments {
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

std::string figure(const std::optional<Estimate>& estimate) {
  return estimate ? fmt::format("{:.3g}", estimate->value) : "-";
}

std::string figure(const std::optional<Speedup>& speedup) {
  return figure(speedup ? std::optional(speedup->ratio) : std::nullopt);
}

int list(Archive& archive, const ArchiveArguments& options, Console& console) {
  const auto results = archive.results(options.name_part, options.limit);
  Json rows = Json::array();
  std::string table = fmt::format("{:>5}  {:<32} {:<7} {:<10} {:>9} {:>8} {:>8}  {}\n", "id", "problem", "target",
                                  "policy", "ms", "eager", "compile", "when");
  for (const ResultRecord& result : results) {
    const Json report = parse_or_null(result.report);
    const Measurement made = measurement_from_json(report);
    table += fmt::format("{:>5}  {:<32} {:<7} {:<10} {:>9} {:>7}x {:>7}x  {}\n", result.id, result.problem_name,
                         result.key.target, result.key.policy, figure(made.time_ms(Contender::kOurs)),
                         figure(made.speedup_over(Contender::kEager)), figure(made.speedup_over(Contender::kCompile)),
                         result.created);
    rows.push_back({{"id", result.id},
                    {"problem", result.problem_name},
                    {"target", result.key.target},
                    {"policy", result.key.policy},
                    {"problem_hash", result.key.problem},
                    {"candidate_hash", result.candidate},
                    {"created", result.created},
                    {"report", report}});
  }
  if (results.empty() && !options.name_part.empty())
    throw Error(ErrorKind::kUser,
                "the archive holds no result of a problem whose name contains \"" + options.name_part + "\".",
                "`kw archive list` shows what there is.");
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
          {"problem",
           {{"name", result.problem_name},
            {"hash", result.key.problem},
            {"source", archive.problem_source(result.key.problem)}}},
          {"candidate", {{"hash", result.candidate}, {"source", archive.candidate_source(result.candidate)}}},
          {"environment", parse_or_null(archive.environment_description(result.key.environment))},
          {"verdict", parse_or_null(archive.verdict_figures(result.verdict))},
          {"measurement", parse_or_null(archive.measurement_samples(result.measurement))},
          {"report", parse_or_null(result.report)}};
}

int show(Archive& archive, const ArchiveArguments& options, Console& console) {
  const auto result = archive.result(options.id);
  if (!result)
    throw Error(ErrorKind::kUser, "the archive holds no result \"" + options.id + "\".",
                "`kw archive list` shows what there is.");
  if (options.source) {
    console.print(archive.candidate_source(result->candidate));
  } else {
    console.print(fmt::format(
        "result     {}  of {}\nproblem    {}  {}\ncandidate  {}\ntarget     {}   policy {}   emitter {}\nreport\n{}",
        result->id, result->created, result->problem_name, result->key.problem, result->candidate, result->key.target,
        result->key.policy, result->key.emitter, parse_or_null(result->report).dump(2)));
  }
  if (console.wants_json()) console.write_json(full_record(archive, *result));
  return kGood;
}

// One line an answer: the conversation as it would be trained on, and what of it was worth how much.
Json training_record(Archive& archive, const JudgedCompletion& one) {
  const Json request = parse_or_null(one.completion.request),
             record = one.judged ? parse_or_null(one.judgement.record) : Json();
  Json messages = request.is_object() && request.contains("messages") ? request["messages"] : Json::array();
  if (request.is_object() && request.contains("prompt"))
    messages.push_back({{"role", "raw"}, {"content", request["prompt"]}});
  messages.push_back({{"role", "assistant"}, {"content", one.completion.text}});
  Json line = {{"problem", one.completion.problem},
               {"run", one.completion.run},
               {"sample", one.completion.sample},
               {"turn", one.completion.turn},
               {"model", one.completion.model},
               {"created", one.completion.created},
               {"messages", messages},
               {"request", request},
               {"usage", parse_or_null(one.completion.usage)},
               {"judged", one.judged}};
  line["request"].erase("messages");
  line["request"].erase("prompt");
  if (!one.judged || !record.is_object()) return line;
  // From "is there code" to "is it right": each step needs the one before.
  const bool ran = record.value("ran", false), same = record.value("same_as_before", false);
  line["reward"] = {{"has_candidate", !one.judgement.candidate.empty()},
                    {"ran", ran || same},
                    {"passed", one.judgement.passed},
                    {"repairs", record.value("repairs", Json::array()).size()}};
  line["verdict"] = {{"code", record.value("code", "")},
                     {"reason", record.value("reason", "")},
                     {"errors", record.value("errors", Json())},
                     {"repairs", record.value("repairs", Json())},
                     {"seconds", record.value("seconds", Json())}};
  line["candidate"] = one.judgement.candidate.empty() ? Json()
                                                      : Json(archive.candidate_source(one.judgement.candidate));
  return line;
}

int export_completions(Archive& archive, const ArchiveArguments& options, Console& console) {
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

int export_all(Archive& archive, const ArchiveArguments& options, Console& console) {
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
  auto options = std::make_shared<ArchiveArguments>();
  app.require_subcommand(1);
  CLI::App* list_app = app.add_subcommand("list", "List the results, newest first");
  list_app->add_option("NAME", options->name_part, "Only problems whose name contains this")->default_str("all");
  list_app->add_option("--limit", options->limit, "Show at most this many")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 53))
      ->type_name("N")
      ->group(kInputOutput);
  list_app->footer("$ kw archive list softmax --limit 10");
  CLI::App* show_app = app.add_subcommand("show", "Show one result: its report, or its source");
  show_app
      ->add_option("ID", options->id,
                   "Its number in `kw archive list`, or the start of a candidate's or problem's hash")
      ->required();
  show_app->add_flag("--source", options->source, "Print the source of the module and nothing else")
      ->group(kInputOutput);
  show_app->footer("$ kw archive show 3 --source > model_kw.py");
  CLI::App* export_app = app.add_subcommand("export", "Write everything, one JSON line a result");
  export_app->add_option("FILE", options->export_path, "Where to write it; - is standard output")
      ->capture_default_str()
      ->check(a_name);
  export_app
      ->add_flag("--completions", options->completions,
                 "Write what language models answered instead, with the verdicts, one JSON line an answer")
      ->group(kInputOutput);
  export_app->footer("$ kw archive export results.jsonl\n$ kw archive export --completions training.jsonl");
  CLI::App* aside_app = app.add_subcommand("move-aside", "Rename a damaged archive, so that a new one is started");
  aside_app->footer(
      "Nothing is deleted: the archive and its write-ahead log get a new name beside the old one.\n"
      "$ kw archive move-aside");
  // --json and --quiet may follow the inner command as well.
  for (CLI::App* inner : {list_app, show_app, export_app, aside_app}) inner->fallthrough();

  invocation.files = [options, export_app](CommandFiles& files) {
    if (export_app->parsed() && options->export_path != "-") files.writes_json(options->export_path, "the export");
  };
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
