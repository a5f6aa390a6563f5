// A child process in its own process group, with its standard input, output and error in pipes. It dies with this
// process, with this object, and on an interrupt. Its standard error is drained while waiting, and only the end is
// kept.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/interrupt.hpp"

namespace kw {

struct ExitStatus {
  int code = 0;    // meaningful when signal is 0
  int signal = 0;  // that killed it, or 0
};

class Subprocess {
 public:
  struct Options {
    std::vector<std::string> command;      // command[0] is looked up on PATH
    std::vector<std::string> environment;  // "NAME=value", added to this process's own
  };
  enum class Outcome { kDone, kEnded, kTimedOut };

  // Throws kMissing when the program cannot be started.
  explicit Subprocess(const Options& options);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // Both throw Interrupted. `deadline` is in seconds of the steady clock; kEnded: the child closed its end.
  Outcome write(std::string_view bytes, double deadline);
  Outcome read(size_t count, double deadline, std::string& out);  // exactly `count` bytes, appended
  Outcome read_line(double deadline, std::string& line);          // without its newline

  void close_input();
  void kill();        // the whole group
  ExitStatus wait();  // after kill() or kEnded
  bool ended() const { return waited_; }
  pid_t pid() const { return pid_; }
  int output_descriptor() const { return output_; }
  const std::string& error_tail() const { return error_tail_; }  // at most 64 KiB

 private:
  Outcome wait_for(int descriptor, short events, double deadline);
  Outcome fill(double deadline);  // reads some output into buffer_
  void drain_errors();

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, error_ = -1;
  bool waited_ = false;
  ExitStatus status_;
  std::string buffer_, error_tail_;
  std::unique_ptr<KilledOnInterrupt> registration_;
};

double steady_seconds();

}  // namespace kw
