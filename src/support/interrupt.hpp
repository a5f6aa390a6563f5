// Ctrl-C (SIGINT, SIGTERM, SIGHUP). The first one kills the registered children and sets a flag that long work looks
// at; a second one, or one that arrives while nothing looks, ends the process at once.
#pragma once

#include <sys/types.h>

#include <string>

namespace kw {

// Thrown by throw_if_interrupted(). Not an Error: nobody's input was wrong.
struct Interrupted {
  std::string kept;  // what is left of the work, for the one line that is printed; may be empty
};

inline constexpr int kInterruptedExitCode = 130;

void install_interrupt_handler();
bool interrupted();
void throw_if_interrupted();

// For a program that goes on after Ctrl-C. While one lives, SIGINT kills no child and ends nothing: it is seen by the
// thread that made this alone, as interrupted() and throw_if_interrupted(), until take(). One that is not taken is
// followed by the usual end at the fourth.
class InteractiveInterrupts {
 public:
  InteractiveInterrupts();
  ~InteractiveInterrupts();
  InteractiveInterrupts(const InteractiveInterrupts&) = delete;
  InteractiveInterrupts& operator=(const InteractiveInterrupts&) = delete;
  bool take();  // was there one? It counts no more
};

void kill_children();  // all that are registered, at once: before an end that must not wait for them

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
