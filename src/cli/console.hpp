// Where text goes. Results for people: stdout, or stderr when --json - has stdout. Progress: stderr; on a terminal one
// live line, otherwise one plain line a stage. JSON: its file, whole or not at all, or stdout.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "support/progress.hpp"

namespace kw::cli {

class Console : public Progress {
 public:
  Console(std::string json_destination, bool quiet);
  ~Console() override;

  void print(std::string_view text);  // results; a newline is added where there is none
  void warn(std::string_view text);   // stderr, also with --quiet
  void write_json(const nlohmann::ordered_json& json);
  bool wants_json() const { return !json_destination_.empty(); }
  void give_up_json_file() {
    if (json_destination_ != "-") json_destination_.clear();
  }  // it must not be written
  bool quiet() const { return quiet_; }

  void begin(const std::string& stage) override;
  void update(const std::string& detail, double fraction) override;
  void end(double seconds) override;
  void note(const std::string& line) override;
  void waiting(const std::string& whom, double seconds) override;

 private:
  void draw();  // with the lock held
  void erase();
  void tick();

  std::string json_destination_;
  bool quiet_;
  bool live_;
  std::mutex mutex_;
  std::string stage_, detail_, whom_;
  double fraction_ = -1, began_ = 0;
  bool drawn_ = false;
  std::condition_variable stop_signal_;
  bool stopping_ = false;
  std::thread ticker_;
};

}  // namespace kw::cli
