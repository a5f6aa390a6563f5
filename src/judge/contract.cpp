#include "judge/contract.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "judge/json_number.hpp"
#include "measure/worker_answers.hpp"
#include "support/error.hpp"

namespace kw {

using Json = nlohmann::ordered_json;

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
constexpr double kUnderflow = 1.1754943508222875e-38;  // the smallest normal fp32: kernels may flush what is below

// Under `relaxed`: a few units of bfloat16's rounding, the coarsest product allowed.
constexpr double kRelaxedError = 1.0 / 128;

// Checks that explain whatever else is wrong, so they come first as the reason.
constexpr std::string_view kRootCauses[] = {"guard-bands"};

OutputFacts read_facts(const Json& row) {
  return {.epsilon = number_of(row.at("epsilon")),
          .summands = row.value("summands", 1.0),
          .elements = row.value("compared", 0.0)};
}

RelativeError read_error(const Json& json) { return {number_of(json.at("norm")), number_of(json.at("max"))}; }

bool within(double error, double bound) { return !std::isnan(error) && error <= bound; }

// What eager alone as the reference can vouch for, by the output's precision.
double weak_tolerance(double epsilon) {
  if (epsilon > 1e-4) return 1e-2;
  return epsilon > 1e-10 ? 1e-4 : 1e-8;
}

std::string shape_text(const Json& shape) {
  std::string text = "[";
  for (size_t dim = 0; dim < shape.size(); ++dim) text += (dim ? ", " : "") + shape[dim].dump();
  return text + "]";
}

std::string position_text(const Json& row) {
  const Json& where = row.at("where");
  return where.empty() ? ""
                       : fmt::format(" (at {}: {} instead of {})", shape_text(where), number_text(row.at("ours_value")),
                                     number_text(row.at("reference_value")));
}

struct Fault {
  std::string code, sentence;
};

// What is wrong with the form of an output, before any number in it is looked at.
std::optional<Fault> form_fault(const Json& row, const std::string& place) {
  if (!row.at("dtype_ok").get<bool>())
    return Fault{"dtype",
                 fmt::format("{} has dtype {} where Model's has {}.", place, row.at("dtype").get<std::string>(),
                             row.value("expected_dtype", std::string("another")))};
  if (!row.at("shape_ok").get<bool>())
    return Fault{"shape", fmt::format("{} has shape {} where Model's has {}.", place, shape_text(row.at("shape")),
                                      shape_text(row.at("expected_shape")))};
  if (!row.at("device_ok").get<bool>())
    return Fault{"device", fmt::format("{} is on another device than Model's.", place)};
  if (!row.at("strides_ok").get<bool>()) {
    if (!row.contains("strides")) return Fault{"strides", fmt::format("{} has other strides than Model's.", place)};
    return Fault{"strides", fmt::format("{} has strides {} where Model's has {}.", place, shape_text(row.at("strides")),
                                        shape_text(row.at("expected_strides")))};
  }
  return std::nullopt;
}

std::optional<Fault> value_fault(const Json& row, const OutputVerdict& verdict, const std::string& place,
                                 bool weak_reference) {
  if (row.at("exact").get<bool>()) {
    const auto mismatches = row.at("mismatches").get<int64_t>();
    if (mismatches == 0) return std::nullopt;
    // Steps that rounding decides: no more of them than eager misses, as the bound of floats has it, and each one that
    // eager takes when it rounds otherwise.
    if (static_cast<double>(mismatches) <=
            kTimesEager * static_cast<double>(row.value("eager_mismatches", int64_t{0})) &&
        row.value("unexplained", int64_t{1}) == 0)
      return std::nullopt;
    return Fault{"mismatch", fmt::format("{} differs from the reference in {} elements where eager does not{}.", place,
                                         mismatches, position_text(row))};
  }
  if (!row.at("nonfinite_ok").get<bool>()) {
    const auto count = row.value("nonfinite_mismatches", int64_t{0});
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
                           position_text(row))};
}

// Does any run of eager's err anywhere? In double precision eager is the reference, so that only inputs moved by one
// rounding show its errors; integers have no such neighbours.
bool shows_errors(const Json& buckets) {
  return std::any_of(buckets.begin(), buckets.end(), [](const Json& bucket) {
    return number_of(bucket.at("eager").at("max")) > 0 || number_of(bucket.at("moved").at("max")) > 0;
  });
}

// The first bucket of the reference's magnitudes whose errors are beyond all that eager shows there and beside it.
std::optional<Fault> bucket_fault(const Json& row, const std::string& place) {
  const Json buckets = row.value("buckets", Json::array());
  const double epsilon = number_of(row.at("epsilon"));
  if (epsilon < kWorkEpsilon && !shows_errors(buckets)) return std::nullopt;
  for (const Json& bucket : buckets) {
    const double low = number_of(bucket.at("low")), high = low * kBucketWidth;
    for (const char* sense : {"rms", "max"}) {
      double known = 0.0;
      for (const Json& other : buckets)
        if (const double beside = number_of(other.at("low")); beside >= low / kBucketWidth && beside <= high)
          for (const char* run : {"eager", "moved"}) known = std::max(known, number_of(other.at(run).at(sense)));
      const double bound = kBucketTimesEager * known + kBucketUnits * epsilon * high + kUnderflow;
      const double ours = number_of(bucket.at("ours").at(sense));
      if (within(ours, bound)) continue;
      return Fault{"inaccurate-where-small",
                   fmt::format("{} is off by {:.2g} ({}) among its {} elements from {:.2g} to {:.2g}; eager is off by "
                               "at most {:.2g} there, so at most {:.2g} passes.",
                               place, ours, sense, bucket.at("count").get<int64_t>(), low, high, known, bound)};
    }
  }
  return std::nullopt;
}

// Answers that are within the bound on every draw. The special draw is not asked, and the first draw's output is what
// the others are compared with.
std::vector<VacuousOutput> vacuous_outputs(const Json& figures, Policy policy, bool weak_reference) {
  std::map<std::string, int> draws_of;  // output → draws on which trivial answers were tried
  for (const Json& draw : figures.at("draws"))
    if (draw.at("kind") != "special")
      for (const Json& row : draw.at("outputs")) ++draws_of[row.at("name").get<std::string>()];
  std::vector<std::pair<VacuousOutput, int>> passes;
  for (const Json& row : figures.value("vacuous", Json::array())) {
    const RelativeError bound = error_bound(policy, read_error(row.at("eager")), std::nullopt, read_facts(row),
                                            weak_reference);
    const RelativeError error = read_error(row);
    if (!within(error.norm, bound.norm) || !within(error.max, bound.max)) continue;
    const VacuousOutput answer{row.at("output").get<std::string>(), row.at("trivial").get<std::string>()};
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

Verdict judge(const Json& figures, Policy policy) {
  Verdict verdict;
  verdict.policy = policy;
  verdict.reference = figures.value("reference", std::string());
  verdict.reference_note = figures.value("reference_note", std::string());
  const bool weak = verdict.reference == "fp32-eager";
  std::optional<Fault> first;

  for (const Json& check : figures.at("checks"))
    verdict.checks.push_back({check.at("name").get<std::string>(), check.at("ok").get<bool>(),
                              check.value("detail", std::string()), check.value("unchecked", std::string())});
  const auto blame_checks = [&](auto&& wanted) {
    for (const CheckVerdict& check : verdict.checks)
      if (!check.ok && !first && wanted(check.name))
        first = Fault{check.name, check.detail.empty() ? "The check " + check.name + " failed." : check.detail};
  };
  const auto is_root_cause = [](const std::string& name) {
    return std::ranges::find(kRootCauses, name) != std::end(kRootCauses);
  };
  blame_checks(is_root_cause);

  int draw_index = 0;
  for (const Json& draw : figures.at("draws")) {
    const std::string kind = draw.at("kind").get<std::string>();
    if (draw.contains("skipped")) verdict.skipped.push_back(kind + ": " + draw.at("skipped").get<std::string>());
    for (const Json& row : draw.at("outputs")) {
      OutputVerdict output;
      output.draw = kind;
      output.draw_index = draw_index;
      output.output = row.at("name").get<std::string>();
      output.ours = read_error(row.at("ours"));
      output.eager = read_error(row.at("eager"));
      std::optional<RelativeError> sensitivity;
      if (row.contains("sensitivity")) sensitivity = read_error(row.at("sensitivity"));
      const OutputFacts facts = read_facts(row);
      if (row.contains("rounding"))
        if (const RelativeError rounding = read_error(row.at("rounding")); rounding.norm >= std::sqrt(facts.epsilon)) {
          const RelativeError moved = sensitivity.value_or(RelativeError{});
          sensitivity = RelativeError{std::max(moved.norm, rounding.norm), std::max(moved.max, rounding.max)};
        }
      output.bound = error_bound(policy, output.eager, sensitivity, facts, weak);
      const RelativeError strict = error_bound(policy, output.eager, std::nullopt, {facts.epsilon, 1.0, facts.elements},
                                               false);
      const std::string place = fmt::format("On the {} draw, {}", kind, output.output);
      std::optional<Fault> fault = form_fault(row, place);
      if (!fault) fault = value_fault(row, output, place, weak);
      // Eager alone, and reduced precision, say nothing of what is small beside what is large.
      if (!fault && !weak && policy != Policy::kRelaxed) fault = bucket_fault(row, place);
      const bool exact = row.at("exact").get<bool>(),
                 is_strict = exact ? row.at("mismatches").get<int64_t>() == 0
                                   : within(output.ours.norm, strict.norm) && within(output.ours.max, strict.max);
      output.conditioned = !fault && !is_strict;
      if (fault) output.fault = fault->sentence;
      if (fault && !first) first = fault;
      verdict.errors.push_back(std::move(output));
    }
    ++draw_index;
  }
  blame_checks([](const std::string&) { return true; });
  if (verdict.errors.empty() && !first)
    first = Fault{"nothing-compared", "The module has no tensor among its outputs, so there is nothing to compare."};

  verdict.vacuous = vacuous_outputs(figures, policy, weak);
  if (figures.contains("kernelbench_gate")) {
    const Json& gate = figures.at("kernelbench_gate");
    verdict.kernelbench_gate = Gate{gate.at("ok").get<bool>(), number_of(gate.at("atol")), number_of(gate.at("rtol"))};
  }

  verdict.pass = !first;
  verdict.code = first ? first->code : "pass";
  verdict.reason = first ? first->sentence
                         : fmt::format("Every output is within {} on all {} draws.",
                                       weak ? "the weaker bound that eager alone allows"
                                            : "the contract's bound of eager's error",
                                       draw_index - static_cast<int>(verdict.skipped.size()));
  for (const CheckVerdict& check : verdict.checks)
    if (!first && !check.unchecked.empty())
      verdict.reason += fmt::format(" Not checked: {} ({}).", check.name, check.unchecked);
  return verdict;
}

}  // namespace kw
