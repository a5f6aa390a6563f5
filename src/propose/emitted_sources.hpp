// What schedules of one problem are emitted as, by what tells the programs apart.
#pragma once

#include <map>
#include <string>

#include "propose/compile.hpp"

namespace kw {

class EmittedSources {
 public:
  // Both outlive this.
  EmittedSources(const Compiled& first, const CompileOptions& options) : first_(first), options_(options) {}

  // The hash of the program's source: equal for schedules that come to the same. Empty where the parameters do not go
  // together; unfit() says why.
  std::string identity(const Schedule& schedule);
  const std::string& unfit() const { return unfit_; }

  const std::string& at(const std::string& identity) const { return emitted_.at(identity).source; }
  const std::string& schedule_of(const std::string& identity) const { return emitted_.at(identity).schedule; }

 private:
  struct Emitted {
    std::string source, schedule;  // the latter as JSON, with its kernels'
  };

  const Compiled& first_;
  const CompileOptions& options_;
  std::map<std::string, Emitted> emitted_;
  std::string unfit_;
};

}  // namespace kw
