#include "cli/report_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

bool has_number(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_number();
}

std::string milliseconds(double value) {
  if (value < 0.1) return fmt::format("{:.1f} us", value * 1000);
  if (value < 1000) return fmt::format("{:.3g} ms", value);
  return fmt::format("{:.3g} s", value / 1000);
}

std::string rate(double value, const char* unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t step = 0;
  while (value >= 1000 && step < 5) {
    value /= 1000;
    ++step;
  }
  return fmt::format("{:.3g} {}{}", value, prefixes[step], unit);
}

std::string noise_lines(const Json& report) {
  if (!report.contains("noise") || !report["noise"].value("noisy", false)) return "";
  std::string text;
  for (const Json& reason : report["noise"]["reasons"]) text += "  noisy      " + reason.get<std::string>() + "\n";
  return text;
}

// ours        1.42 ms  [1.40, 1.45]
// eager       2.10 ms  [2.08, 2.13]   1.48x  [1.45, 1.51]
// One digit where that is not zero.
std::string percent(double share) {
  return share < 0.095 ? fmt::format("{:.1g}%", 100 * share) : fmt::format("{:.0f}%", 100 * share);
}

std::string time_table(const Json& report) {
  if (!report.contains("time_ms") || !report["time_ms"].is_object()) return "";
  std::string text;
  const Json none = Json::object();
  const Json& intervals = report.contains("time_interval_ms") ? report["time_interval_ms"] : none;
  for (const auto& [name, median] : report["time_ms"].items()) {
    if (!median.is_number()) continue;
    std::string interval;
    if (intervals.contains(name) && intervals[name].is_array())
      interval = fmt::format("[{}, {}]", milliseconds(intervals[name][0].get<double>()),
                             milliseconds(intervals[name][1].get<double>()));
    text += fmt::format("  {:<10} {:>9}  {:<24}", name == "compile" ? "compiled" : name,
                        milliseconds(median.get<double>()), interval);
    if (report.contains("speedup") && report["speedup"].is_object() &&
        has_number(report["speedup"].value(name, Json()), "value")) {
      const Json& speedup = report["speedup"][name];
      const std::string difference = speedup.value("difference", std::string());
      text += fmt::format(" {:.2f}x  [{:.2f}, {:.2f}]{}", speedup["value"].get<double>(), speedup["low"].get<double>(),
                          speedup["high"].get<double>(), difference == "faster" ? "" : "  " + difference);
      if (difference == "no difference" && has_number(speedup, "detectable"))
        text += " of " + percent(speedup["detectable"].get<double>()) + " or more";
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += "\n";
  }
  if (report.contains("baseline_errors"))
    for (const auto& [name, what] : report["baseline_errors"].items()) {
      const auto lines = split_lines(what.get<std::string>());
      text += fmt::format("  {:<10} {:>9}  {}\n", name == "compile" ? "compiled" : name, "-",
                          lines.empty() ? "failed" : lines.front());
    }
  return text + noise_lines(report);
}

std::string roofline_line(const Json& report) {
  if (!report.contains("roofline") || !report["roofline"].is_object() || !has_number(report["roofline"], "fraction"))
    return "";
  const Json& roofline = report["roofline"];
  return fmt::format("  roofline   {:.0f}% of what the device can do ({} bound, floor {})\n",
                     100 * roofline["fraction"].get<double>(), roofline.value("bound", "memory"),
                     milliseconds(roofline.value("floor_ms", 0.0)));
}

std::string spills_line(const Json& report) {
  std::string text;
  if (!report.contains("compiled") || !report["compiled"].contains("each")) return text;
  for (const Json& kernel : report["compiled"]["each"])
    if (has_number(kernel, "spills") && kernel["spills"] > 0)
      text += fmt::format("{}{} spills {} bytes of registers a thread", text.empty() ? "  spills     " : ", ",
                          kernel.value("name", ""), kernel["spills"].get<int64_t>());
  return text.empty() ? text : text + "\n";
}

std::string kernels_line(const Json& report) {
  if (!report.contains("kernels")) return "";
  const size_t kernels = report["kernels"].size();
  const int calls = report.value("library_calls", 0);
  std::string text = fmt::format("  kernels    {} of ours", kernels);
  if (calls) {
    text += fmt::format(", {} library call{}", calls, calls == 1 ? "" : "s");
    if (report.contains("library_ops") && !report["library_ops"].empty()) {
      std::vector<std::string> ops;
      for (const Json& op : report["library_ops"]) ops.push_back(op.get<std::string>());
      if (ops.size() > 4) {
        ops.resize(4);
        ops.push_back("…");
      }
      text += " (" + join(ops, ", ") + ")";
    }
  } else {
    text += ", no library calls";
  }
  if (has_number(report, "share_in_our_kernels"))
    text += fmt::format("; {:.0f}% of the time in ours", 100 * report["share_in_our_kernels"].get<double>());
  if (report.value("cuda_graph", false)) text += "; run as a CUDA graph";
  return text + "\n" + spills_line(report);
}

// The draw and output that came nearest to the bound, or went furthest over it.
std::string worst_error(const Json& report) {
  if (!report.contains("errors")) return "";
  const Json* worst = nullptr;
  double worst_ratio = -1;
  for (const Json& error : report["errors"]) {
    const double ratio = has_number(error, "of_bound") ? error["of_bound"].get<double>() : -1;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = &error;
    }
  }
  if (!worst) return "";
  return fmt::format("at most {:.0f}% of the bound ({} on the {} draw)", 100 * worst_ratio, worst->value("output", ""),
                     worst->value("draw", ""));
}

std::string search_line(const Json& report) {
  const char* what = report.contains("search") ? "search" : report.contains("rescue") ? "rescue" : "relief";
  if (!report.contains(what) || !has_number(report[what], "speedup")) return "";
  const Json& search = report[what];
  return fmt::format("  {}     {:.2f}x the first candidate's speed; {} tried, {} of them known{}\n", what,
                     search["speedup"].get<double>(), search.value("tried", 0), search.value("reused", 0),
                     search.value("exhausted", false) ? ", nothing left to try" : "");
}

// What comes before all else: slower than eager, or than was asked for, and what would help.
std::string worth_lines(const Json& report) {
  std::string text;
  const auto ratio = [](const Json& speedup) {
    return fmt::format("{:.2f}x eager's speed [{:.2f}, {:.2f}]", speedup["value"].get<double>(),
                       speedup["low"].get<double>(), speedup["high"].get<double>());
  };
  const bool written = report.value("written", true);
  if (report.contains("slower_than_eager") && report["slower_than_eager"] == true)
    text += fmt::format("slower     {}{}\n", ratio(report["speedup"]["eager"]),
                        !report.contains("written") ? ""
                        : written                   ? ": verified, and written"
                                                    : ": verified, but not written");
  else if (!written)
    text += fmt::format("too slow   {}, where {:g}x was asked for: verified, but not written\n",
                        ratio(report["speedup"]["eager"]), report.value("min_speedup", 1.0));
  else if (report.contains("lost") && report["lost"].is_object())
    text += fmt::format("no gain    kernels of ours had {}; the file calls PyTorch's operators\n",
                        ratio(report["lost"]));
  if (report.contains("advice"))
    for (const Json& one : report["advice"])
      text += fmt::format("  try        {}   {}\n", one["command"].get<std::string>(),
                          one["effect"].get<std::string>());
  return text;
}

// What was judged and timed is not what the file is for.
std::string original_line(const Json& report) {
  if (!report.contains("runs_original") || report.value("verdict", "") == "fail") return "";
  return "original   on the problem's own inputs the original module ran, no kernel of the candidate: " +
         report["runs_original"].get<std::string>() + "\n";
}

// Where eager was not timed, nothing is known of the candidate's speed.
std::string untimed_line(const Json& report) {
  if (report.value("verdict", "") != "pass" || !report.contains("slower_than_eager") ||
      !report["slower_than_eager"].is_null())
    return "";
  return "  speed      not timed beside eager\n";
}

std::string verdict_line(const Json& report) {
  const std::string verdict = report.value("verdict", "");
  if (verdict == "emitted") return "emitted    not run: neither verified nor timed\n";
  const size_t draws = report.contains("draws") ? report["draws"].get<size_t>() : 0;
  if (verdict == "pass") {
    std::string text = fmt::format("verified   {} draws", draws);
    if (const std::string worst = worst_error(report); !worst.empty()) text += ", errors " + worst;
    return text + "\n";
  }
  return "failed     " + report.value("reason", "") + "\n";
}

// Who proposed what, where several did.
std::string proposer_lines(const Json& report) {
  if (!report.contains("proposers")) return "";
  std::string text;
  for (const Json& one : report["proposers"]) {
    text += fmt::format("  proposer   {}: {}", one["proposer"].get<std::string>(), one["verdict"].get<std::string>());
    if (one.contains("evaluated"))
      text += fmt::format(", {} of {} answers evaluated", one["evaluated"].get<int>(), one["answers"].get<int>());
    else if (one.contains("judged"))
      text += fmt::format(", {} of {} answers", one["passed"].get<int>(), one["judged"].get<int>());
    if (has_number(one, "ms")) text += ", " + milliseconds(one["ms"].get<double>());
    if (has_number(one, "speedup_over_scheduler"))
      text += fmt::format(", {:.2f}x the scheduler's speed", one["speedup_over_scheduler"].get<double>());
    if (one.contains("tokens"))
      text += fmt::format(", {} tokens", one["tokens"]["prompt"].get<int>() + one["tokens"]["completion"].get<int>());
    if (has_number(one, "cost")) text += fmt::format(" for {:.4g}", one["cost"].get<double>());
    if (has_number(one, "seconds")) text += fmt::format(", took {:.1f} s", one["seconds"].get<double>());
    text += one["proposer"] == report["winner"] && report.value("verdict", "") == "pass" ? "  <- kept\n" : "\n";
  }
  return text;
}

std::string notes(const Json& report) {
  std::string text;
  if (report.contains("notes"))
    for (const Json& note : report["notes"]) text += "  note       " + note.get<std::string>() + "\n";
  if (report.contains("archive_error")) text += "  not stored " + report["archive_error"].get<std::string>() + "\n";
  return text;
}

std::string unprotected_lines(const Json& report) {
  std::string text;
  if (report.contains("sandbox"))
    for (const Json& what : report["sandbox"]["missing"]) text += "  unprotected " + what.get<std::string>() + "\n";
  return text;
}

std::string first_lines(const std::string& text, size_t count) {
  std::vector<std::string> lines = split_lines(text);
  if (lines.size() > count) {
    lines.resize(count);
    lines.push_back("…");
  }
  return lines.empty() ? "" : join(lines, "\n") + "\n";
}

double total_seconds(const Json& report) {
  return report.contains("seconds") && has_number(report["seconds"], "total") ? report["seconds"]["total"].get<double>()
                                                                              : 0;
}

}  // namespace

std::string optimize_text(const Json& report) {
  std::string text = worth_lines(report) + verdict_line(report);
  text += untimed_line(report) + time_table(report) + roofline_line(report) + kernels_line(report) +
          search_line(report) + proposer_lines(report) + notes(report);
  const std::string candidate = report.contains("candidate") && report["candidate"].is_string()
                                    ? report["candidate"].get<std::string>()
                                    : "";
  if (!candidate.empty())
    text += fmt::format("{:<10} {}\n", report.value("verdict", "") == "fail" ? "rejected" : "written", candidate);
  if (report.value("from_archive", false))
    text += fmt::format("This is the archive's answer of {}; --fresh does the work again.\n",
                        report.value("created", ""));
  else text += fmt::format("{:.1f} s\n", total_seconds(report));
  return text;
}

std::string generate_text(const Json& report) {
  const int judged = report.value("judged", 0), passed = report.value("passed", 0);
  std::string text = worth_lines(report) + fmt::format("{} of {} passed", passed, judged);
  if (report.value("passed_at_first", 0) != passed)
    text += fmt::format(" ({} without repair)", report.value("passed_at_first", 0));
  for (const auto& [k, share] : report["pass_at_k"].items())
    text += fmt::format("  pass@{} {:.1f}%", k, 100 * share.get<double>());
  text += "\n";
  if (passed > 0 && report.contains("best_at_k")) {
    text += "  over eager";
    for (const auto& [k, speedup] : report["best_at_k"].items())
      text += fmt::format("  best@{} {:.2f}x", k, speedup.get<double>());
    text += "\n";
  }
  for (const auto& [code, count] : report["codes"].items())
    if (code != "pass") text += fmt::format("  {:>4} x {}\n", count.get<int>(), code);
  if (!report["repairs_made"].empty()) {
    text += "  mended    ";
    for (const auto& [repair, count] : report["repairs_made"].items())
      text += fmt::format(" {} x {};", count.get<int>(), repair);
    text.back() = '\n';
  }
  const Json& tokens = report["tokens"];
  if (has_number(tokens, "per_second"))
    text += fmt::format("  tokens     {} read, {} written, {:.0f} a second\n", tokens["prompt"].get<int>(),
                        tokens["completion"].get<int>(), tokens["per_second"].get<double>());
  if (has_number(report, "cost")) text += fmt::format("  cost       {:.4g}\n", report["cost"].get<double>());
  text += fmt::format("  overhead   {:.0f} ms a candidate beside model and judge\n",
                      report["overhead_ms"]["median"].get<double>());
  text += unprotected_lines(report) + time_table(report) + roofline_line(report) + notes(report);
  if (report["candidate"].is_string())
    text += fmt::format("{:<10} {}\n", "written", report["candidate"].get<std::string>());
  return text + fmt::format("{:.1f} s\n", total_seconds(report));
}

std::string edits_text(const Json& report) {
  std::string text = worth_lines(report) + verdict_line(report);
  const Json& edits = report["edits"];
  const int judged = report.value("judged", 0);
  text += fmt::format("  edits      {} schedules evaluated, the compiler's own the first",
                      edits["evaluations"].get<int>());
  if (judged)
    text += fmt::format("; {} answers, {} right, of {:.0f} possible in {} kernel{}", judged,
                        report["passed"].get<int>(), edits["combinations"].get<double>(), edits["groups"].get<int>(),
                        edits["groups"] == 1 ? "" : "s");
  text += "\n";
  for (const auto& [code, count] : report["codes"].items())
    if (code != "pass") text += fmt::format("  {:>4} x {}\n", count.get<int>(), code);
  if (report.contains("search")) {
    // The evaluations that were better than all before, as they came.
    double best = 1;
    int number = 1;
    for (const Json& one : report["search"]["trials"]) {
      ++number;
      if (!has_number(one, "ratio") || one["state"] != "measured" || one["ratio"].get<double>() >= best) continue;
      best = one["ratio"].get<double>();
      text += fmt::format("  {:>8}   {:.3f} of the compiler's time{}  {}\n", number, best,
                          report.value("verdict", "") == "emitted" ? ", as the cost model has it" : "",
                          one["change"].get<std::string>());
    }
    if (best == 1 && edits["evaluations"] != 1)
      text += report.value("verdict", "") == "emitted" ? "             none is expected to be faster\n"
                                                       : "             none was faster\n";
  }
  const Json& tokens = report["tokens"];
  if (has_number(tokens, "per_second"))
    text += fmt::format("  tokens     {} read, {} written, {:.0f} a second\n", tokens["prompt"].get<int>(),
                        tokens["completion"].get<int>(), tokens["per_second"].get<double>());
  if (has_number(report, "cost")) text += fmt::format("  cost       {:.4g}\n", report["cost"].get<double>());
  text += time_table(report) + roofline_line(report) + notes(report);
  if (report["candidate"].is_string())
    text += fmt::format("{:<10} {}\n", report.value("verdict", "") == "fail" ? "rejected" : "written",
                        report["candidate"].get<std::string>());
  return text + fmt::format("{:.1f} s\n", total_seconds(report));
}

std::string verify_text(const Json& report) {
  std::string text = original_line(report) + verdict_line(report);
  if (const std::string where = report.value("where", ""); !where.empty())
    text += "  at " + where + ": " + report.value("source", "") + "\n";
  // A compiler's own words are what one has to read; a traceback is for --json.
  if (report.value("code", "") == "compile-failed") text += first_lines(report.value("detail", ""), 60);
  if (report.contains("kernelbench_gate") && report["kernelbench_gate"].is_object())
    text += fmt::format("  KernelBench's gate (allclose {}): {}\n", report["kernelbench_gate"].value("atol", 1e-4),
                        report["kernelbench_gate"].value("ok", false) ? "passes" : "fails");
  return text + unprotected_lines(report) + notes(report) + fmt::format("{:.1f} s\n", total_seconds(report));
}

std::string measure_text(const Json& report) {
  return original_line(report) + worth_lines(report) + time_table(report) + roofline_line(report) + notes(report);
}

std::string device_text(const Json& report) {
  std::string text = fmt::format("{}\n", report.value("name", "device"));
  const auto line = [&](const char* what, const Json& value, const char* unit) {
    if (value.is_number()) text += fmt::format("  {:<18} {}\n", what, rate(value.get<double>(), unit));
  };
  line("copy", report.value("copy_bytes_per_second", Json()), "B/s");
  line("read", report.value("read_bytes_per_second", Json()), "B/s");
  if (report.contains("flops"))
    for (const auto& [dtype, value] : report["flops"].items())
      line((dtype + " matrix product").c_str(), value, "FLOP/s");
  if (has_number(report, "launch_seconds"))
    text += fmt::format("  {:<18} {:.2g} us\n", "kernel launch", report["launch_seconds"].get<double>() * 1e6);
  if (report.contains("calibration")) {
    const Json& calibration = report["calibration"];
    line("strided reads", calibration.value("strided_bytes_per_second", Json()), "B/s of use");
    line("scattered reads", calibration.value("gather_bytes_per_second", Json()), "B/s of use");
    line("last cache", calibration.value("cache_bytes_per_second", Json()), "B/s");
    line("first cache", calibration.value("shared_bytes_per_second", Json()), "B/s");
    if (has_number(calibration, "synchronise_seconds"))
      text += fmt::format("  {:<18} {:.2g} us\n", "synchronisation",
                          calibration["synchronise_seconds"].get<double>() * 1e6);
  }
  if (report.value("from_archive", false)) text += "Measured earlier; --fresh measures again.\n";
  return text;
}

}  // namespace kw::cli
