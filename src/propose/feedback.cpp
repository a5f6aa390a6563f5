#include "propose/feedback.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/text.hpp"

namespace kw {

namespace {

constexpr size_t kMostLines = 24, kMostBytes = 2400, kMostOutputs = 4;

std::string first_lines(const std::string& text, bool from_the_end) {
  std::vector<std::string> lines = split_lines(text);
  if (lines.size() > kMostLines) {
    if (from_the_end) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMostLines));
    else lines.resize(kMostLines);
  }
  const std::string joined = join(lines, "\n");
  return joined.size() <= kMostBytes ? joined
         : from_the_end              ? joined.substr(joined.size() - kMostBytes)
                                     : joined.substr(0, kMostBytes);
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string sizes(const std::vector<int64_t>& sizes) { return fmt::format("[{}]", fmt::join(sizes, ",")); }

std::string kind_of_draw(const std::string& kind) {
  if (kind == "generator") return "on the problem's own inputs";
  if (kind == "signed") return "on normally distributed inputs of either sign";
  if (kind == "wide") return "on inputs of very different magnitudes";
  if (kind == "constant") return "on inputs that are all equal";
  return "on inputs strewn with zeros, infinities, NaN and the largest numbers";
}

// "output[0] on …: shape [8, 4] and should be [8, 8]", or how far off, and where the worst element stands.
std::string line_about(const OutputFigures& output, const std::string& draw) {
  const OutputForm &ours = output.form, &expected = output.expected;
  std::string text = "- " + output.name + " " + kind_of_draw(draw) + ": ";
  if (!output.shape_ok) return text + "shape " + sizes(ours.shape) + ", and should be " + sizes(expected.shape);
  if (!output.dtype_ok) return text + ours.dtype + ", and should be " + expected.dtype;
  if (!output.strides_ok) return text + "strides " + sizes(ours.strides) + ", and should be " + sizes(expected.strides);
  text += "relative error " + number(output.ours.norm) + " (PyTorch's own is " + number(output.eager.norm) + ")";
  if (output.exact) text += ", " + number(static_cast<double>(output.mismatches)) + " elements differ";
  if (!output.nonfinite_ok)
    text += ", " + number(static_cast<double>(output.nonfinite_mismatches)) +
            " elements are infinite or NaN where they should not be, or the reverse";
  return text + "; worst at " + sizes(output.worst.index) + ", which is " + number(output.worst.ours) +
         " and should be " + number(output.worst.reference);
}

bool failed(const Verdict& verdict, const std::string& output, size_t draw) {
  for (const OutputVerdict& row : verdict.errors)
    if (row.output == output && static_cast<size_t>(row.draw_index) == draw) return !row.fault.empty();
  return false;
}

}  // namespace

Feedback feedback_on(const llm::Fault& fault) {
  return {fault.message, fault.evidence.empty() ? "" : "```\n" + fault.evidence + "\n```"};
}

Feedback feedback_on(const Judgement& judgement) {
  const Verdict& verdict = judgement.verdict;
  Feedback feedback{"ModelNew is not right: " + verdict.reason, ""};
  if (judgement.figures) {
    const std::vector<DrawFigures>& draws = judgement.figures->draws;
    size_t shown = 0;
    for (size_t draw = 0; draw < draws.size(); ++draw)
      for (const OutputFigures& output : draws[draw].outputs)
        if (failed(verdict, output.name, draw) && shown++ < kMostOutputs)
          feedback.evidence += line_about(output, draws[draw].kind) + "\n";
    for (const Check& check : verdict.checks)
      if (!check.ok) feedback.evidence += "- " + check.name + ": " + check.detail + "\n";
    while (feedback.evidence.ends_with('\n')) feedback.evidence.pop_back();
    return feedback;
  }
  if (!judgement.source.empty())
    feedback.evidence = "At " + judgement.where + ":\n```\n" + judgement.source + "\n```\n";
  if (!verdict.detail.empty())
    feedback.evidence += "```\n" + first_lines(verdict.detail, verdict.code != "compile-failed") + "\n```";
  return feedback;
}

Feedback feedback_on_times(const Timing& timing) {
  const auto& ours = timing.measured.time_ms(Contender::kOurs);
  if (!ours) return {};
  Feedback feedback{fmt::format("ModelNew is right, and takes {:.4g} ms", ours->value), ""};
  const auto& eager = timing.measured.time_ms(Contender::kEager);
  const auto& speedup = timing.measured.speedup_over(Contender::kEager);
  if (eager && speedup)
    feedback.what += fmt::format("; PyTorch takes {:.4g} ms, {:.2f} times as long", eager->value, speedup->ratio.value);
  feedback.what += ".";
  if (const auto& line = timing.roofline)
    feedback.what += fmt::format(" The device could do this work in {:.4g} ms, bound by {}: {:.0f}% is reached.",
                                 line->floor_ms,
                                 line->limit == "memory"    ? "its memory"
                                 : line->limit == "compute" ? "its arithmetic"
                                                            : "the launch of a kernel",
                                 100 * line->share);
  if (!timing.profile.empty()) feedback.evidence = "What the time goes to:";
  for (const ProfilePart& part : timing.profile)
    feedback.evidence += fmt::format("\n- {:.0f}% {}{}", 100 * part.share, part.name,
                                     part.is_library() ? " (the library's)" : "");
  return feedback;
}

}  // namespace kw
