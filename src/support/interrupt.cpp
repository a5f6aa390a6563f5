#include "support/interrupt.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cerrno>

namespace kw {

namespace {

// Read by the signal handler, so plain lock-free atomics in a fixed array.
std::array<std::atomic<pid_t>, 256> children{};
std::atomic<int> signals_seen{0};
std::atomic<bool> interactive{false};
std::atomic<int> interactive_seen{0};
std::atomic<pthread_t> interactive_thread{};
constexpr int kMostUntaken = 3;

void on_signal(int signal) {
  const int saved = errno;
  if (signal == SIGINT && interactive.load() && interactive_seen.fetch_add(1) < kMostUntaken) return;
  kill_children();
  if (signals_seen.fetch_add(1) >= 1) {
    constexpr char kLine[] = "\ninterrupted\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
    _exit(kInterruptedExitCode);
  }
  errno = saved;
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a blocked read or wait returns, and its caller sees the flag
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  // A pipe closed by `kw … | head` is reported by write, not by death in the middle of storing a result.
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return signals_seen.load() > 0 || (interactive.load() && interactive_seen.load() > 0 &&
                                     pthread_equal(pthread_self(), interactive_thread.load()));
}

// Called by the signal handler.
void kill_children() {
  for (auto& child : children)
    if (const pid_t pid = child.load(); pid > 0) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
    }
}

InteractiveInterrupts::InteractiveInterrupts() {
  interactive_thread = pthread_self();
  interactive_seen = 0;
  interactive = true;
}

InteractiveInterrupts::~InteractiveInterrupts() { interactive = false; }

bool InteractiveInterrupts::take() { return interactive_seen.exchange(0) > 0; }

void throw_if_interrupted() {
  if (interrupted()) throw Interrupted{""};
}

KilledOnInterrupt::KilledOnInterrupt(pid_t child) : slot_(-1) {
  for (size_t slot = 0; slot < children.size(); ++slot) {
    pid_t expected = 0;
    if (children[slot].compare_exchange_strong(expected, child)) {
      slot_ = static_cast<int>(slot);
      break;
    }
  }
  // The signal may have come between the child's start and its registration.
  if (interrupted()) kill(child, SIGKILL);
}

KilledOnInterrupt::~KilledOnInterrupt() {
  if (slot_ >= 0) children[static_cast<size_t>(slot_)].store(0);
}

}  // namespace kw
