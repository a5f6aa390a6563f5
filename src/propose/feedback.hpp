// What a model is told of its last answer.
#pragma once

#include <string>

#include "judge/judgement.hpp"
#include "judge/measurement.hpp"
#include "llm/extract.hpp"

namespace kw {

struct Feedback {
  std::string what;      // one sentence or two
  std::string evidence;  // lines of code, a compiler's output, figures; may be empty
};

Feedback feedback_on(const llm::Fault& fault);

// What was wrong, and from the worker's figures where in a tensor it is furthest off.
Feedback feedback_on(const Judgement& judgement);

// How fast it is beside eager and the device, and what its time goes to. Nothing to say where it could not be timed.
Feedback feedback_on_times(const Timing& timing);

}  // namespace kw
