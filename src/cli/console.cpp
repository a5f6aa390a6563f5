#include "cli/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

void put(FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stream);
  std::fflush(stream);
}

}  // namespace

Console::Console(std::string json_destination, bool quiet)
    : json_destination_(std::move(json_destination)), quiet_(quiet) {
  const char* terminal = std::getenv("TERM");
  live_ = isatty(STDERR_FILENO) && terminal && std::strcmp(terminal, "dumb") != 0;
}

Console::~Console() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    erase();
  }
  stop_signal_.notify_all();
  if (ticker_.joinable()) ticker_.join();
}

void Console::print(std::string_view text) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  erase();
  put(json_destination_ == "-" ? stderr : stdout, text);
}

void Console::warn(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  put(stderr, text);
}

void Console::write_json(const nlohmann::ordered_json& json) {
  if (json_destination_.empty()) return;
  // Text that a problem printed may hold any bytes: replace what is not UTF-8 rather than fail at the very end.
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (json_destination_ != "-") return write_file_atomically(json_destination_, text);
  const std::lock_guard lock(mutex_);
  erase();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0)
    throw Error(ErrorKind::kMissing, std::string("cannot write to standard output: ") + std::strerror(errno) + ".");
}

void Console::begin(const std::string& stage) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  detail_.clear();
  fraction_ = -1;
  began_ = seconds_now();
  if (!live_) return;
  draw();
  if (!ticker_.joinable()) ticker_ = std::thread([this] { tick(); });
}

void Console::update(const std::string& detail, double fraction) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  detail_ = detail;
  fraction_ = fraction;
  if (live_) draw();
}

void Console::end(double seconds) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  erase();
  if (!live_ && !stage_.empty()) put(stderr, fmt::format("{:<22} {:6.2f} s", stage_, seconds));
  stage_.clear();
}

void Console::note(const std::string& line) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  erase();
  put(stderr, line);
}

void Console::waiting(const std::string& whom, double /*seconds*/) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  detail_ = whom;
  fraction_ = -1;
  if (live_ && !stage_.empty()) return draw();
  if (!whom.empty() && whom != whom_) put(stderr, whom);
  whom_ = whom;
}

void Console::draw() {
  std::string line = fmt::format("{} {:.1f} s", stage_, seconds_now() - began_);
  if (fraction_ >= 0) line += fmt::format("  {:3.0f}%", 100 * fraction_);
  if (!detail_.empty()) line += "  " + detail_;
  // A line that wraps could not be erased again.
  if (line.size() >= terminal_width()) line.resize(terminal_width() - 1);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Console::erase() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Console::tick() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    stop_signal_.wait_for(lock, std::chrono::milliseconds(200));
    if (!stopping_ && !stage_.empty()) draw();
  }
}

}  // namespace kw::cli
