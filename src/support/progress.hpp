// Where long work says how far it is. The command line shows it; tests and the C API ignore it.
#pragma once

#include <string>

namespace kw {

class Progress {
 public:
  virtual ~Progress() = default;
  virtual void begin(const std::string& /*stage*/) {}
  virtual void update(const std::string& /*detail*/, double /*fraction, or negative*/) {}
  virtual void end(double /*seconds*/) {}
  virtual void note(const std::string& /*line*/) {}
  // Again and again while another process has the device: who it is ("" at the end), and the seconds since the last
  // time.
  virtual void waiting(const std::string& /*whom*/, double /*seconds*/) {}
};

// One stage, from construction to destruction.
class Stage {
 public:
  Stage(Progress& progress, const std::string& name);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  double seconds() const;

 private:
  Progress& progress_;
  double began_;
};

double seconds_now();  // of a steady clock

}  // namespace kw
