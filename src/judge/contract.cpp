#include "judge/contract.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/error.hpp"

namespace kw {

namespace {

// Units of the output's epsilon that anyone may err by: the final rounding and a handful of operations. In an output of
// 16 or 8 bits that is work in fp32, and its own rounding is in eager's error already: four of its units would hide
// that the work was done in 16 bits. The norm of many roundings is a quarter of a unit or less, that of one is the
// rounding itself: between them it falls with the root of their number.
constexpr double kFreeUnits = 4.0;
constexpr double kWorkEpsilon = 1.1920928955078125e-07;
constexpr RelativeError kNarrowUnits = {0.25, 1.0};
constexpr double kTimesEager = 2.0;

// What one accumulator may be off by in the worst element where so many terms are summed: half a unit for the root of
// their number (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). Sums longer than
// that are split among threads, lanes or blocks. The norm, in which such errors average out, stays where it is: it is
// what tells coarser products.
constexpr double kMostSummands = 1024.0;

// Elements of one size (a factor of 16) are held to eager's errors among elements of that size or its neighbours, so
// that nothing small hides behind something large. The rule is for what is left out, not for how sums are ordered: a
// wide factor, and what a double output's own units and underflow allow.
constexpr double kBucketTimesEager = 16.0;
constexpr double kBucketUnits = 8.0;
constexpr double kBucketWidth = 16.0;

// Of a bucket half of which a candidate leaves out, eager may know no digit: it answers zero below half of the spacing
// s of its intermediate results and errs by s / √12, which is a half of such elements or more. What it knows to an
// eighth has another spacing in the candidate, eight times as wide, or none: it was never computed. Fewer values than
// these may be luck, of which eager's moved runs tell twice as much.
constexpr double kKnownPart = 1.0 / 8;
constexpr double kMovedPart = 1.0 / 4;
constexpr int64_t kLeastLeftOut = 8;

// Under `relaxed`: a few units of bfloat16's rounding, the coarsest product allowed.
constexpr double kRelaxedError = 1.0 / 128;

// Checks that explain whatever else is wrong, so they come first as the reason.
constexpr std::string_view kRootCauses[] = {"guard-bands"};

bool within(double error, double bound) { return !std::isnan(error) && error <= bound; }

// What eager alone as the reference can vouch for, by the output's precision.
double weak_tolerance(double epsilon) {
  if (epsilon > 1e-4) return 1e-2;
  return epsilon > 1e-10 ? 1e-4 : 1e-8;
}

std::string shape_text(const std::vector<int64_t>& sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

std::string position_text(const WorstElement& worst) {
  return worst.index.empty()
             ? ""
             : fmt::format(" (at {}: {:.6g} instead of {:.6g})", shape_text(worst.index), worst.ours, worst.reference);
}

struct Fault {
  std::string code, sentence;
};

// What is wrong with the form of an output, before any number in it is looked at.
std::optional<Fault> form_fault(const OutputFigures& output, const std::string& place) {
  const OutputForm &ours = output.form, &expected = output.expected;
  if (!output.dtype_ok)
    return Fault{"dtype", fmt::format("{} has dtype {} where Model's has {}.", place, ours.dtype,
                                      expected.dtype.empty() ? "another" : expected.dtype)};
  if (!output.shape_ok)
    return Fault{"shape", fmt::format("{} has shape {} where Model's has {}.", place, shape_text(ours.shape),
                                      shape_text(expected.shape))};
  if (!output.device_ok) return Fault{"device", fmt::format("{} is on another device than Model's.", place)};
  if (!output.strides_ok)
    return Fault{"strides", ours.strides.empty() ? fmt::format("{} has other strides than Model's.", place)
                                                 : fmt::format("{} has strides {} where Model's has {}.", place,
                                                               shape_text(ours.strides), shape_text(expected.strides))};
  return std::nullopt;
}

// Steps that rounding decides: no more of them than eager misses, as the bound of floats has it, and each one that
// eager takes when it rounds otherwise.
bool are_steps_of_rounding(const OutputFigures& output) {
  return static_cast<double>(output.mismatches) <= kTimesEager * static_cast<double>(output.eager_mismatches) &&
         output.unexplained == 0;
}

std::optional<Fault> value_fault(const OutputFigures& output, const OutputVerdict& verdict, const std::string& place,
                                 bool weak_reference) {
  if (output.exact) {
    if (output.mismatches == 0 || are_steps_of_rounding(output)) return std::nullopt;
    return Fault{"mismatch", fmt::format("{} differs from the reference in {} elements where eager does not{}.", place,
                                         output.mismatches, position_text(output.worst))};
  }
  if (!output.nonfinite_ok) {
    const int64_t count = output.nonfinite_mismatches;
    return Fault{"nonfinite", fmt::format("{} has NaN or infinity in other places than eager and the reference{}.",
                                          place, count ? fmt::format(", in {} elements", count) : "")};
  }
  const bool norm_ok = within(verdict.ours.norm, verdict.bound.norm);
  if (norm_ok && within(verdict.ours.max, verdict.bound.max)) return std::nullopt;
  const char* sense = norm_ok ? "max-relative" : "norm-relative";
  const double ours = norm_ok ? verdict.ours.max : verdict.ours.norm;
  const double eager = norm_ok ? verdict.eager.max : verdict.eager.norm;
  const double bound = norm_ok ? verdict.bound.max : verdict.bound.norm;
  return Fault{"inaccurate",
               fmt::format("{} has a {} error of {:.2g}; {} {:.2g}, so at most {:.2g} passes{}.", place, sense, ours,
                           weak_reference ? "eager is the reference and moves by" : "eager's is", eager, bound,
                           position_text(output.worst))};
}

// Does any run of eager's err anywhere? In double precision eager is the reference, so that only inputs moved by one
// rounding show its errors; integers have no such neighbours.
bool shows_errors(const std::vector<SizeBucket>& buckets) {
  return std::ranges::any_of(buckets,
                             [](const SizeBucket& bucket) { return bucket.eager.max > 0 || bucket.moved.max > 0; });
}

// Has the candidate nothing in half of a bucket where eager has something?
bool leaves_out(const SizeBucket& bucket, const OutputFacts& facts) {
  if (!bucket.left_out) return false;
  const auto& [count, values, size, eager] = *bucket.left_out;
  return values >= kLeastLeftOut && 2 * count >= bucket.count && within(eager, kKnownPart * size) &&
         within(bucket.moved.rms, kMovedPart * size) &&
         size > kBucketUnits * facts.epsilon * bucket.low + facts.underflow;
}

// The first bucket of the reference's magnitudes whose errors are beyond all that eager shows there and beside it.
std::optional<Fault> bucket_fault(const OutputFigures& output, const std::string& place) {
  const double epsilon = output.facts.epsilon;
  if (epsilon < kWorkEpsilon && !shows_errors(output.buckets)) return std::nullopt;
  constexpr std::pair<const char*, double SizeError::*> senses[] = {{"rms", &SizeError::rms}, {"max", &SizeError::max}};
  for (const SizeBucket& bucket : output.buckets) {
    const double low = bucket.low, high = low * kBucketWidth;
    if (leaves_out(bucket, output.facts))
      return Fault{"inaccurate-where-small",
                   fmt::format("{} leaves out {} of its {} elements from {:.2g} to {:.2g}, of {:.2g} (rms); eager is "
                               "off by {:.2g} there.",
                               place, bucket.left_out->count, bucket.count, low, high, bucket.left_out->size,
                               bucket.left_out->eager)};
    for (const auto& [sense, error] : senses) {
      double known = 0.0;
      for (const SizeBucket& other : output.buckets)
        if (other.low >= low / kBucketWidth && other.low <= high)
          known = std::max({known, other.eager.*error, other.moved.*error});
      const double bound = kBucketTimesEager * known + kBucketUnits * epsilon * high + output.facts.underflow;
      const double ours = bucket.ours.*error;
      if (within(ours, bound)) continue;
      return Fault{"inaccurate-where-small",
                   fmt::format("{} is off by {:.2g} ({}) among its {} elements from {:.2g} to {:.2g}; eager is off by "
                               "at most {:.2g} there, so at most {:.2g} passes.",
                               place, ours, sense, bucket.count, low, high, known, bound)};
    }
  }
  return std::nullopt;
}

// Answers that are within the bound on every draw. The special draw is not asked, and the first draw's output is what
// the others are compared with.
std::vector<VacuousOutput> vacuous_outputs(const Figures& figures, Policy policy, bool weak_reference) {
  std::map<std::string, int> draws_of;  // output → draws on which trivial answers were tried
  for (const DrawFigures& draw : figures.draws)
    if (draw.kind != "special")
      for (const OutputFigures& output : draw.outputs) ++draws_of[output.name];
  std::vector<std::pair<VacuousOutput, int>> passes;
  for (const TrivialAnswer& tried : figures.trivial) {
    const RelativeError bound = error_bound(policy, tried.eager, std::nullopt, tried.facts, weak_reference);
    if (!within(tried.error.norm, bound.norm) || !within(tried.error.max, bound.max)) continue;
    const VacuousOutput answer{tried.output, tried.trivial};
    const auto known = std::ranges::find_if(passes, [&](const auto& pass) {
      return pass.first.output == answer.output && pass.first.trivial == answer.trivial;
    });
    if (known == passes.end()) {
      passes.emplace_back(answer, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<VacuousOutput> found;
  for (const auto& [answer, count] : passes) {
    const bool needs_another = answer.trivial == "a constant" || answer.trivial.starts_with("the output for other");
    const int wanted = draws_of[answer.output] - (needs_another ? 1 : 0);
    if (count >= wanted && wanted > 0) found.push_back(answer);
  }
  return found;
}

}  // namespace

std::string_view name_of(Policy policy) {
  switch (policy) {
    case Policy::kReference: return "reference";
    case Policy::kIeee: return "ieee";
    case Policy::kRelaxed: return "relaxed";
  }
  return "reference";
}

Policy policy_of(std::string_view name) {
  for (const Policy policy : {Policy::kReference, Policy::kIeee, Policy::kRelaxed})
    if (name == name_of(policy)) return policy;
  throw Error(ErrorKind::kUser, fmt::format("There is no policy \"{}\".", name), "Use reference, ieee or relaxed.");
}

RelativeError error_bound(Policy policy, RelativeError eager, const std::optional<RelativeError>& sensitivity,
                          const OutputFacts& output, bool weak_reference) {
  const double epsilon = output.epsilon;
  const bool narrow = epsilon > kWorkEpsilon;
  const double one_accumulator = std::max(kFreeUnits, 0.5 * std::sqrt(std::min(output.summands, kMostSummands)));
  const double few = output.elements > 0 ? kNarrowUnits.max / std::sqrt(output.elements) : 0.0;
  const auto bound = [&](double yardstick, double moved, double narrow_units, double units) {
    double largest = kTimesEager * std::max(yardstick, moved) +
                     (narrow ? narrow_units * epsilon + kFreeUnits * kWorkEpsilon : units * epsilon);
    if (weak_reference) largest = std::max(largest, weak_tolerance(epsilon));
    if (policy == Policy::kRelaxed) largest = std::max(largest, kRelaxedError);
    return largest;
  };
  return {bound(eager.norm, sensitivity ? sensitivity->norm : 0.0, std::max(kNarrowUnits.norm, few), kFreeUnits),
          bound(eager.max, sensitivity ? sensitivity->max : 0.0, kNarrowUnits.max, one_accumulator)};
}

Verdict failed_verdict(Policy policy, std::string code, std::string reason, std::string detail) {
  Verdict verdict;
  verdict.policy = policy;
  verdict.code = std::move(code);
  verdict.reason = std::move(reason);
  verdict.detail = std::move(detail);
  return verdict;
}

namespace {

// How far eager moves when it rounds otherwise: its inputs, or, where that takes half of the digits, its operators.
std::optional<RelativeError> movement_of(const OutputFigures& output) {
  if (!output.rounding || !(output.rounding->norm >= std::sqrt(output.facts.epsilon))) return output.sensitivity;
  const RelativeError moved = output.sensitivity.value_or(RelativeError{});
  return RelativeError{std::max(moved.norm, output.rounding->norm), std::max(moved.max, output.rounding->max)};
}

struct OutputFinding {
  OutputVerdict verdict;
  std::optional<Fault> fault;
};

OutputFinding judge_output(const OutputFigures& output, const DrawFigures& draw, Policy policy, bool weak_reference) {
  OutputFinding judged;
  OutputVerdict& verdict = judged.verdict;
  verdict.draw = draw.kind;
  verdict.output = output.name;
  verdict.ours = output.ours;
  verdict.eager = output.eager;
  const OutputFacts& facts = output.facts;
  verdict.bound = error_bound(policy, output.eager, movement_of(output), facts, weak_reference);
  const RelativeError strict = error_bound(policy, output.eager, std::nullopt, {facts.epsilon, 1.0, facts.elements},
                                           false);
  const std::string place = fmt::format("On the {} draw, {}", draw.kind, output.name);
  std::optional<Fault>& fault = judged.fault;
  fault = form_fault(output, place);
  if (!fault) fault = value_fault(output, verdict, place, weak_reference);
  // Eager alone, and reduced precision, say nothing of what is small beside what is large.
  if (!fault && !weak_reference && policy != Policy::kRelaxed) fault = bucket_fault(output, place);
  const bool is_strict = output.exact ? output.mismatches == 0
                                      : within(output.ours.norm, strict.norm) && within(output.ours.max, strict.max);
  verdict.conditioned = !fault && !is_strict;
  if (fault) verdict.fault = fault->sentence;
  return judged;
}

// The first failed check of those that `wanted` takes.
template <typename Wanted>
std::optional<Fault> failed_check(const std::vector<Check>& checks, Wanted&& wanted) {
  for (const Check& check : checks)
    if (!check.ok && wanted(check.name))
      return Fault{check.name, check.detail.empty() ? "The check " + check.name + " failed." : check.detail};
  return std::nullopt;
}

std::string passing_reason(const Verdict& verdict, size_t draws, bool weak_reference) {
  std::string reason = fmt::format(
      "Every output is within {} on all {} draws.",
      weak_reference ? "the weaker bound that eager alone allows" : "the contract's bound of eager's error",
      draws - verdict.skipped.size());
  for (const Check& check : verdict.checks)
    if (!check.unchecked.empty()) reason += fmt::format(" Not checked: {} ({}).", check.name, check.unchecked);
  return reason;
}

}  // namespace

Verdict judge(const Figures& figures, Policy policy) {
  Verdict verdict;
  verdict.policy = policy;
  verdict.reference = figures.reference;
  verdict.reference_note = figures.reference_note;
  verdict.checks = figures.checks;
  verdict.kernelbench_gate = figures.kernelbench_gate;
  const bool weak = verdict.reference == "fp32-eager";
  std::optional<Fault> first = failed_check(figures.checks, [](const std::string& name) {
    return std::ranges::find(kRootCauses, name) != std::end(kRootCauses);
  });
  for (size_t draw_index = 0; draw_index < figures.draws.size(); ++draw_index) {
    const DrawFigures& draw = figures.draws[draw_index];
    if (draw.skipped) verdict.skipped.push_back(draw.kind + ": " + *draw.skipped);
    for (const OutputFigures& output : draw.outputs) {
      OutputFinding judged = judge_output(output, draw, policy, weak);
      judged.verdict.draw_index = static_cast<int>(draw_index);
      if (!first) first = judged.fault;
      verdict.errors.push_back(std::move(judged.verdict));
    }
  }
  if (!first) first = failed_check(figures.checks, [](const std::string&) { return true; });
  if (verdict.errors.empty() && !first)
    first = Fault{"nothing-compared", "The module has no tensor among its outputs, so there is nothing to compare."};
  verdict.vacuous = vacuous_outputs(figures, policy, weak);
  verdict.pass = !first;
  verdict.code = first ? first->code : "pass";
  verdict.reason = first ? first->sentence : passing_reason(verdict, figures.draws.size(), weak);
  return verdict;
}

}  // namespace kw
