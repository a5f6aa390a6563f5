// How many processes there may be, as a control group counts them: the way to bound root's, which resource limits do not.
#pragma once

#include <string>
#include <vector>

namespace kw {

class ProcessLimit {
 public:
  // A group of its own for at most `most` processes and threads, where the system has such groups and this user may make one.
  explicit ProcessLimit(long most);
  ~ProcessLimit();   // takes the group away; those in it must have ended
  ProcessLimit(const ProcessLimit&) = delete;
  ProcessLimit& operator=(const ProcessLimit&) = delete;

  bool holds() const { return !folder_.empty(); }
  // Words before a command that is to run, with all that it starts, in the group. Empty where there is none.
  std::vector<std::string> words() const;

 private:
  std::string folder_;
};

}  // namespace kw
