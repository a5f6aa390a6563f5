// Ctrl-C (SIGINT, SIGTERM, SIGHUP). The first one kills the registered children and sets a flag that long work looks at; a second one, or one
// that arrives while nothing looks, ends the process at once.
#pragma once

#include <sys/types.h>

#include <string>

namespace kw {

// Thrown by throw_if_interrupted(). Not an Error: nobody's input was wrong.
struct Interrupted {
  std::string kept;   // what is left of the work, for the one line that is printed; may be empty
};

inline constexpr int kInterruptedExitCode = 130;

void install_interrupt_handler();
bool interrupted();
void throw_if_interrupted();

// A child (and its process group) to be killed on an interrupt, for as long as this object lives.
class KilledOnInterrupt {
 public:
  explicit KilledOnInterrupt(pid_t child);
  ~KilledOnInterrupt();
  KilledOnInterrupt(const KilledOnInterrupt&) = delete;
  KilledOnInterrupt& operator=(const KilledOnInterrupt&) = delete;

 private:
  int slot_;
};

}  // namespace kw
