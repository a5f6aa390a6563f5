// How many processes there may be, as a control group counts them: the way to bound root's, which resource limits do
// not.
#pragma once

#include <string>

namespace kw {

class ProcessLimit {
 public:
  // A group of its own for at most `most` processes and threads, where the system has such groups and this user may
  // make one. 0: none.
  explicit ProcessLimit(long most);
  ~ProcessLimit();  // takes the group away; those in it must have ended
  ProcessLimit(const ProcessLimit&) = delete;
  ProcessLimit& operator=(const ProcessLimit&) = delete;

  bool holds() const { return !folder_.empty(); }
  // A process that writes "0" to it is in the group, with all that it starts later.
  std::string joining_file() const { return folder_ + "/cgroup.procs"; }

 private:
  std::string folder_;
};

}  // namespace kw
