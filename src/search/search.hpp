// Best-first search over schedules. The cost model says what to try first, measured times correct it: a neighbour of a
// schedule that was measured is expected to take that one's time, changed as the model says. Deterministic for equal
// graphs, seeds and measurements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/catalogue.hpp"

namespace kw::search {

struct Candidate {
  Schedule schedule;
  std::string change;    // what was decided differently from the schedule it was derived from
  std::string identity;  // equal for schedules that give the same source
  double expected = 1;   // time relative to the first schedule's, as predicted
};

inline constexpr double kHopeless = 2.5;  // expected time relative to the first schedule's beyond which nothing is
                                          // tried

// Times are relative to the first schedule's in the same race: 0.8 takes four fifths of its time.
struct Outcome {
  enum class State { kMeasured, kPruned /* stopped early: slower */, kFailed };
  State state = State::kFailed;
  double ratio = 0, low = 0, high = 0;
  bool reused = false;  // known from the archive
  std::string reason;   // of a failure
};

struct Standing {
  int tried = 0, pruned = 0, failed = 0, reused = 0;  // tried: all that were measured, pruned and failed, reused ones
                                                      // too
  double best = 1;                                    // ratio
};

// The world outside: builds, times, verifies. Everything may throw Interrupted.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual std::string identity(const Schedule& schedule) = 0;        // empty: cannot be emitted
  virtual std::string unfit() const { return "cannot be emitted"; }  // why the last identity was empty
  virtual bool verifies() const { return false; }                    // does measure() verify what it times?
  virtual bool has_time() = 0;                                       // false ends the search
  virtual void prepare(const std::vector<Candidate>& batch) = 0;     // begins to build; may return before it is done
  // One outcome per candidate; `best` is raced against too, nullptr while it is the first schedule.
  virtual std::vector<Outcome> measure(const std::vector<Candidate>& batch, const Candidate* best) = 0;
  // Full verification of a better one. With `last`, the search is over and it has to be decided.
  enum class Verdict { kPassed, kFailed, kLater };
  virtual Verdict confirm(const Candidate& candidate, double ratio, bool last) = 0;
  virtual void report(const Standing& standing) = 0;
  virtual double seconds() = 0;  // since the search began
};

struct SearchOptions {
  uint64_t seed = 0;            // decides between schedules that the model cannot tell apart
  int batch = 6;                // built together and raced against one another
  int promising = 12;           // combinations of parameters per group to begin with
  int regroupings = 12;         // of each kind, per expansion
  double hopeless = kHopeless;  // expected ratio beyond which nothing is tried
  bool only_given = false;      // the given schedules, and none of their neighbours
  int most = 0;                 // candidates in all; 0: as many as there is time for
};

struct Progressed {
  double seconds = 0;
  int tried = 0;
  double ratio = 1;
  std::string change;
};

// One evaluation.
struct Trial {
  std::string change;
  Outcome outcome;
};

struct SearchResult {
  Schedule schedule;  // the best one that passed its verification; the first where nothing better did
  double ratio = 1;
  Standing standing;
  std::vector<Progressed> history;  // each improvement
  std::vector<Trial> trials;        // in the order in which they were measured
  bool exhausted = false;           // nothing was left to try
};

// `given`: candidates to try first. `first` must have been verified.
SearchResult search(Catalogue& catalogue, const Schedule& first, std::vector<Candidate> given, Evaluator& evaluator,
                    const SearchOptions& options);

}  // namespace kw::search
