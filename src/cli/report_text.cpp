#include "cli/report_text.hpp"

#include <fmt/format.h>

#include <cmath>

#include "support/text.hpp"

namespace kw::cli {

namespace {

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

std::string noise_lines(const Measurement& made) {
  std::string text;
  for (const std::string& reason : made.noise) text += "  noisy      " + reason + "\n";
  return text;
}

// One digit where that is not zero.
std::string percent(double share) {
  return share < 0.095 ? fmt::format("{:.1g}%", 100 * share) : fmt::format("{:.0f}%", 100 * share);
}

std::string title_of(const std::string& contender) { return contender == "compile" ? "compiled" : contender; }

std::string speedup_text(const Speedup& speedup) {
  const Estimate& ratio = speedup.ratio;
  std::string text = fmt::format(" {:.2f}x  [{:.2f}, {:.2f}]", ratio.value, ratio.low, ratio.high);
  if (speedup.difference == Difference::kFaster) return text;
  if (speedup.difference == Difference::kNone && speedup.detectable >= 1) return text + "  too noisy to tell";
  text += fmt::format("  {}", name_of(speedup.difference));
  if (speedup.difference == Difference::kNone) text += " of " + percent(speedup.detectable) + " or more";
  return text;
}

// ours        1.42 ms  [1.40, 1.45]
// eager       2.10 ms  [2.08, 2.13]   1.48x  [1.45, 1.51]
std::string time_table(const Timing& timing) {
  std::string text;
  for (const Contender one : kContenders) {
    const auto& time = timing.measured.time_ms(one);
    if (!time) continue;
    text += fmt::format("  {:<10} {:>9}  {:<24}", title_of(name_of(one)), milliseconds(time->value),
                        fmt::format("[{}, {}]", milliseconds(time->low), milliseconds(time->high)));
    if (const auto& speedup = timing.measured.speedup_over(one)) text += speedup_text(*speedup);
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  for (const auto& [name, what] : timing.baseline_errors) {
    const auto lines = split_lines(what);
    text += fmt::format("  {:<10} {:>9}  {}\n", title_of(name), "-", lines.empty() ? "failed" : lines.front());
  }
  return text + noise_lines(timing.measured);
}

std::string roofline_line(const Timing& timing) {
  if (!timing.roofline) return "";
  return fmt::format("  roofline   {:.0f}% of what the device can do ({} bound, floor {})\n",
                     100 * timing.roofline->share, timing.roofline->limit, milliseconds(timing.roofline->floor_ms));
}

std::string spills_line(const MachineCode& code) {
  std::string text;
  for (const CompiledKernel& kernel : code.each)
    if (kernel.spills.value_or(0) > 0)
      text += fmt::format("{}{} spills {} bytes of registers a thread", text.empty() ? "  spills     " : ", ",
                          kernel.name, *kernel.spills);
  return text.empty() ? text : text + "\n";
}

std::string kernels_line(const Report& report) {
  if (!report.kernels) return "";
  const Kernels& kernels = *report.kernels;
  std::string text = fmt::format("  kernels    {} of ours", kernels.names.size());
  if (kernels.library_calls) {
    text += fmt::format(", {} library call{}", kernels.library_calls, kernels.library_calls == 1 ? "" : "s");
    std::vector<std::string> ops = kernels.library_ops;
    if (ops.size() > 4) {
      ops.resize(4);
      ops.emplace_back("…");
    }
    if (!ops.empty()) text += " (" + join(ops, ", ") + ")";
  } else {
    text += ", no library calls";
  }
  if (const auto& share = report.timing.share_in_our_kernels)
    text += fmt::format("; {:.0f}% of the time in ours", 100 * *share);
  if (kernels.cuda_graph == true) text += "; run as a CUDA graph";
  return text + "\n" + spills_line(report.compiled.value_or(MachineCode{}));
}

// What calls keep of weights, and what one takes that has to make it again.
std::string kept_line(const Report& report) {
  if (!report.kernels || report.kernels->kept_weight_bytes == 0) return "";
  const auto& times = report.timing.new_weights_ms;
  const auto after_change = std::find_if(times.begin(), times.end(),
                                         [](const auto& time) { return time.first == name_of(Contender::kOurs); });
  return fmt::format(
      "  kept       {:.1f} MiB made of weights{}\n", static_cast<double>(report.kernels->kept_weight_bytes) / (1 << 20),
      after_change == times.end() ? "" : "; a call after they changed takes " + milliseconds(after_change->second));
}

// The draw and output that came nearest to the bound, or went furthest over it.
std::string worst_error(const Report& report) {
  if (!report.errors) return "";
  const JudgedOutput* worst = nullptr;
  for (const JudgedOutput& output : *report.errors)
    if (output.of_bound && (!worst || *output.of_bound > *worst->of_bound)) worst = &output;
  if (!worst) return "";
  return fmt::format(", errors at most {:.0f}% of the bound ({} on the {} draw)", 100 * *worst->of_bound, worst->output,
                     worst->draw);
}

std::string search_line(const Searches& searches) {
  const char* what = searches.search ? "search" : searches.rescue ? "rescue" : "relief";
  const auto& search = searches.search ? searches.search : searches.rescue ? searches.rescue : searches.relief;
  if (!search || !search->speedup) return "";
  return fmt::format("  {}     {:.2f}x the first candidate's speed; {} tried, {} of them known{}\n", what,
                     *search->speedup, search->tried, search->reused,
                     search->is_exhausted ? ", nothing left to try" : "");
}

std::string ratio_text(const std::optional<Estimate>& ratio) {
  return ratio ? fmt::format("{:.2f}x eager's speed [{:.2f}, {:.2f}]", ratio->value, ratio->low, ratio->high) : "";
}

// What comes before all else: slower than eager, or than was asked for, and what would help.
std::string worth_lines(const Report& report) {
  const Worth& worth = report.worth;
  const auto& over_eager = report.timing.measured.speedup_over(Contender::kEager);
  const std::string ratio = ratio_text(over_eager ? std::optional(over_eager->ratio) : std::nullopt);
  const bool written = worth.written.value_or(true);
  std::string text;
  if (worth.beside_eager == Worth::BesideEager::kSlower)
    text += fmt::format("slower     {}{}\n", ratio,
                        !worth.written ? ""
                        : written      ? ": verified, and written"
                                       : ": verified, but not written");
  else if (!written)
    text += fmt::format("too slow   {}, where {:g}x was asked for: verified, but not written\n", ratio,
                        worth.min_speedup);
  else if (worth.lost)
    text += fmt::format("no gain    kernels of ours had {}; the file calls PyTorch's operators\n",
                        ratio_text(worth.lost->ratio));
  for (const Advice& one : worth.advice) text += fmt::format("  try        {}   {}\n", one.command, one.effect);
  return text;
}

// What was judged and timed is not what the file is for.
std::string original_line(const Report& report) {
  if (report.runs_original.empty() || report.failed()) return "";
  return "original   on the problem's own inputs the original module ran, no kernel of the candidate: " +
         report.runs_original + "\n";
}

// Where eager was not timed, nothing is known of the candidate's speed.
std::string untimed_line(const Report& report) {
  const bool is_untimed = report.passed() && report.worth.beside_eager == Worth::BesideEager::kNotTimed;
  return is_untimed ? "  speed      not timed beside eager\n" : "";
}

std::string verdict_line(const Report& report) {
  if (report.emitted()) return "emitted    not run: neither verified nor timed\n";
  if (!report.passed()) return "failed     " + report.reason + "\n";
  return fmt::format("verified   {} draws{}\n", report.draws.value_or(Draws{}).count, worst_error(report));
}

std::string proposer_line(const ProposerOutcome& one, bool kept) {
  std::string text = fmt::format("  proposer   {}: {}", one.proposer, one.verdict);
  if (one.evaluated) text += fmt::format(", {} of {} answers evaluated", *one.evaluated, one.answers.value_or(0));
  else if (one.judged) text += fmt::format(", {} of {} answers", one.passed.value_or(0), *one.judged);
  if (one.ms) text += ", " + milliseconds(*one.ms);
  if (one.speedup_over_scheduler) text += fmt::format(", {:.2f}x the scheduler's speed", *one.speedup_over_scheduler);
  const Tokens tokens = one.tokens.value_or(Tokens{});
  if (tokens.prompt) text += fmt::format(", {} tokens", *tokens.prompt + tokens.completion.value_or(0));
  if (one.cost) text += fmt::format(" for {:.4g}", *one.cost);
  if (one.seconds) text += fmt::format(", took {:.1f} s", *one.seconds);
  return text + (kept ? "  <- kept\n" : "\n");
}

// Who proposed what, where several did.
std::string proposer_lines(const Report& report) {
  std::string text;
  for (const ProposerOutcome& one : report.proposers)
    text += proposer_line(one, one.proposer == report.winner && report.passed());
  return text;
}

std::string notes(const Report& report) {
  std::string text;
  for (const std::string& note : report.notes) text += "  note       " + note + "\n";
  if (report.archive_error) text += "  not stored " + *report.archive_error + "\n";
  return text;
}

std::string unprotected_lines(const Report& report) {
  std::string text;
  if (!report.missing_protections) return text;
  for (const std::string& what : *report.missing_protections) text += "  unprotected " + what + "\n";
  return text;
}

std::string candidate_line(const Report& report) {
  if (report.candidate.empty()) return "";
  return fmt::format("{:<10} {}\n", report.failed() ? "rejected" : "written", report.candidate);
}

std::string seconds_line(const Report& report) { return fmt::format("{:.1f} s\n", report.seconds.total.value_or(0)); }

std::string tokens_lines(const Sampling& sampling) {
  std::string text;
  if (const Tokens& tokens = sampling.tokens; tokens.per_second)
    text += fmt::format("  tokens     {} read, {} written, {:.0f} a second\n", tokens.prompt.value_or(0),
                        tokens.completion.value_or(0), *tokens.per_second);
  if (sampling.cost) text += fmt::format("  cost       {:.4g}\n", *sampling.cost);
  return text;
}

std::string code_lines(const Sampling& sampling) {
  std::string text;
  for (const auto& [code, count] : sampling.codes)
    if (code != "pass") text += fmt::format("  {:>4} x {}\n", count, code);
  return text;
}

// The evaluations that were better than all before, as they came.
std::string improvement_lines(const Report& report) {
  if (!report.searches.search) return "";
  std::string text;
  double best = 1;
  int number = 1;
  for (const SearchTrial& one : report.searches.search->trials) {
    ++number;
    const std::optional<double> ratio = one.measured_ratio();
    if (!ratio || *ratio >= best) continue;
    best = *ratio;
    text += fmt::format("  {:>8}   {:.3f} of the compiler's time{}  {}\n", number, best,
                        report.emitted() ? ", as the cost model has it" : "", one.change);
  }
  if (best == 1 && (!report.edits || report.edits->evaluations != 1))
    text += report.emitted() ? "             none is expected to be faster\n" : "             none was faster\n";
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

}  // namespace

std::string optimize_text(const Report& report) {
  std::string text = worth_lines(report) + verdict_line(report) + untimed_line(report) + time_table(report.timing) +
                     roofline_line(report.timing) + kernels_line(report) + kept_line(report) +
                     search_line(report.searches) + proposer_lines(report) + notes(report) + candidate_line(report);
  if (report.from_archive != true) return text + seconds_line(report);
  return text + fmt::format("This is the archive's answer of {}; --fresh does the work again.\n", report.created);
}

std::string generate_text(const Report& report) {
  const Sampling& sampling = report.sampling;
  std::string text = worth_lines(report) + fmt::format("{} of {} passed", sampling.passed, sampling.judged);
  if (sampling.passed_at_first != sampling.passed)
    text += fmt::format(" ({} without repair)", sampling.passed_at_first);
  if (sampling.pass_at_k)
    for (const auto& [k, share] : *sampling.pass_at_k) text += fmt::format("  pass@{} {:.1f}%", k, 100 * share);
  text += "\n";
  if (sampling.passed > 0 && sampling.best_at_k) {
    text += "  over eager";
    for (const auto& [k, speedup] : *sampling.best_at_k) text += fmt::format("  best@{} {:.2f}x", k, speedup);
    text += "\n";
  }
  text += code_lines(sampling);
  if (!sampling.repairs.empty()) {
    text += "  mended    ";
    for (const auto& [repair, count] : sampling.repairs) text += fmt::format(" {} x {};", count, repair);
    text.back() = '\n';
  }
  text += tokens_lines(sampling);
  text += fmt::format("  overhead   {:.0f} ms a candidate beside model and judge\n", sampling.overhead_ms);
  text += unprotected_lines(report) + time_table(report.timing) + roofline_line(report.timing) + notes(report);
  if (!report.candidate.empty()) text += fmt::format("{:<10} {}\n", "written", report.candidate);
  return text + seconds_line(report);
}

std::string edits_text(const Report& report) {
  const Edits edits = report.edits.value_or(Edits{});
  const Sampling& sampling = report.sampling;
  std::string text = worth_lines(report) + verdict_line(report);
  text += fmt::format("  edits      {} schedules evaluated, the compiler's own the first", edits.evaluations);
  if (sampling.judged)
    text += fmt::format("; {} answers, {} right, of {:.0f} possible in {} kernel{}", sampling.judged, sampling.passed,
                        edits.combinations, edits.groups, edits.groups == 1 ? "" : "s");
  text += "\n" + code_lines(sampling) + improvement_lines(report) + tokens_lines(sampling);
  return text + time_table(report.timing) + roofline_line(report.timing) + notes(report) + candidate_line(report) +
         seconds_line(report);
}

std::string verify_text(const Report& report) {
  const Failure failure = report.failure.value_or(Failure{});
  const Findings found = report.findings.value_or(Findings{});
  std::string text = original_line(report) + verdict_line(report);
  if (!failure.where.empty()) text += "  at " + failure.where + ": " + failure.source + "\n";
  // A compiler's own words are what one has to read; a traceback is for --json.
  if (report.code == "compile-failed") text += first_lines(found.detail, 60);
  if (const auto& gate = found.kernelbench_gate)
    text += fmt::format("  KernelBench's gate (allclose {}): {}\n", gate->atol, gate->ok ? "passes" : "fails");
  return text + unprotected_lines(report) + notes(report) + seconds_line(report);
}

std::string measure_text(const Report& report) {
  return original_line(report) + worth_lines(report) + time_table(report.timing) + roofline_line(report.timing) +
         notes(report);
}

std::string device_text(const DeviceReport& report) {
  const Ceilings& ceilings = report.ceilings;
  std::string text = (ceilings.name.empty() ? "device" : ceilings.name) + "\n";
  const auto line = [&](const std::string& what, const std::optional<double>& value, const char* unit) {
    if (value) text += fmt::format("  {:<18} {}\n", what, rate(*value, unit));
  };
  const auto microseconds = [&](const char* what, const std::optional<double>& seconds) {
    if (seconds) text += fmt::format("  {:<18} {:.2g} us\n", what, *seconds * 1e6);
  };
  line("copy", ceilings.copy_bytes_per_second, "B/s");
  line("read", ceilings.read_bytes_per_second, "B/s");
  for (const auto& [dtype, value] : ceilings.flops) line(dtype + " matrix product", value, "FLOP/s");
  microseconds("kernel launch", ceilings.launch_seconds);
  const Calibration calibration = report.calibration.value_or(Calibration{});
  line("strided reads", calibration.strided_bytes_per_second, "B/s of use");
  line("scattered reads", calibration.gather_bytes_per_second, "B/s of use");
  line("last cache", calibration.cache_bytes_per_second, "B/s");
  line("first cache", calibration.shared_bytes_per_second, "B/s");
  microseconds("synchronisation", calibration.synchronise_seconds);
  if (const auto& share = calibration.sustained_share)
    text += fmt::format("  {:<18} {:.0f} % of the rate of short ones\n", "long products", 100 * *share);
  if (report.from_archive) text += "Measured earlier; --fresh measures again.\n";
  return text;
}

}  // namespace kw::cli
