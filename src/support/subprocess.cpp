#include "support/subprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "support/error.hpp"

namespace kw {

namespace {

constexpr size_t kErrorTailBytes = 64 << 10;
constexpr double kPollSeconds = 0.5;  // how late an interrupt that arrived just before poll() is seen

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(ErrorKind::kMissing, std::string("cannot make a pipe: ") + std::strerror(errno) + ".");
    read_end = ends[0];
    write_end = ends[1];
  }
};

void close_quietly(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

// After fork: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, char* const* envp, const std::vector<std::string>& paths, int in, int out,
                         int err, int report, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died between fork and prctl
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  int reason = ENOENT;
  for (const std::string& path : paths) {
    execve(path.c_str(), argv, envp);
    if (errno != ENOENT && errno != ENOTDIR) reason = errno;
  }
  [[maybe_unused]] const auto written = ::write(report, &reason, sizeof reason);
  _exit(127);
}

std::vector<std::string> places_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> places;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (true) {
    const size_t end = rest.find(':');
    places.push_back(std::string(rest.substr(0, end)) + "/" + program);
    if (end == std::string_view::npos) return places;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Subprocess::Subprocess(const Options& options) {
  Pipe in, out, err, report;
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view name(*variable, std::strcspn(*variable, "=") + 1);
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [&](const std::string& other) { return other.starts_with(name); });
    if (!replaced) variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), options.environment.begin(), options.environment.end());
  std::vector<std::string> words = options.command;
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const std::vector<std::string> places = places_of(options.command.front());
  const pid_t parent = getpid();

  pid_ = fork();
  if (pid_ == 0)
    become(argv.data(), envp.data(), places, in.read_end, out.write_end, err.write_end, report.write_end, parent);
  const int fork_error = errno;
  if (pid_ > 0) setpgid(pid_, pid_);  // also here: a kill of the group may come before the child has run
  close_quietly(in.read_end);
  close_quietly(out.write_end);
  close_quietly(err.write_end);
  close_quietly(report.write_end);
  input_ = in.write_end;
  output_ = out.read_end;
  error_ = err.read_end;
  // The report pipe closes on a successful exec; a number in it says why there was none.
  int reason = pid_ < 0 ? fork_error : 0;
  if (pid_ > 0)
    while (::read(report.read_end, &reason, sizeof reason) < 0 && errno == EINTR) {}
  close_quietly(report.read_end);
  if (reason != 0) {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    close_quietly(input_);
    close_quietly(output_);
    close_quietly(error_);
    throw Error(ErrorKind::kMissing, "cannot start " + options.command.front() + ": " + std::strerror(reason) + ".");
  }
  for (const int descriptor : {input_, output_, error_})
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  registration_ = std::make_unique<KilledOnInterrupt>(pid_);
}

Subprocess::~Subprocess() {
  if (!waited_) {
    kill();
    wait();
  }
  close_quietly(input_);
  close_quietly(output_);
  close_quietly(error_);
}

Subprocess::Outcome Subprocess::wait_for(int descriptor, short events, double deadline) {
  while (true) {
    throw_if_interrupted();
    const double left = deadline - steady_seconds();
    if (left <= 0) return Outcome::kTimedOut;
    pollfd waited[2] = {{descriptor, events, 0}, {error_, POLLIN, 0}};
    const int ready = poll(waited, 2, static_cast<int>(std::min(left, kPollSeconds) * 1000) + 1);
    if (ready < 0 && errno != EINTR) return Outcome::kEnded;
    if (ready <= 0) continue;
    if (waited[1].revents != 0) drain_errors();
    if (waited[0].revents != 0) return Outcome::kDone;
  }
}

void Subprocess::drain_errors() {
  char chunk[1 << 14];
  while (error_ >= 0) {
    const ssize_t count = ::read(error_, chunk, sizeof chunk);
    if (count > 0) {
      error_tail_.append(chunk, static_cast<size_t>(count));
      if (error_tail_.size() > 2 * kErrorTailBytes) error_tail_.erase(0, error_tail_.size() - kErrorTailBytes);
      continue;
    }
    if (count == 0) close_quietly(error_);
    if (count < 0 && errno == EINTR) continue;
    return;
  }
}

Subprocess::Outcome Subprocess::write(std::string_view bytes, double deadline) {
  while (!bytes.empty()) {
    if (const Outcome outcome = wait_for(input_, POLLOUT, deadline); outcome != Outcome::kDone) return outcome;
    const ssize_t count = ::write(input_, bytes.data(), bytes.size());
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
    else if (errno != EAGAIN && errno != EINTR) return Outcome::kEnded;
  }
  return Outcome::kDone;
}

Subprocess::Outcome Subprocess::fill(double deadline) {
  char chunk[1 << 16];
  while (true) {
    if (const Outcome outcome = wait_for(output_, POLLIN, deadline); outcome != Outcome::kDone) return outcome;
    const ssize_t count = ::read(output_, chunk, sizeof chunk);
    if (count > 0) {
      buffer_.append(chunk, static_cast<size_t>(count));
      return Outcome::kDone;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) return Outcome::kEnded;
  }
}

Subprocess::Outcome Subprocess::read(size_t count, double deadline, std::string& out) {
  while (buffer_.size() < count)
    if (const Outcome outcome = fill(deadline); outcome != Outcome::kDone) return outcome;
  out.append(buffer_, 0, count);
  buffer_.erase(0, count);
  return Outcome::kDone;
}

Subprocess::Outcome Subprocess::read_line(double deadline, std::string& line) {
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos)
    if (const Outcome outcome = fill(deadline); outcome != Outcome::kDone) return outcome;
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return Outcome::kDone;
}

void Subprocess::close_input() { close_quietly(input_); }

void Subprocess::kill() {
  if (waited_ || pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

ExitStatus Subprocess::wait() {
  if (waited_) return status_;
  drain_errors();
  // A child that closed its output but goes on must not hold us: half a second to end by itself.
  int status = 0;
  pid_t ended = 0;
  for (int attempt = 0; attempt < 50 && ended == 0; ++attempt) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0) usleep(10'000);
  }
  if (ended == 0) {
    kill();
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  }
  registration_.reset();
  waited_ = true;
  drain_errors();
  status_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  status_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  // Grandchildren that the child left behind are in its group.
  ::kill(-pid_, SIGKILL);
  return status_;
}

}  // namespace kw
