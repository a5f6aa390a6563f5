#include "propose/sampling.hpp"

#include <chrono>

#include "support/interrupt.hpp"
#include "support/subprocess.hpp"

namespace kw {

SamplingThreads::SamplingThreads(std::vector<std::unique_ptr<llm::Backend>> backends)
    : backends_(std::move(backends)) {}

SamplingThreads::~SamplingThreads() {
  give_up();
  for (std::thread& thread : threads_) thread.join();
}

void SamplingThreads::ask(SampleTask task, bool first) {
  const std::lock_guard lock(mutex_);
  if (first) tasks_.push_front(std::move(task));
  else tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void SamplingThreads::open() {
  if (!threads_.empty()) return;
  for (const auto& backend : backends_)
    threads_.emplace_back([this, &backend] { work(*backend, backend == backends_.front()); });
}

SamplingThreads::Opened SamplingThreads::opened() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return opened_ || fault_; });
  if (!fault_) return *opened_;
  fault_told_ = true;
  std::rethrow_exception(fault_);
}

void SamplingThreads::drop() {
  const std::lock_guard lock(mutex_);
  ++drops_;
  tasks_.clear();
  answers_.clear();
}

void SamplingThreads::give_up() {
  const std::lock_guard lock(mutex_);
  tasks_.clear();
  stopping_ = true;
  changed_.notify_all();
}

void SamplingThreads::work(llm::Backend& backend, bool opens) {
  if (opens) {
    Opened opened;
    std::exception_ptr fault;
    try {
      opened = {backend.name(), backend.context_tokens()};
    } catch (...) { fault = std::current_exception(); }
    const std::lock_guard lock(mutex_);
    if (fault) fault_ = fault, stopping_ = true;
    else opened_ = opened;
    changed_.notify_all();
  }
  while (true) {
    SampleTask task;
    int drops = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      drops = drops_;
    }
    const double began = steady_seconds();
    SampleAnswer answer;
    std::exception_ptr fault;
    try {
      answer.completion = backend.generate(task.prompt, task.sampling, [&](std::string_view piece) {
        ++pieces_;
        return !stopping_ && drops == drops_ && (!task.on_piece || task.on_piece(piece));
      });
    } catch (...) { fault = std::current_exception(); }
    const std::lock_guard lock(mutex_);
    busy_ += steady_seconds() - began - answer.completion.waited_seconds;
    if (drops != drops_) {
      // Nobody waits for it.
    } else if (fault) {
      // One that fails after all its attempts speaks for the others: what they are writing is still taken.
      if (!fault_) fault_ = fault;
      tasks_.clear();
      stopping_ = true;
    } else if (answer.completion.finish != "cancelled" || (task.on_piece && !stopping_)) {
      answer.task = std::move(task);
      answers_.push_back(std::move(answer));
    }
    changed_.notify_all();
  }
}

std::optional<SampleAnswer> SamplingThreads::next(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !answers_.empty() || (fault_ && !fault_told_); });
  if (!answers_.empty()) {
    SampleAnswer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  if (fault_ && !fault_told_) {
    fault_told_ = true;
    std::rethrow_exception(fault_);
  }
  return std::nullopt;
}

double SamplingThreads::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

}  // namespace kw
