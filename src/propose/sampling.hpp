// The model's side of a run: threads that ask for completions, one backend each, while others judge what came.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "llm/backend.hpp"

namespace kw {

constexpr double kLookSeconds = 0.2;  // how often those who wait for an answer look for an interrupt

struct SampleTask {
  int sample = 0, turn = 0;
  llm::Prompt prompt;
  llm::Sampling sampling;
  llm::OnToken on_piece = {};  // in the thread that writes; false stops it, and what there is comes as the answer
                               // ("cancelled")
};

struct SampleAnswer {
  SampleTask task;
  llm::Completion completion;
};

class SamplingThreads {
 public:
  explicit SamplingThreads(std::vector<std::unique_ptr<llm::Backend>> backends);
  ~SamplingThreads();  // waits for what is being written; interrupted ones end by themselves
  SamplingThreads(const SamplingThreads&) = delete;
  SamplingThreads& operator=(const SamplingThreads&) = delete;

  // Loads the model, or asks the server what it serves, in the first thread: a process that a thread started does not
  // outlive it (Subprocess), so none but those that go on may start one. Returns at once, and does nothing the second
  // time; opened() waits, and throws what went wrong.
  void open();
  struct Opened {
    std::string name;
    int context = 0;
  };
  Opened opened();

  // After opened(). Repairs go before new samples, so that few conversations are open at a time.
  void ask(SampleTask task, bool first = false);
  // The next answer, within `seconds`; none when the time is over. Rethrows what ended a backend, once its other
  // answers are taken.
  std::optional<SampleAnswer> next(double seconds);
  void drop();     // what is asked for or written now is not wanted any more; new questions are taken
  void give_up();  // what has not begun is not asked for any more

  llm::Backend& front() { return *backends_.front(); }  // between opened() and the first ask()
  size_t threads() const { return backends_.size(); }
  double busy_seconds() const;  // of all threads together
  int tokens_so_far() const { return pieces_; }

 private:
  void work(llm::Backend& backend, bool opens);
  std::vector<std::unique_ptr<llm::Backend>> backends_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SampleTask> tasks_;
  std::deque<SampleAnswer> answers_;
  std::exception_ptr fault_;
  std::optional<Opened> opened_;
  std::atomic<bool> stopping_ = false;
  bool fault_told_ = false;
  double busy_ = 0;
  std::atomic<int> pieces_ = 0, drops_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace kw
